"""Program events for tests, which pass only the fields that matter to them."""

from typing import get_args


def program_event(kind, /, *, rank=0, **fields):
    """An event of a kind; by default of rank 0, and at 0 s by every clock."""
    (event,) = get_args(kind.model_fields["event"].annotation)
    return kind(**{"event": event, "rank": rank, "t": 0.0, "received": 0.0, "container": f"w{rank}"} | fields)
