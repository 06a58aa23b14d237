"""`dlscale ls`, `show`, `profile` and `rerun`: list the runs on file, show a run or a pass under a profiler, and repeat a run's command."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner.commands.options import Text, directory_parser, flag, run_argument, runs_named
from runner.core import parsing
from runner.core.console import notify, open_console, open_screen
from runner.core.errors import RequestError
from runner.results import find

if TYPE_CHECKING:
    from runner.core.record import RunRecord


def ls(
    place: Annotated[
        Path | None,
        typer.Argument(
            help="folder with runs at any depth (default: results)",
            metavar="[DIR]",
            parser=directory_parser("results/MACHINE, or leave it out for all of results"),
            show_default=False,
        ),
    ] = None,
    *,
    limit: Annotated[str, typer.Option("--limit", "-n", help="how many at most", metavar="N")] = "20",
    as_json: Annotated[bool, typer.Option("--json", help="print them as JSON")] = False,
) -> None:
    """List the runs on file, newest first: ~1 is what other commands call last~1."""
    from rich.table import Table

    from runner.core.units import ABSENT, counted, figure
    from runner.results.store import read_record

    place = place or find.RESULTS
    runs = find.newest_first(place)
    if not runs:
        lacks = "holds no run that ended" if place.exists() else "does not exist"
        raise RequestError(f"{place} {lacks}; `dlscale bench` makes some, `dlscale ls DIR` lists another place")
    table = Table.grid("", "", "", "", padding=(0, 2, 0, 0))
    table.columns[1].overflow = "fold"  # whole, to be copied
    for at in (0, 2, 3):
        table.columns[at].no_wrap = True
    table.columns[2].justify = "right"
    facts = []
    shown = runs[: parsing.count("--limit", limit)]
    for number, run in enumerate(shown):
        try:
            record = read_record(run)
        except RequestError as error:
            notify([str(error)])
            continue
        facts.append(_facts(run, record))
        rate = facts[-1]["throughput"]
        result = "profile" if record.profiled else f"{figure(rate)} {facts[-1]['unit']}" if rate else ABSENT
        table.add_row(f"~{number}", run.name, result, record.validity.status)
    if not facts:
        raise RequestError(f"{place}: {counted(len(shown))} listed, and no record can be read; name another place")
    if as_json:
        sys.stdout.write(json.dumps(facts, indent=1) + "\n")
        return
    console = open_screen()
    console.print(table)
    if len(runs) > len(shown):
        console.print(f"and {len(runs) - len(shown):,} more (--limit {len(runs)} lists all)", style="dim")


def _facts(run: Path, record: RunRecord) -> dict[str, Any]:
    from runner.core.trial import Trial, title

    rate = record.measurement.throughput if record.validity.status != "invalid" and not record.profiled else None
    return {
        "run_id": record.run_id,
        "path": str(run),
        "title": title(record.trial),
        "model": record.trial.model if isinstance(record.trial, Trial) else None,
        "world_size": record.trial.world_size,
        "throughput": rate.value if rate else None,
        "unit": rate.unit if rate else None,
        "status": record.validity.status,
        "reasons": record.validity.reasons,
    }


def show(
    run: Annotated[Path | None, run_argument(" (default: last)", metavar="[RUN]", example="dlscale show last")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="print its record")] = False,
) -> None:
    """Show one run: what ran, its figures over all repeats, whether they may be used, and its files."""
    from rich.table import Table

    from runner.results.store import RECORD, read_record

    path = run or runs_named("last", example="last")[0]
    record = read_record(path)
    if as_json:
        sys.stdout.write((path / RECORD).read_text("utf-8"))
        return
    table = Table.grid("", "", padding=(0, 2, 0, 0))
    for name, text in _rows(path, record):
        table.add_row(name, text)
    open_console().print(table)
    open_console(soft_wrap=True).print(f"files  {path}: {', '.join(sorted(file.name for file in path.iterdir()))}")


def _rows(path: Path, record: RunRecord) -> Iterator[tuple[str, str]]:
    """The lines that `show` prints, as (name, text); throughput and time are over all repeats of the run."""
    from runner.analysis.summarize import summarize
    from runner.core import units
    from runner.core.trial import Trial, title

    summary = summarize(find.repeats_of(path).runs)
    (row,) = summary.rows
    yield "run", record.run_id
    yield "what", f"{title(record.trial)}, repeat {record.trial.repeat}"
    yield "how", summary.setting
    yield "where", summary.ran_on
    if record.profiled:
        yield "figures", "none, as this is a pass under a profiler; `dlscale profile RUN` shows what it found"
    elif row.throughput is not None:
        interval = f", {units.counted(row.repeats)}" if row.throughput_ci95 else ""
        yield row.unit, units.estimate(row.throughput, row.throughput_ci95, runs=row.repeats) + interval
        inferred = isinstance(record.trial, Trial) and record.trial.mode == "infer"
        yield "inference time" if inferred else "training time", f"{units.figure(row.training_time_s)} s"
    speedup, efficiency = record.scaling.speedup, record.scaling.efficiency
    if speedup and efficiency and record.trial.world_size > 1:
        yield "speedup", f"{units.figure(speedup.value)} (efficiency {100 * efficiency.value:.1f} %), this run"
    yield "validity", "\n".join((record.validity.status, *record.validity.reasons))
    if record.cut:
        yield "output", record.cut


def rerun(
    context: typer.Context,
    run: Annotated[Path, run_argument(metavar="RUN", example="dlscale rerun last")],
    *,
    out: Annotated[Text, flag("--out", help="where records go (default: results/MACHINE)", metavar="DIR")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the exact command lines and start nothing")] = False,
) -> None:
    """Repeat the command of a run: everything it measured, with the framework, version, network and engine that the run had."""
    from runner.report.page.runs import rerun_command
    from runner.results.store import read_record

    program, *words = rerun_command(read_record(run)) or ("",)
    if not words:
        raise RequestError(f"{run}: its record lacks the command that was typed; run `dlscale bench` anew")
    # Do not reuse the old --out: it may be the folder of another machine.
    words = [words[0], *([f"--out={out}"] if out else []), *_drop_out(words[1:])]
    if dry_run:
        words.insert(1, "--dry-run")
    notify([f"again: {shlex.join((program, *words))}"])
    sys.argv[1:] = words  # the new record stores argv as the command
    raise typer.Exit(context.find_root().command(words, standalone_mode=False) or 0)


def _drop_out(words: Sequence[str]) -> Iterator[str]:
    """Drop `--out` and its value; arguments after `--` belong to the user's program."""
    ours = words.index("--") if "--" in words else len(words)
    for at, word in enumerate(words):
        if at >= ours or not (word.startswith("--out=") or word == "--out" or words[at - 1 : at] == ["--out"]):
            yield word


