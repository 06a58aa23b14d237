"""Reads and writes run directories and `record.json`; no other room does.

A run directory holds `plan.json` (trial and containers), `events.jsonl`, `logs/`, tables and `record.json`, which is written last and
atomically: its presence means that the run ended. An unnamed file, which vanishes with the runner, reserves space for the record on a disk that fills up.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from pydantic import ValidationError

from runner.core.errors import RequestError, RunFailedError
from runner.core.events import Event
from runner.core.events.parse import Rows, TableName, parse_events
from runner.core.frozen import is_plain_except_floats, load_fields, reading, refuse_newer
from runner.core.record import EVENTS, SCHEMA_VERSION, RunPlan, RunRecord
from runner.core.request import Device
from runner.core.telemetry import Samples
from runner.core.trial import AnyTrial, techniques_of_older_record
from runner.core.units import counted
from runner.results import tables
from runner.results.disk import AppendOnly, draft, reserve, writing

RESERVE_BYTES: Final = 4 * 2**20
# Exceeds the unused end of any file's last block, so that it can be allocated only if the disk has space.
BLOCK_BYTES: Final = 2**16
RECORD: Final = "record.json"
PLAN: Final = "plan.json"


class RunWriter:
    """Writes one run directory; every failure to write is a RunFailedError that names the directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.failure: RunFailedError | None = None
        self._reserved: IO[bytes] | None = None
        self._open: dict[str, AppendOnly] = {}
        self._lock = threading.Lock()  # samplers' output is read in separate threads

    def create(self, plan: RunPlan) -> None:
        """Create the directory, reserve space for the record and write the plan; if that fails, remove the directory."""
        with writing(self.directory), ExitStack() as undo:
            self.directory.mkdir(parents=True)
            undo.callback(shutil.rmtree, self.directory, ignore_errors=True)
            (self.directory / "logs").mkdir()
            self._reserved = reserve(self.directory, RESERVE_BYTES)
            with draft(self.directory / PLAN) as temporary:
                temporary.write_text(plan.model_dump_json(indent=1) + "\n", encoding="utf-8")
            undo.pop_all()

    def check(self) -> None:
        """Check that the disk has space, since a silent job never writes. Raises RunFailedError if it is full."""
        if self._reserved:
            with self._writing():
                os.posix_fallocate(self._reserved.fileno(), RESERVE_BYTES, BLOCK_BYTES)
                self._reserved.truncate(RESERVE_BYTES)

    def log(self, container: str, text: str) -> None:
        """Append a line of ordinary output to the container's log."""
        self._append(f"logs/{container}.log", text)

    def event(self, event: Event) -> None:
        """Append an event to `events.jsonl`."""
        self._append(EVENTS, event.model_dump_json())

    def rows(self, rows: Rows) -> None:
        """Append rows of a table; `tables` converts the file to Parquet after the run."""
        self._append(tables.lines_file(rows.table), rows.model_dump_json())

    def _append(self, name: str, text: str) -> None:
        with self._writing():
            if name not in self._open:
                self._open[name] = AppendOnly(self.directory / name)
            self._open[name].add(text)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Allow a write unless an earlier one failed: a record with gaps would look complete."""
        with self._lock:
            if self.failure:
                raise self.failure
            try:
                with writing(self.directory):
                    yield
            except RunFailedError as error:
                self.failure = error
                raise

    def close_tables(self, plan: RunPlan) -> None:
        """Convert the rows of tables to Parquet. Ignores all errors: the lines stay readable, and the record has yet to be written."""
        self.close()
        with suppress(Exception):
            tables.write_parquet(self.directory, nodes=plan.nodes)

    def table(self, table: TableName, *, report: Callable[[str], None]) -> Samples | None:
        """Read a table of this run for grading. Report an unreadable table and return None: the run still gets its record."""
        try:
            return read_table(self.directory, table)
        except RequestError as error:
            report(f"left out of the figures: {error}")
            return None

    def close(self) -> None:
        """Close the raw files."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def finish(self, record: RunRecord) -> Path:
        """Release the reserved space, write the record and return its path. If that fails, the error first says why the run failed."""
        self.close()
        try:
            with writing(self.directory):
                if self._reserved:
                    self._reserved.close()
                return write_record(self.directory, record)
        except RunFailedError as error:
            why = f"{record.outcome.reason}; " if record.outcome.reason else ""
            raise RunFailedError(f"{why}{error}") from error


