"""Files of `dlscale overhead` → their reports, from the records that are beside them."""

from __future__ import annotations

from pathlib import Path

from runner.experiments.overhead.figures import Told, overhead_report
from runner.experiments.overhead.raw import Overhead
from runner.experiments.overhead.report import OverheadReport
from runner.results.store import read_events, read_record


def from_file(raw: Overhead, folder: Path) -> OverheadReport:
    """Make the figures of an overhead whose runs are in a folder.

    Raises:
        RequestError: a run of it is gone or damaged.
        RunFailedError: a run has no throughput.
    """
    names = {command.run_id for own in raw.rounds for command in own if command.run_id}
    runs = {name: Told(folder / name, read_record(folder / name), read_events(folder / name)) for name in names}
    return overhead_report(raw, runs)
