"""A request and its resources → trials → container specs. `discovery` inspects machines (with `engine`, `image`, `find_nsight`), `choice` looks for Pythons, `layout` for ports; the rest is pure."""
