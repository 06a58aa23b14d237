"""A request and its resources → trials → container specs. `discovery` inspects machines, and `layout` looks for free ports; the rest is pure."""
