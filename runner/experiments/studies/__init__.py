"""Studies: the runs of a published source, repeated here, and its figures and findings checked against the results."""
