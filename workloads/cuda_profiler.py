"""cudaProfilerStart and cudaProfilerStop for frameworks that do not offer them, so that nsys, ncu or nvprof see just what is profiled.

Standard library and syntax of Python 3.6 only. `Bracket` and `Clock` are what `profiling.py` calls a profiler.
"""

import ctypes


class Clock:
    """Nothing but what the loop itself reads, at `source`: by default the clock that times steps and regions anyway."""

    whole = False

    def __init__(self, source="clock"):
        self.source = source

    def start(self):
        """Begin nothing."""

    def stop(self):
        """End nothing."""

    def columns(self):
        """Tell nothing."""


class Bracket:
    """The calls around another profiler, or around nothing else: then what looks is outside of this process.

    `library` is the name of the CUDA runtime that the framework has loaded, such as ``libcudart.so.12``: the loader then gives that one.
    Without a tool outside both calls do nothing, and what they return is of no use (CUDA Runtime API, Profiler Control).
    """

    def __init__(self, library, inner=None):
        self.cuda, self.inner = ctypes.CDLL(library), inner or Clock("cuda profiler api")
        self.source, self.whole = self.inner.source, self.inner.whole

    def start(self):
        self.inner.start()
        self.cuda.cudaProfilerStart()

    def stop(self):
        self.cuda.cudaProfilerStop()
        self.inner.stop()

    def columns(self):
        return self.inner.columns()
