"""Prevents: a traceback for a file that is closed, full or oddly named, and a bug that looks like a user's mistake."""

import errno

import pytest

from runner.core import errors


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/a/[b]"), "/a/[b] can't be read or written (Permission "),
        (OSError(errno.EROFS, "Read-only file system", "/mnt/x"), "/mnt/x can't be read or written (Read-only"),
        (OSError(errno.ENOSPC, "No space left on device"), "standard output or a file can't be read or written (No "),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", b"/etc/passwd/x"), "can't be read or written (Not a dir"),
        (UnicodeEncodeError("utf-8", "/data/caf\udce9/x", 9, 10, "surrogates not allowed"), "/data/caf\\udce9/x"),
    ],
)
def test_an_error_of_the_system_about_a_path_is_a_sentence(error, sentence):
    assert sentence in (errors.about_a_file(error) or "")


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EPERM, "Operation not permitted"),  # of a signal
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
        OSError("a library's own"),
        UnicodeEncodeError("ascii", "é", 0, 1, "ordinal not in range(128)"),
    ],
)
def test_any_other_error_stays_a_bug(error):
    assert errors.about_a_file(error) is None
