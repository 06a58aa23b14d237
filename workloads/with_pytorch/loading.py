"""Batches of torch's loader without an end, for programs that read folders.

    Endless(loader)     one epoch after the other, each in its own order
    leave_with(close)   from here on, `close` is called before the interpreter lets go of a loader's processes

A loader whose processes live on, and that pins memory, waits five seconds for each of them when the interpreter ends, as long as
somebody still holds it: none of them has been told to leave. Who lets go of it before has nothing to wait for.
"""

import atexit
import itertools


class Endless:
    """Batches of `loader`, whose sampler is told which epoch it orders."""

    def __init__(self, loader):
        self.loader = loader
        self.batches = self.epochs()

    def __next__(self):
        return next(self.batches)

    def epochs(self):
        for epoch in itertools.count():
            self.loader.sampler.set_epoch(epoch)
            batches = iter(self.loader)
            if not epoch:
                leave_with(self.close)
            yield from batches

    def close(self):
        """End the loader's processes; there are no more batches."""
        self.batches.close()
        self.loader = None


def leave_with(close):
    """Call `close` when the interpreter ends, before what was registered for that so far: once a loader's processes are there."""
    atexit.register(close)
