"""Records → trainings that differ in one thing, with their ratios, and why two can't be compared. Pure."""
