"""What a machine says of itself: its nodes, GPUs, interfaces, processor and control groups, and where a figure comes from."""
