"""One machine taken for several: nodes dealt out of it, links held to a rate and a delay, in the words of tc. Pure."""
