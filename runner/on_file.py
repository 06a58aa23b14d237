"""Runs that are on file: those of a run directory, of a folder of any depth, or of a glob. `results` reads each record."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from pathlib import Path

from runner.errors import RequestError
from runner.results import RECORD, RunRecord, folders_under, read_record, run_directories

Run = tuple[Path, RunRecord]


@dataclass(frozen=True, kw_only=True)
class OnFile:
    """What a place holds: run directories with their records, and for each record that can't be read a sentence about it."""

    runs: tuple[Run, ...]
    unreadable: tuple[str, ...]


def runs_at(place: str) -> OnFile:
    """Read every record of a place, in the order of their paths; directories of runs that never ended are passed over.

    Args:
        place: a run directory, a folder with some anywhere below it, or a glob of such.

    Raises:
        RequestError: nothing is there, or no run that ended.
    """
    found = sorted(Path(name) for name in glob.glob(str(Path(place).expanduser())))  # noqa: PTH207 - absolute patterns, too
    if not found:
        raise RequestError(
            f"{place} does not exist; name a run directory or a folder of them, for example results/MACHINE"
        )
    directories = sorted({directory for each in found for directory in _directories(each)})
    if not directories:
        raise RequestError(
            f"{place} holds no {RECORD}, so no run ended there; name a run directory or a folder of them, for example results/MACHINE"
        )
    runs: list[Run] = []
    unreadable: list[str] = []
    for directory in directories:
        try:
            runs.append((directory, read_record(directory)))
        except RequestError as error:
            unreadable.append(str(error))
    return OnFile(runs=tuple(runs), unreadable=tuple(unreadable))


def _directories(place: Path) -> list[Path]:
    if (place / RECORD).is_file():
        return [place]
    return [directory for folder in folders_under(place) for directory in run_directories(folder)]
