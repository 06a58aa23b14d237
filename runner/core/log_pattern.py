"""`LogPattern`: how to read a log that is in no dialect, by regular expressions whose named groups say what each value is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import AfterValidator, Field, model_validator

from runner.core.errors import nearest
from runner.core.frozen import Frozen

TIMES: Final = ("ms", "s", "mean_ms", "mean_s", "total_s", "steps_per_s", "rate", "device_rate")
"""Groups that hold a time or a rate."""
GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ms": "milliseconds of one step",
        "s": "seconds of one step",
        "mean_ms": "milliseconds of a step, mean over the steps since the previous line",
        "mean_s": "the same in seconds",
        "steps_per_s": "steps a second, as in progress bars",
        "rate": "samples a second of all devices, over the steps since the previous line",
        "device_rate": "the same of one device",
        "total_s": "seconds of the whole training, together with `rate`",
        "samples": "samples of one step, of all devices",
        "batch": "samples of one step, of one device",
        "devices": "devices of the whole job",
        "loss": "loss",
        "step": "number of the step; the difference is the number of steps since the previous line",
        "epoch": "number of the epoch; step numbers restart in each",
        "rank": "rank that wrote the line; the first one with a time stands for the job",
    }
)


def _valid_regex(text: str) -> str:
    try:
        names = re.compile(text).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"it is not a valid regular expression: {error}") from error
    for name in names:
        if name not in GROUPS:
            raise ValueError(f"group {name!r} is unknown; known: {nearest(name, GROUPS)}")
    if not names:
        raise ValueError(r"it has no named group; name one, for example time (?P<ms>[\d.]+)ms (ms, s, rate, loss, ...)")
    return text


Regex = Annotated[str, Field(max_length=1000), AfterValidator(_valid_regex)]


class LogPattern(Frozen):
    """Regular expressions, each applied to every line (all matches in a line belong together), and the plural noun for samples."""

    lines: Annotated[tuple[Regex, ...], Field(min_length=1, max_length=20)]
    unit: Annotated[str, Field(pattern=r"^[a-z]{1,20}$")] = "samples"

    @model_validator(mode="after")
    def _has_a_time(self) -> LogPattern:
        names = {name for line in self.lines for name in re.compile(line).groupindex}
        if not names & set(TIMES):
            raise ValueError(f"no group is a time or a rate; name one of {', '.join(TIMES)}")
        return self
