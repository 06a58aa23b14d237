"""Records → trainings that differ in one thing, with their ratios, and why others are not comparable. Pure."""
