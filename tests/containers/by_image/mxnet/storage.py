"""Inside the image: what MXNet's storage is said to hold is what was asked of it, counted in bytes by hand.

Prevents memory of MXNet's own profiler that counts operators, forgets what was handed back, or keeps a peak of the phase before.
"""

import time

from with_mxnet.profiler import Storage
from with_mxnet.shim import mx

MEGABYTE = 1_000_000  # of 250,000 numbers in fp32


def numbers(megabytes):
    found = mx.nd.zeros((megabytes, 250_000))
    found.wait_to_read()
    return found


def held(storage):
    mx.nd.waitall()
    return storage.held()[0]


def comes_to(storage, now, peak):
    """Whether so much is held in the end and was at most: MXNet hands memory back, and tells of it, in threads that nothing waits for."""
    high, deadline = 0, time.monotonic() + 30
    while time.monotonic() < deadline:
        found, highest = held(storage)
        high = max(high, highest)
        if (found, high) == (now, peak):
            return True
        time.sleep(0.02)
    return False


def begins_anew(storage, size):
    """Whether the peak is what is held, once nothing is left to be told."""
    deadline = time.monotonic() + 30
    while held(storage) != (size, size):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


storage = Storage(mx, "cpu")
kept = numbers(8)
assert comes_to(storage, 8 * MEGABYTE, 8 * MEGABYTE)
passing = numbers(20)
del passing
assert comes_to(storage, 8 * MEGABYTE, 28 * MEGABYTE)
assert begins_anew(storage, 8 * MEGABYTE)
more = numbers(4)
assert comes_to(storage, 12 * MEGABYTE, 12 * MEGABYTE)
