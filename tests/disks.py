"""A disk that can be filled: a small file system in memory, which takes root to mount."""

import contextlib
import os
import subprocess

import pytest


@contextlib.contextmanager
def mounted(folder, size):
    """Mount a file system of so many bytes at a folder; without the right to, the test is skipped with the reason."""
    how = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(how, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting a small file system needs root: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        # A reader that a test started may still have a file of it open.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder, *, but=0):
    """Take all of its disk but so many bytes, also while others write to it."""
    with (folder / "filler").open("ab", buffering=0) as filler:
        left = os.statvfs(folder)
        filler.write(b"x" * max(0, left.f_bavail * left.f_frsize - but))
        while not but:
            try:
                filler.write(b"x" * left.f_frsize)
            except OSError:
                return
