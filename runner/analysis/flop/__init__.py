"""Model FLOP utilisation: what the arithmetic of a run's model came to, over the dense peak of its devices at that precision.

Values in, values out; the one file that is read is `peaks.yaml`. An unknown device has no peak, and the reason is said in its place.
"""
