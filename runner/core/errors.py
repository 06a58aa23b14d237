"""Every error that a user can cause, and its exit code.

    DlscaleError          one sentence: what, where, and the next step
    ├── RequestError      2  the request can't be met; nothing was started
    │   └── NoBaseError       no base image is available, so no container can run
    ├── RunFailedError    3  a run started and failed
    └── SlowerError       4  runs are slower than allowed

An unforeseen system error about a user's file becomes such a sentence as well (`file_error_sentence`). Any other exception that escapes is a
bug: it keeps its traceback and exits with 1.
"""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

# A path that is wrong or inaccessible: the user's error, not a bug.
_PATH_ERRNOS: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
    | {errno.ELOOP, errno.ENAMETOOLONG}
)
# A disk that is read-only, full or failing, or a file too large for it. The error names no path if the file was already open.
_DISK_ERRNOS: Final = frozenset({errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_MAX_CHARS: Final = 60
MAX_LISTED: Final = 8
"""At most so many known names are listed for an unknown one, unless a caller allows more."""


class DlscaleError(Exception):
    """An error shown to the user as one sentence, without a traceback."""

    exit_code: ClassVar[int] = 1


class RequestError(DlscaleError):
    """The request can't be met; nothing was started."""

    exit_code = 2


class NoBaseError(RequestError):
    """Neither a registry nor a Debian mirror provides the base image, so no image can be built here."""


class RunFailedError(DlscaleError):
    """A run started, and a rank failed, hung or timed out, or the run could not be recorded."""

    exit_code = 3


class SlowerError(DlscaleError):
    """Runs are slower than others of the same trials by more than the allowed margin."""

    exit_code = 4


def nearest(name: str, known: Iterable[str]) -> str:
    """List the known values for an error sentence, those most similar to `name` first."""
    names = sorted(known)
    return ", ".join(dict.fromkeys([*_similar(name, names), *names]))


def _similar(name: str, names: Sequence[str]) -> list[str]:
    longer = [one for one in names if name and one.startswith(name)]
    return [*longer, *(one for one in difflib.get_close_matches(name, names, n=3, cutoff=0.5) if one not in longer)]


def unknown(variable: str, name: str, known: Iterable[str], *, of: str = "", most: int = MAX_LISTED) -> str:
    """Return the sentence about an unknown name: the most similar one, and at most `most` known names.

    ``unknown("MODEL", "resnet51", ["vgg16", "resnet50"])`` is ``"unknown MODEL 'resnet51'; did you mean resnet50? Known: resnet50, vgg16"``.
    """
    names = sorted(known)
    close = _similar(name, names)
    owner = f" of {of}" if of else ""
    suggestion = f"did you mean {close[0]}?" if close else ""
    if len(names) == len(close) == 1:
        return f"unknown {variable} {name!r}{owner}; {suggestion}"
    listed = nearest(name, names).split(", ")
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    known_ones = f"{', '.join(listed[:most])}{more}"
    return f"unknown {variable} {name!r}{owner}; {f'{suggestion} Known' if suggestion else 'known'}: {known_ones}"


def file_error_sentence(error: OSError | UnicodeError) -> str | None:
    """Return a sentence for an error that a user's path, or the file there, caused; None for any other error, which is a bug."""
    if isinstance(error, OSError):
        name = None if error.filename is None else readable(str(error.filename))
        if error.errno in _DISK_ERRNOS or (name and error.errno in _PATH_ERRNOS):
            name = name or "standard output or a file"
            return f"{name} can't be read or written ({error.strerror}); fix it or choose another path"
    if isinstance(error, UnicodeEncodeError) and not is_utf8(error.object):
        around = error.object[max(0, error.start - _MAX_CHARS) : error.end + _MAX_CHARS]
        return f"{readable(around)} is not UTF-8; rename that file or folder"
    return None


def is_utf8(text: str) -> bool:
    """Whether a text from the system, such as a file name, was UTF-8: Python keeps other bytes as lone surrogates."""
    return text.encode("utf-8", "ignore").decode() == text


def readable(text: str) -> str:
    r"""Escape bytes that are not UTF-8 in a text from the system, so that it can be printed: 0xff becomes `\udcff`."""
    return text.encode("utf-8", "backslashreplace").decode()


# Terminal control sequences (ECMA-48: ESC [ ... and OSC strings, possibly unterminated), then all other control characters.
_CONTROL_SEQUENCES: Final = re.compile(
    r"\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def printable(text: str) -> str:
    """Strip terminal control sequences from the output of another program; tabs and line feeds stay."""
    return _CONTROL_SEQUENCES.sub("", text)


def shorten(text: str) -> str:
    """Shorten a value to 60 characters, so that its sentence fits on one line of the screen."""
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 3]}..."


def one_line(message: object) -> str:
    """Join the lines of a library's message for use in a sentence."""
    return " ".join(str(message).split())
