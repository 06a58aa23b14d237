"""`dlscale overhead`: what the suite itself costs, against the same training without it, in alternating pairs.

Two figures: throughput of the suite's program ÷ that of a bare loop in the same environment, and seconds to the first step of a whole
`dlscale bench` minus those of a bare `python train.py`. The order within a pair alternates, so that a drift of the machine
falls on both sides.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from runner.bench import make_job
from runner.engines.process import CommandError, run
from runner.errors import RequestError, RunFailedError
from runner.events import FirstStep
from runner.execute import run_tool
from runner.ground import Ground, look
from runner.launch.job import Job, spec
from runner.plan import plan
from runner.prepare import Prepared, prepare
from runner.report.progress import progress
from runner.request import Request
from runner.results import read_events, records_under
from runner.trial import Trial

BARE: Final = {name: f"imagenet_cnn/bare_{name}.py" for name in ("mxnet", "pytorch", "tensorflow")}
_RATE = re.compile(r"^images/sec (\S+)$")
_FIRST = re.compile(r"^first step (\S+)$")


@dataclass(frozen=True)
class Side:
    """One run of a pair: samples per second, and seconds from its command to its first step."""

    rate: float
    first_step_s: float


@dataclass(frozen=True)
class Pair:
    """The suite and the bare loop, run one after the other."""

    suite: Side
    bare: Side

    @property
    def ratio(self) -> float:
        """Throughput with the suite ÷ without it."""
        return self.suite.rate / self.bare.rate

    @property
    def delay_s(self) -> float:
        """Seconds that the suite's first step comes later."""
        return self.suite.first_step_s - self.bare.first_step_s


def measure_overhead(request: Request) -> None:
    """Run the pairs and print them with their medians.

    Raises:
        RequestError: the framework's own binary is the loop, so that there is nothing barer.
        RunFailedError: a run of either side failed.
    """
    ground = look(request)
    if ground.image.framework not in BARE:
        raise RequestError(
            f"FRAMEWORK={ground.image.framework} trains in its own program, which the suite only starts; ask for {', '.join(BARE)}"
        )
    trial = plan(request, ground)[0]
    with progress(Console(stderr=True, highlight=False)) as shown:
        prepared = prepare(ground, shown, image_size=trial.image_shape[1], run="overhead")
        pairs = []
        for number in range(request.repeat):
            shown.stage(f"pair {number + 1} of {request.repeat}")
            sides = [_suite, _bare] if number % 2 == 0 else [_bare, _suite]
            found = {side: side(request, ground, trial, prepared) for side in sides}
            pairs.append(Pair(suite=found[_suite], bare=found[_bare]))
    Console(highlight=False).print(_table(pairs, trial, ground))


def _suite(_: Request, ground: Ground, trial: Trial, __: Prepared) -> Side:
    """A whole `dlscale bench` in a process of its own."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "runner", "bench", "--workers=1", "--repeat=1", f"--out={out}"]
        command += [
            f"--framework={trial.framework}",
            f"--version={trial.version}",
            f"--model={trial.model}",
            f"--engine={ground.engine.name}",
        ]
        began = time.monotonic()
        try:
            run(command)
        except CommandError as error:
            raise RunFailedError(f"the suite's side failed: {error.last_line}") from error
        directory, record = next(iter(records_under(Path(out))))
        steps = [event.received for event in read_events(directory) if isinstance(event, FirstStep)]
        if record.measurement.throughput is None or not steps:
            raise RunFailedError(f"the suite's side has no throughput: {'; '.join(record.validity.reasons)}")
        return Side(
            rate=record.measurement.samples / (record.measurement.training_time_s or 1.0), first_step_s=steps[0] - began
        )


def _bare(_: Request, ground: Ground, trial: Trial, prepared: Prepared) -> Side:
    """The bare loop in the same environment, with the same cores and threads."""
    job = make_job(trial, ground, prepared, run_id=f"bare-{time.monotonic_ns()}")
    lines: list[str] = []
    run_tool(prepared.engines[job.head.node.name], spec(job, job.head, role="tool", argv=_argv(job)), lines.append)
    return Side(rate=_figure(_RATE, lines), first_step_s=_figure(_FIRST, lines))


def _argv(job: Job) -> tuple[str, ...]:
    trial = job.trial
    flags = {
        "model": trial.model,
        "image-size": trial.image_shape[1],
        "batch": trial.batch_per_device,
        "iterations": trial.iterations,
        "warmup": trial.warmup,
        "seed": trial.seed,
        "threads": trial.threads,
    }
    return (
        job.site.python,
        f"{job.site.workloads}/{BARE[trial.framework]}",
        *(f"--{name}={value}" for name, value in flags.items()),
    )


def _figure(pattern: re.Pattern[str], lines: list[str]) -> float:
    found = [float(match[1]) for line in lines if (match := pattern.match(line))]
    if not found:
        raise RunFailedError(
            f"the bare loop did not print {pattern.pattern!r}; its last line is {lines[-1] if lines else ''!r}"
        )
    return found[-1]


def _table(pairs: list[Pair], trial: Trial, ground: Ground) -> Table:
    table = Table(title=f"{trial.framework} {trial.version} {trial.model}, 1 CPU worker, engine {ground.engine.name}")
    for name in (
        "pair",
        "suite\nimages/s",
        "bare\nimages/s",
        "ratio",
        "suite: first\nstep (s)",
        "bare: first\nstep (s)",
        "delay (s)",
    ):
        table.add_column(name, justify="right")
    for number, pair in enumerate(pairs, start=1):
        sides = (f"{pair.suite.rate:.1f}", f"{pair.bare.rate:.1f}", f"{pair.ratio:.4f}")
        table.add_row(
            str(number),
            *sides,
            f"{pair.suite.first_step_s:.2f}",
            f"{pair.bare.first_step_s:.2f}",
            f"{pair.delay_s:+.2f}",
        )
    ratio, delay = statistics.median(p.ratio for p in pairs), statistics.median(p.delay_s for p in pairs)
    table.add_section()
    table.add_row("median", "", "", f"{ratio:.4f}", "", "", f"{delay:+.2f}")
    return table
