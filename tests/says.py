"""Events as programs would say them, for tests: only what a test is about is given."""

from typing import get_args


def says(kind, /, *, rank=0, **fields):
    """An event of a kind, of the first rank and at 0 s by every clock unless told otherwise."""
    (event,) = get_args(kind.model_fields["event"].annotation)
    return kind(**{"event": event, "rank": rank, "t": 0.0, "received": 0.0, "container": f"w{rank}"} | fields)
