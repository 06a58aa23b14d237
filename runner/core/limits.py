"""How large a number may be that is asked for: what programs, kernel and memory can take, known before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from runner.core.errors import RequestError, shorten

# Programs keep numbers in 32 bits with a sign, and add ranks to some of them, to seeds for one.
MOST_OF_ALL: Final = 10**9
# Of these, far less is too much: a batch or an image for a memory, threads and processes for a kernel, runs for a life.
MOST: Final[Mapping[str, int]] = {
    "BATCH": 10**6,
    "BATCHES": 10**6,
    "IMAGES": 10**7,
    "IMAGE_SIZE": 65_535,  # of a JPEG, too (ITU T.81, B.2.2)
    "SIDE": 65_535,
    "THREADS": 4096,
    "LOADER_WORKERS": 4096,
    "CONCURRENT": 4096,
    "REPEAT": 1000,
    "TELEMETRY_HZ": 1000,
}
MOST_SLOTS: Final = 4096
"""Devices, or cores, of a host."""


def bounded(name: str, digits: str, *, most: int | None = None) -> int:
    """Read decimal digits as a number, however many they are.

    Args:
        name: what is asked for; a variable has its own limit.
        digits: ASCII digits, one of them no zero.
        most: the limit of what is no variable.

    Raises:
        RequestError: the number is larger than that.
    """
    limit = most or MOST.get(name, MOST_OF_ALL)
    significant = digits.lstrip("0")
    if len(significant) > len(str(limit)) or int(significant) > limit:
        raise RequestError(f"{name}={shorten(digits)} is more than can be taken; {limit} is the most")
    return int(significant)
