"""What devices and hosts did while a run was measured: from the samples of each node's sampler to figures.

What can't be had stays away and is named with its reason; nothing is guessed over a hole in the samples.
"""
