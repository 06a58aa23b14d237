"""Logs of programs that are not ours → the suite's own events. Pure.

To add a dialect: a file with a `LogReader`, its name in `base.DialectName`, its line in `DIALECTS`, and a real log with its source under
`tests/golden/dialects/`. No line of one dialect may be read by another, so that the order of the table decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from runner.core.request import DialectName
from runner.run.dialects.base import DialectError, Facts, Reader, no_line
from runner.run.dialects.caffe import CaffeReader
from runner.run.dialects.detection import AutoReader
from runner.run.dialects.horovod import HorovodReader
from runner.run.dialects.mxnet import MxnetReader
from runner.run.dialects.nccl_tests import NcclTestsReader
from runner.run.dialects.tf_cnn_benchmarks import TfCnnBenchmarksReader

__all__ = ["DIALECTS", "DialectError", "DialectName", "Facts", "Reader", "auto", "detect"]

DIALECTS: Final[Mapping[DialectName, Callable[[Facts], Reader]]] = MappingProxyType(
    {
        "caffe": CaffeReader,
        "mxnet": MxnetReader,
        "tf_cnn_benchmarks": TfCnnBenchmarksReader,
        "horovod": HorovodReader,
        "nccl-tests": NcclTestsReader,
    }
)


def auto(facts: Facts) -> AutoReader:
    """A reader that finds the dialect by itself while the log is written."""
    return AutoReader(facts, DIALECTS)


def detect(lines: Iterable[str], facts: Facts) -> DialectName:
    """Name the dialect of a log.

    Raises:
        DialectError: no line is in any; the sentence has the first that was tried.
    """
    reader = auto(facts)
    first_line = ""
    for line in lines:
        first_line = first_line or line.strip()
        reader.feed(line, received=0.0)
        if reader.name is not None:
            return reader.name
    raise DialectError(no_line(first_line, *DIALECTS))
