"""Waits for other processes, so that no test sleeps for a guessed time."""

import time
from pathlib import Path


def wait_until(condition, seconds):
    """Poll a condition until it holds or the time is up. Returns its last value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return value


def is_running(pid):
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
