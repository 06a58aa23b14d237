"""A request on its ground → trials: what is trained how often, on which devices, how they share it, and over which wires. Pure."""
