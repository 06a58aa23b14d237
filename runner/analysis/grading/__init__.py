"""A run's raw events and samples → throughput, the parts of a step, quality, and whether the run may be used. Pure."""
