"""What a run was: its raw events and samples → throughput, where a step's time went, quality, and whether it may be used. Pure."""
