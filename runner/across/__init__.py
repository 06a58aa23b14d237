"""What shows only across matrices: records on file → trainings that differ in one thing, its ratios, and why two can't be compared. Pure.

`alike` finds the runs of one training; each other module has one thing in which they may differ, and gives what `runner/report/` lays out.
"""