def write_record(directory: Path, record: RunRecord) -> Path:
    """Write `record.json` atomically."""
    path = directory / RECORD
    with draft(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(record.model_dump_json(indent=1, by_alias=True) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return path


def read_record(directory: Path) -> RunRecord:
    """Read the record of a run directory. Raises RequestError if it is missing or damaged, or if a newer version of the suite wrote it."""
    path = directory / RECORD
    with reading(path, "is not a run record", step="name another run directory"):
        if not path.exists():
            if runs := run_directories(directory):
                raise RequestError(
                    f"{directory}: is a folder of {counted(len(runs))}; name one, for example {runs[-1]}"
                )
            raise RequestError(f"{directory}: holds no {RECORD}, so no run ended there; name a run directory")
        text = path.read_text(encoding="utf-8")
        if is_plain_except_floats(text) and '"techniques"' in text:  # of this version: this path is ten times faster
            with suppress(ValidationError):
                record = RunRecord.model_validate_json(text)
                if record.schema_ == SCHEMA_VERSION:
                    return record
        fields = load_fields(text)
        refuse_newer(fields, path, newest=SCHEMA_VERSION)
        trial = fields.get("trial")
        if isinstance(trial, dict) and "techniques" not in trial:
            trial |= {"techniques": techniques_of_older_record(trial)} if "framework" in trial else {}
        return RunRecord.model_validate(fields)


def read_events(directory: Path) -> tuple[Event, ...]:
    """Read the raw events of a run directory. Raises RequestError if the file is damaged or can't be read."""
    path = directory / EVENTS
    if not path.exists():  # the run failed before its first event
        return ()
    with reading(path, "holds a line that is not an event", step="put the raw file back as the run left it"):
        return parse_events(path.read_text(encoding="utf-8").splitlines())


def read_plan(directory: Path) -> RunPlan:
    """Read the plan of a run directory. Raises RequestError if it is missing or damaged."""
    path = directory / PLAN
    with reading(path, "is not the plan of a run", step="name a run directory"):
        return RunPlan.model_validate(load_fields(path.read_text(encoding="utf-8")))


def read_table(directory: Path, table: TableName) -> Samples | None:
    """Read a table of a run directory with all its columns; None if the run has none. Raises RequestError if a raw file is damaged."""
    with reading(directory, f"its table {table} can't be read", step="put the raw file back as the run left it"):
        return tables.read(directory, table, nodes=read_plan(directory).nodes)


def run_directories(folder: Path) -> list[Path]:
    """Return the run directories in a folder, without those of unfinished runs, by name: oldest first unless renamed."""
    return sorted(path.parent for path in folder.glob(f"*/{RECORD}"))


def folders_under(directory: Path) -> list[Path]:
    """Return every folder at or below a directory that contains run directories, sorted by path; does not search within run directories.

    Runs that belong together (a run and its baseline, a sweep, a study) are in one folder.
    """
    found: list[Path] = []
    seen: set[str] = set()
    # Results may be on another disk, through a link; a link to a parent would be an endless loop.
    for place, names, _ in os.walk(directory, followlinks=True):
        runs = {name for name in names if os.path.isfile(os.path.join(place, name, RECORD))}  # noqa: PTH113, PTH118 - of thousands
        real = os.path.realpath(place)
        names[:] = [] if real in seen else sorted(set(names) - runs)
        if runs and real not in seen:
            found.append(Path(place))
        seen.add(real)
    return sorted(found)


def write_report(out: Path, name: str, content: str | bytes) -> Path:
    """Write a report next to the run directories that it is made from, and return its path.

    Raises RequestError if the name, which records influence, is not a plain file name, and RunFailedError if it can't be written.
    """
    path = out / name
    if path.name != name or not name.isprintable():
        raise RequestError(f"{name!r} is not a valid file name; a record in {out} contains it, remove that run")
    whole = content.encode() if isinstance(content, str) else content
    with suppress(OSError):  # rewriting thousands of unchanged files would be slow
        if path.stat().st_size == len(whole) and path.read_bytes() == whole:
            return path
    with writing(out), draft(path) as temporary:
        temporary.write_bytes(whole)
    return path


def record_schema() -> str:
    """Return the JSON Schema of a record, as committed under `results/schema/`; it keeps the published name of external trials."""
    text = json.dumps(RunRecord.model_json_schema(by_alias=True)).replace("ExternalTrial", "ForeignTrial")
    return json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"


def named_baseline(run: Path, *, out: Path, device: Device) -> tuple[Path, RunRecord]:
    """Read the user's baseline run. Raises RequestError if it is unsuitable, or not in `out`, where a regrade of the new runs would find it."""
    record = read_record(run)
    trial = record.trial
    if trial.world_size != 1 or trial.device != device or record.validity.status == "invalid":
        what = f"{record.validity.status} on {trial.world_size} {trial.device}"
        raise RequestError(f"--baseline {run} is {what}; name a run on one {device} that is not invalid")
    if run.resolve().parent != out.resolve():
        raise RequestError(f"--baseline {run} is not in {out}, where the new runs go; give --out {run.parent}")
    return run, record


def baseline_for(trial: AnyTrial, records: Sequence[tuple[Path, RunRecord]]) -> tuple[Path, RunRecord] | None:
    """Return the one-device baseline with the trial's key, or None; invalid runs, profiling passes and concurrent trainings do not count.

    A valid run is preferred to a degraded one, then the same repeat to others, then the newest run.
    """
    found = [
        (path, record)
        for path, record in records
        if record.trial.key == trial.key
        and record.trial.world_size == 1
        and record.validity.status != "invalid"
        and not record.profiled
        and not record.concurrent
    ]

    def fitness(run: tuple[Path, RunRecord]) -> tuple[bool, bool, str]:
        _, record = run
        return record.validity.status == "valid", record.trial.repeat == trial.repeat, record.run_id

    return max(found, key=fitness, default=None)
