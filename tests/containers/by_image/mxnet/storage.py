"""Inside the image: what MXNet's storage is said to hold is what was asked of it, counted in bytes by hand.

Prevents memory of MXNet's own profiler that counts operators, forgets what was handed back, or keeps a peak of the phase before.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
from mxnet_shim import mx
from profile_mxnet import Storage

MEGABYTE = 1_000_000  # of 250,000 numbers in fp32


def numbers(megabytes):
    found = mx.nd.zeros((megabytes, 250_000))
    found.wait_to_read()
    return found


def held(storage):
    mx.nd.waitall()
    return storage.held()[0]


def peak_until(storage, expected):
    """The peak until so much is held: MXNet hands memory back in a thread of its own, which nothing waits for."""
    peak, deadline = 0, time.monotonic() + 30
    while True:
        now, high = held(storage)
        peak = max(peak, high)
        if now == expected or time.monotonic() > deadline:
            return peak
        time.sleep(0.02)


storage = Storage(mx, "cpu")
kept = numbers(8)
assert held(storage) == (8 * MEGABYTE, 8 * MEGABYTE)
passing = numbers(20)
del passing
assert peak_until(storage, 8 * MEGABYTE) == 28 * MEGABYTE
# The peak begins anew at what is held.
assert held(storage) == (8 * MEGABYTE, 8 * MEGABYTE)
more = numbers(4)
assert held(storage) == (12 * MEGABYTE, 12 * MEGABYTE)
