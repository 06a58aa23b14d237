"""A disk that can be filled: a small file system in memory, which only root can mount."""

import contextlib
import os
import subprocess

import pytest


@contextlib.contextmanager
def mounted(folder, size):
    """Mount a file system of `size` bytes at a folder; without the permission, the test is skipped with the reason."""
    how = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(how, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting a small file system needs root: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        # A reader started by a test may still have one of its files open.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder, *, but=0):
    """Fill its disk except for `but` bytes; to the last byte even while others write to it."""
    with (folder / "filler").open("ab", buffering=0) as filler:
        left = os.statvfs(folder)
        filler.write(b"x" * max(0, left.f_bavail * left.f_frsize - but))
        while not but:
            try:
                filler.write(b"x" * left.f_frsize)
            except OSError:
                return
