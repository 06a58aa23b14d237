"""Studies: what a published source ran, run again here, and its figures and findings held against what came out."""
