"""Published figures of others, as data: what was measured, where it is printed, and what they concluded from it.

Each `results/published/<id>.yaml` holds one source. `load` reads them all; `derive` recomputes speedups and checks every printed figure
against the others of its source. Nothing here measures anything.
"""
