"""Every error a user can cause, and the exit code that each ends with.

    DlscaleError          one sentence: what, where, and the next step
    ├── RequestError      2  the request can't be met; nothing was started
    │   └── NoBaseError       no base image can be had here, so no container either
    ├── RunFailedError    3  a run started and did not end well
    ├── InvalidRunError   4  a run ended, and its figures must not be used
    └── SlowerError       4  runs are slower than they may be

Anything else that escapes is a bug: it keeps its traceback and exits with 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class DlscaleError(Exception):
    """An error shown to the user as one sentence, without a traceback."""

    exit_code: ClassVar[int] = 1


class RequestError(DlscaleError):
    """The request can't be met; nothing was started."""

    exit_code = 2


class NoBaseError(RequestError):
    """Neither a registry nor a Debian mirror gives the base, so that no image can be built here."""


class RunFailedError(DlscaleError):
    """A run started and a rank failed, hung, ran out of time or could not be recorded."""

    exit_code = 3


class InvalidRunError(DlscaleError):
    """A run ended, but a check says that its figures must not be used."""

    exit_code = 4


class SlowerError(DlscaleError):
    """Runs are slower than others of the same trials, by more than was allowed."""

    exit_code = 4


def nearest(name: str, known: Iterable[str]) -> str:
    """Name the known values for an error sentence, those most like `name` first.

    Example: ``nearest("resnet51", ["vgg16", "resnet50"])`` gives ``"resnet50, vgg16"``.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return ", ".join(close + [n for n in names if n not in close])
