"""Inside the image: MXNet's storage profile equals the requested memory, counted in bytes by hand.

Prevents a memory profile that counts operators, misses released memory, or keeps the peak of an earlier phase.
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


def reaches(storage, now, peak):
    """Whether held and peak memory reach these values: MXNet releases memory, and reports it, in threads that nothing waits for."""
    high, deadline = 0, time.monotonic() + 30
    while time.monotonic() < deadline:
        found, highest = held(storage)
        high = max(high, highest)
        if (found, high) == (now, peak):
            return True
        time.sleep(0.02)
    return False


def peak_is_reset(storage, size):
    """Whether the peak falls to the memory held, once all releases are reported."""
    deadline = time.monotonic() + 30
    while held(storage) != (size, size):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


storage = Storage(mx, "cpu")
kept = numbers(8)
assert reaches(storage, 8 * MEGABYTE, 8 * MEGABYTE)
passing = numbers(20)
del passing
assert reaches(storage, 8 * MEGABYTE, 28 * MEGABYTE)
assert peak_is_reset(storage, 8 * MEGABYTE)
more = numbers(4)
assert reaches(storage, 12 * MEGABYTE, 12 * MEGABYTE)
