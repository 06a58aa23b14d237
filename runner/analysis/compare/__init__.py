"""`dlscale compare`: two sets of runs, A before and B after; what ran in both is held against each other.

Values in, values out but for `flow`, which reads and prints. Its types are in `model`; what makes two runs runs of one trial is in
`identity`, what the figures come to in `judge`, by the test in `ranktest`.
"""
