"""Lines that mpirun has torn, put together again.

What a rank writes, mpirun forwards in pieces of 4,096 bytes at most, each behind a tag such as `[1,3]<stdout>:` and no end of line of its
own (Open MPI's --tag-output, orte/mca/iof/base/iof_base_output.c). Where ranks write at once, a physical line is then a chain of pieces
of several ranks, of which only the last has come to its end.
"""

from __future__ import annotations

import re
from typing import Final

MOST: Final = 2**25
"""Characters that are kept of all lines that have no end yet."""
_EACH: Final = 256
"""Characters that one more rank counts for: what begins lines and ends none fills no memory either."""
# Behind a job number, which horovodrun's own prefix has not: that one is put before whole lines.
_TAG: Final = re.compile(r"\[\d+,\d+\]<std(?:out|err)>:")


class TornLines:
    """Takes in the physical lines of one stream; gives those that its ranks wrote, each behind one tag."""

    def __init__(self) -> None:
        self._begun: dict[str, list[str]] = {}
        self._kept = 0

    def feed(self, text: str) -> tuple[str, ...]:
        """Take in a physical line without its end: the lines that it completes, which are none or one, or two behind untagged text."""
        tags = list(_TAG.finditer(text))
        if not tags:
            return (text,)
        edges = [*(tag.start() for tag in tags), len(text)]
        for tag, end in zip(tags[:-1], edges[1:-1], strict=True):
            if self._kept < MOST:
                self._begun.setdefault(tag.group(), []).append(text[tag.end() : end])
                self._kept += _EACH + end - tag.end()
        last = tags[-1].group()
        untagged = (text[: edges[0]],) if edges[0] else ()
        pieces = self._begun.pop(last, [])
        self._kept -= sum(_EACH + len(piece) for piece in pieces)
        return (*untagged, last + "".join(pieces) + text[tags[-1].end() :])

    def close(self) -> tuple[str, ...]:
        """Give what was begun and never ended."""
        rest = tuple(tag + "".join(pieces) for tag, pieces in self._begun.items())
        self._begun, self._kept = {}, 0
        return rest
