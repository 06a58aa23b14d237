"""Waits for what other processes do, so that no test sleeps for a time that it guessed."""

import time


def wait_until(condition, seconds):
    """Poll a condition until it holds or the time is up; its last value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return value
