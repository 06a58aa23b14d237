"""Other machines: which there are, how their engines are reached, what they have, and how images and programs get there."""