def show_profile(directory: Path, *, as_json: bool) -> None:
    """Print the tables of a pass, or its `profile` as JSON. Raises RequestError if there is no pass, or if its profiler never started."""
    path, record = find_pass(directory)
    if record.profile is None:
        reasons = "; ".join(record.validity.reasons) or "no rank said so"
        raise RequestError(f"{path}: its profiler never started ({reasons}); its logs are in {path / 'logs'}")
    if as_json:
        sys.stdout.write(record.profile.model_dump_json(indent=1) + "\n")
        return
    # Imported only once there is something to show.
    from runner.core.trial import title
    from runner.report.profile import profile_report, reservations, sampled_counters

    console = open_console()
    console.print(title(record.trial), style="bold", soft_wrap=True)
    console.print(f"{record.validity.status}, record: {path}", style="dim", soft_wrap=True)
    for reason in reservations(record):
        console.print(reason, style="yellow", soft_wrap=True)
    console.print(profile_report(record.profile))
    for text in sampled_counters(record):
        console.print(text, soft_wrap=True)


def find_pass(directory: Path) -> tuple[Path, RunRecord]:
    """The pass in a run directory, or the newest pass at or below a directory. Raises RequestError, which says how to make one, if there is none."""
    from runner.results.store import RECORD, folders_under, read_record, run_directories

    if (directory / RECORD).is_file():
        record = read_record(directory)
        if not record.profiled:
            raise RequestError(
                f"{directory}: is a measured run without a profiler; name a pass under one, or run with PROFILE=kernels"
            )
        return directory, record
    if not directory.exists():
        raise RequestError(f"RUN={directory} does not exist; name a pass under a profiler, or a folder of them")
    every = find.read_runs(run for folder in folders_under(directory) for run in run_directories(folder))
    notify(every.skipped)
    found = [(path, record) for path, record in every.runs if record.profiled]
    if not found:
        raise RequestError(f"{directory}: holds no pass under a profiler; name one, or run with PROFILE=kernels")
    return max(found, key=lambda pair: pair[1].provenance.recorded_at)
