"""What each command of `cli.py` does: the rooms called that do the work, and what is printed of it."""
