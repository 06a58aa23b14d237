"""Other machines: which ones a list names, how their engines are reached, what they have, and how images and programs get there."""
