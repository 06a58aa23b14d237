"""A machine's facts about itself: its cores, GPUs, interfaces, processor and control groups, and the provenance of a figure."""
