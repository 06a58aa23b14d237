"""What a run was: its raw events and samples → throughput and its interval, where a step's time went, quality, and whether it may be used. Pure."""
