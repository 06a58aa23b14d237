"""Every error a user can cause, and the exit code that each ends with.

    DlscaleError          one sentence: what, where, and the next step
    ├── RequestError      2  the request can't be met; nothing was started
    │   └── NoBaseError       no base image can be had here, so no container either
    ├── RunFailedError    3  a run started and did not end well
    └── SlowerError       4  runs are slower than they may be

What the system says of a file of the user's and nobody foresaw becomes such a sentence as well (`about_a_file`). Anything else that
escapes is a bug: it keeps its traceback and exits with 1.
"""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

# What the system says of a path that is wrong, closed or full; nobody's mistake in the code.
_OF_A_PATH: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
    | {errno.ELOOP, errno.ENAMETOOLONG}
)
# The same of a device, which is said without a path when a file was open already.
_OF_A_DISK: Final = frozenset({errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_AROUND: Final = 60
_KNOWN: Final = 8
"""Names that a sentence about an unknown one lists."""


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


class SlowerError(DlscaleError):
    """Runs are slower than others of the same trials, by more than was allowed."""

    exit_code = 4


def nearest(name: str, known: Iterable[str]) -> str:
    """Name the known values for an error sentence, those most like `name` first."""
    names = sorted(known)
    return ", ".join(dict.fromkeys([*_alike(name, names), *names]))


def _alike(name: str, names: Sequence[str]) -> list[str]:
    longer = [one for one in names if name and one.startswith(name)]
    return [*longer, *(one for one in difflib.get_close_matches(name, names, n=3, cutoff=0.5) if one not in longer)]


def unknown(variable: str, name: str, known: Iterable[str], *, of: str = "") -> str:
    """The sentence about a name that nothing has: what it is most like, and which there are, at most eight.

    ``unknown("MODEL", "resnet51", ["vgg16", "resnet50"])`` is ``"unknown MODEL 'resnet51'; did you mean resnet50? Known: resnet50, vgg16"``.
    """
    names = sorted(known)
    close = _alike(name, names)
    whose = f" of {of}" if of else ""
    meant = f"did you mean {close[0]}?" if close else ""
    if len(names) == len(close) == 1:
        return f"unknown {variable} {name!r}{whose}; {meant}"
    listed = nearest(name, names).split(", ")
    more = f" and {len(listed) - _KNOWN} more" if len(listed) > _KNOWN else ""
    known_ones = f"{', '.join(listed[:_KNOWN])}{more}"
    return f"unknown {variable} {name!r}{whose}; {f'{meant} Known' if meant else 'known'}: {known_ones}"


def about_a_file(error: OSError | UnicodeError) -> str | None:
    """A sentence for an error that a path of the user's or what is there caused; None for any other error, which is a bug."""
    if isinstance(error, OSError):
        name = None if error.filename is None else readable(str(error.filename))
        if error.errno in _OF_A_DISK or (name and error.errno in _OF_A_PATH):
            name = name or "standard output or a file"
            return f"{name} can't be read or written ({error.strerror}); mend that, or give another place"
    if isinstance(error, UnicodeEncodeError) and not is_utf8(error.object):
        around = error.object[max(0, error.start - _AROUND) : error.end + _AROUND]
        return f"{readable(around)} is not UTF-8; rename the file or folder that is called so"
    return None


def is_utf8(text: str) -> bool:
    """Whether a text from the system, such as the name of a file, was UTF-8: Python keeps other bytes as lone surrogates."""
    return text.encode("utf-8", "ignore").decode() == text


def readable(text: str) -> str:
    r"""A text from the system for a sentence: the byte 0xff, which is no UTF-8, becomes `\udcff`."""
    return text.encode("utf-8", "backslashreplace").decode()


# Control sequences of terminals (ECMA-48: ESC [ ... and OSC strings, which may lack their end), then whatever else is no letter.
_CODES: Final = re.compile(
    r"\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def printable(text: str) -> str:
    """A text that somebody else's program wrote, without what a terminal would do at its word; tabs and ends of lines stay."""
    return _CODES.sub("", text)


def shorten(text: str) -> str:
    """A value for a sentence that stays on one line of the screen."""
    return text if len(text) <= _AROUND else f"{text[: _AROUND - 3]}..."


def one_line(said: object) -> str:
    """What a library says, which may be of several lines, for a sentence."""
    return " ".join(str(said).split())
