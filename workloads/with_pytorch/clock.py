"""The clock of a measured window. On a GPU it is the device's own, read through recorded events, so that timing never drains the device.

start()              the first edge: wait for the device, return time.monotonic()
mark()               a timestamp of the device between two steps, recorded without waiting
between(a, b)        seconds between two marks that the device has passed
edge(marks, losses)  the last edge: a function that waits until the device gets here, and returns (time.monotonic() of that, losses as
                     numbers, seconds between marks); call it in the order of the edges
lag                  windows that may be enqueued before that function is called
"""

import itertools
import time

import torch


class HostClock:
    """The clock on a CPU, where a step is done when it returns."""

    lag = 0

    def start(self):
        return time.monotonic()

    def mark(self):
        return time.perf_counter()

    def between(self, before, after):
        return after - before

    def edge(self, marks, losses):
        ended = time.monotonic()
        read = ended, torch.stack(losses).tolist(), [self.between(*pair) for pair in itertools.pairwise(marks)]
        return lambda: read


class CudaClock:
    """CUDA events. While the loop waits for one window, the next is already enqueued."""

    lag = 1

    def __init__(self):
        self.copy_stream = torch.cuda.Stream()

    def start(self):
        self.previous = self.mark()
        self.previous.synchronize()
        self.previous_at = time.monotonic()
        return self.previous_at

    def mark(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, before, after):
        return before.elapsed_time(after) / 1e3

    def edge(self, marks, losses):
        stacked = torch.stack(losses)
        end = self.mark()
        return lambda: self.read(end, marks, stacked)

    def read(self, end, marks, losses):
        end.synchronize()
        self.previous_at += self.between(self.previous, end)
        self.previous = end
        with torch.cuda.stream(self.copy_stream):  # on the current stream, a copy would wait for everything enqueued
            values = losses.tolist()
        return self.previous_at, values, [self.between(*pair) for pair in itertools.pairwise(marks)]
