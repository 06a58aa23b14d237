"""The commands of `cli.py`: each calls the rooms that do the work and prints the outcome."""
