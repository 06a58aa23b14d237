"""Figures of devices and hosts while a run was measured, from the samples of each node's sampler.

A missing figure is None, with its reason on record; a gap in the samples is never interpolated.
"""
