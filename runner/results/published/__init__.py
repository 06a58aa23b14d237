"""Figures that other people published, as data: what was measured, where it is printed, and what they concluded from it.

`results/published/<id>.yaml` holds a source each; `load` reads them all, `derive` computes speedups again and holds every printed figure
against the others of its source. Nothing here measures anything.
"""
