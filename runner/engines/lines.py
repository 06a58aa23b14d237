"""What a container writes, in lines: of bounded length, in time that grows with the bytes alone. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

from runner.engines.base import Line

AHEAD: Final = 64
"""Lines, or reads of a stream, that may wait to be taken in: a program that writes faster waits, and nobody's memory fills."""
LONGEST: Final = 2**20
"""Bytes of a line that are kept."""
CUT: Final = f" [cut here: the line is longer than {LONGEST >> 20} MiB]"
# A carriage return ends a line too: a progress bar writes nothing else for hours.
_END: Final = re.compile(rb"\r\n|\n|\r")


class Splitter:
    """Turns the bytes of one stream into lines, whatever pieces they come in."""

    def __init__(self, stream: Literal["stdout", "stderr"]) -> None:
        self._stream: Literal["stdout", "stderr"] = stream
        self._begun: list[bytes] = []
        self._size = 0
        self._returned = False

    def feed(self, data: bytes) -> Iterator[Line]:
        """Take in some bytes: the lines that they end, and where they end none a `Line` that is not whole, as a sign of life."""
        if self._returned and data.startswith(b"\n"):
            data = data[1:]
        self._returned = data.endswith(b"\r")
        *ended, rest = _END.split(data)
        for text in ended:
            self._keep(text)
            yield self._whole()
        self._keep(rest)
        if not ended:
            yield Line(stream=self._stream, text="", whole=False)

    def close(self) -> Iterator[Line]:
        """Give what was begun and never ended."""
        if self._size:
            yield self._whole()

    def _keep(self, text: bytes) -> None:
        if text and self._size <= LONGEST:
            self._begun.append(text[: LONGEST + 1 - self._size])
        self._size += len(text)

    def _whole(self) -> Line:
        text = b"".join(self._begun)[:LONGEST].decode(errors="replace")
        if self._size > LONGEST:
            text += CUT
        self._begun, self._size = [], 0
        return Line(stream=self._stream, text=text)
