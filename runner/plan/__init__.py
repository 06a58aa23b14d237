"""A request and its resources → trials → container specs. Only these inspect machines: `discovery` and what it calls, `choice`, `layout`."""
