"""Slurm: the job that the runner is in, what its nodes are, and how the job ended. It allocates nothing (`runner/engines/salloc.py`)."""
