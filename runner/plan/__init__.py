"""A request and the resources that it has → trials → container specs. Only `discovery` looks at anything; the rest is pure."""
