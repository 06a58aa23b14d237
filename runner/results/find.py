"""Runs that are on file, each once: those of a folder, of a run directory, of folders of any depth, or of a glob. `results` reads each record."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.errors import RequestError
from runner.core.record import RunRecord
from runner.results.store import RECORD, folders_under, read_record, run_directories

Run = tuple[Path, RunRecord]


@dataclass(frozen=True, kw_only=True)
class FoundRuns:
    """The runs of some run directories, and a sentence about each record that does not count: it can't be read, or is a copy."""

    runs: tuple[Run, ...]
    passed_over: tuple[str, ...]


def read_runs(directories: Iterable[Path]) -> FoundRuns:
    """Read the records of run directories, in their order.

    A run of which there are several records, as copies and links make them, counts once: it was measured once.
    """
    passed_over: list[str] = []
    read = list(read_each(directories, passed_over))
    kept, copies = each_once([(directory, record.run_id) for directory, record in read])
    runs = tuple(run for run in read if run[0] in kept)
    return FoundRuns(runs=runs, passed_over=(*passed_over, *copies))


def read_each(directories: Iterable[Path], passed_over: list[str]) -> Iterator[Run]:
    """Read the records of run directories one by one; a sentence about each that can't be read joins `passed_over`."""
    for directory in dict.fromkeys(directories):
        try:
            yield directory, read_record(directory)
        except RequestError as error:
            passed_over.append(str(error))


def each_once(named: Sequence[tuple[Path, str]]) -> tuple[frozenset[Path], tuple[str, ...]]:
    """Of directories and the ids of the runs that they hold, the directory that counts for each run, and a sentence about each other one."""
    kept: dict[str, Path] = {}
    for directory, name in named:
        kept[name] = min(kept.get(name, directory), directory, key=lambda one: _likeness(one, name))
    return frozenset(kept.values()), tuple(
        f"{directory}: left out, it holds the same run as {kept[name]}, which counts once"
        for directory, name in named
        if directory != kept[name]
    )


def _likeness(directory: Path, name: str) -> tuple[bool, bool, int, Path]:
    """How far a directory is from one that `bench` left: it has the run's name and is no link; a backup lies deeper."""
    return directory.name != name, directory.is_symlink(), len(directory.parts), directory


def records_under(folder: Path) -> Iterator[Run]:
    """Every readable record in the run directories of a folder, oldest first, each run once."""
    return iter(read_runs(run_directories(folder)).runs)


def runs_at(*places: str) -> FoundRuns:
    """Read every record of some places, in the order of their paths; directories of runs that never ended are passed over.

    Places are run directories, folders with some anywhere below them, or globs of such; a RequestError where no run ended there.
    """
    return read_runs(directories_at(*places))


def directories_at(*places: str) -> list[Path]:
    """The run directories of some places, as `runs_at` takes them, each once and in the order of their paths; a RequestError where there are none."""
    return sorted({directory for place in places for directory in _directories(place)})


def _directories(place: str) -> Iterator[Path]:
    """The run directories of a place."""
    named = os.path.expanduser(place)  # noqa: PTH111 - leaves what is no user's as it is
    # What exists is itself, whatever characters are in its name.
    found = [named] if os.path.exists(named) else glob.glob(named)  # noqa: PTH110, PTH207 - no error for what is no path
    if not found:
        raise RequestError(
            f"{place} does not exist; name a run directory or a folder of them, for example results/MACHINE"
        )
    directories = [directory for each in found for directory in below(Path(each))]
    if not directories:
        raise RequestError(
            f"{place} holds no {RECORD}, so no run ended there; name a run directory or a folder of them, for example results/MACHINE"
        )
    yield from directories


def below(place: Path) -> list[Path]:
    """The run directories at or below a directory, in the order of the folders that hold them."""
    if (place / RECORD).is_file():
        return [place]
    return [directory for folder in folders_under(place) for directory in run_directories(folder)]
