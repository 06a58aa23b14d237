"""`dlscale overhead`: what the suite itself costs, against the same training without it, in alternating rounds.

Four figures: throughput with samplers ÷ without them, seconds of a whole `dlscale bench` beyond its program's, throughput of the suite's
program ÷ that of a bare loop in the same environment, and seconds to the first step of `dlscale bench` minus those of a bare
`python train.py`; on GPUs the first two alone.
The order within a round alternates, so that a drift of the machine falls on all sides.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from runner.engines.process import CommandError, run
from runner.errors import RequestError, RunFailedError
from runner.events import Event, FirstStep, Phase, RunStop
from runner.execute import run_tool
from runner.given import refuse_mixture
from runner.ground import Ground, look
from runner.images.given import GivenImage
from runner.launch.job import Job, spec
from runner.matrix import make_job
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
    """One run of a round.

    Attributes:
        rate: samples per second.
        first_step_s: seconds from its command to its first step.
        outside_s: seconds that its command took beyond its program; None of a bare loop, which is its program.
    """

    rate: float
    first_step_s: float
    outside_s: float | None = None


@dataclass(frozen=True)
class Round:
    """The suite, the suite without samplers, and on CPUs the bare loop, one after the other."""

    suite: Side
    unwatched: Side
    bare: Side | None

    @property
    def of_telemetry(self) -> float:
        """Throughput with samplers ÷ without."""
        return self.suite.rate / self.unwatched.rate


def measure_overhead(request: Request) -> None:
    """Run the rounds and print them with their medians.

    Raises:
        RequestError: the framework's own binary is the loop, so that there is nothing barer.
        RunFailedError: a run of any side failed.
    """
    refuse_mixture(request)
    ground = look(request)
    if ground.image.framework not in BARE:
        raise RequestError(
            f"FRAMEWORK={ground.image.framework} trains in its own program, which the suite only starts; ask for {', '.join(BARE)}"
        )
    trial = plan(request, ground)[0]
    with progress(Console(stderr=True, highlight=False)) as shown:
        prepared = prepare(ground, shown, packed_at=trial.packed_at, run="overhead")
        rounds = []
        for number in range(request.repeat):
            shown.stage(f"round {number + 1} of {request.repeat}")
            sides: dict[str, Callable[[], Side]] = {
                "suite": lambda: _suite(ground, trial, telemetry_hz=request.telemetry_hz),
                "unwatched": lambda: _suite(ground, trial, telemetry_hz=0),
            }
            if ground.device == "cpu":
                sides["bare"] = lambda: _bare(ground, trial, prepared)
            order = list(sides) if number % 2 == 0 else list(reversed(sides))
            found = {name: sides[name]() for name in order}
            rounds.append(Round(found["suite"], found["unwatched"], found.get("bare")))
    Console(highlight=False).print(_table(rounds, trial, ground))


def _suite(ground: Ground, trial: Trial, *, telemetry_hz: int) -> Side:
    """A whole `dlscale bench` in a process of its own."""
    with tempfile.TemporaryDirectory() as out:
        devices = "--gpus=1" if trial.device == "gpu" else "--workers=1"
        command = [sys.executable, "-m", "runner", "bench", devices, "--repeat=1", f"--out={out}"]
        command += [
            f"--framework={trial.framework}",
            *_which(ground),
            f"--model={trial.model}",
            f"--engine={ground.engine.name}",
            f"--telemetry-hz={telemetry_hz}",
            "--idle=0",
        ]
        began = time.monotonic()
        try:
            run(command)
        except CommandError as error:
            raise RunFailedError(f"the suite's side failed: {error.last_line}") from error
        took = time.monotonic() - began
        directory, record = next(iter(records_under(Path(out))))
        events = read_events(directory)
        steps = [event.received for event in events if isinstance(event, FirstStep)]
        if record.measurement.throughput is None or not steps:
            raise RunFailedError(f"the suite's side has no throughput: {'; '.join(record.validity.reasons)}")
        return Side(
            rate=record.measurement.samples / (record.measurement.training_time_s or 1.0),
            first_step_s=steps[0] - began,
            outside_s=took - program_s(events),
        )


def program_s(events: Sequence[Event]) -> float:
    """Seconds from the start of the program's process to its last event, by its own clock."""
    starts = [event.t - event.seconds for event in events if isinstance(event, Phase) and event.name == "import"]
    stops = [event.t for event in events if isinstance(event, RunStop)]
    return max(stops) - min(starts)


def _which(ground: Ground) -> tuple[str, ...]:
    """The flags that lead to the very same image."""
    if isinstance(ground.image, GivenImage):
        shown = (f"--mount={mount.source}:{mount.target}" for mount in ground.image.mounts)
        return (f"--image={ground.image.reference}", *shown)
    return (f"--version={ground.image.version}",)


def _bare(ground: Ground, trial: Trial, prepared: Prepared) -> Side:
    """The bare loop in the same environment, with the same cores and threads."""
    job = make_job(trial, ground, prepared, run_id=f"bare-{time.monotonic_ns()}")
    lines: list[str] = []
    run_tool(prepared.engines[job.head.node.name], spec(job, job.head, role="tool", argv=_argv(job)), lines.append)
    return Side(rate=_figure(_RATE, lines), first_step_s=_figure(_FIRST, lines))


def _argv(job: Job) -> tuple[str, ...]:
    trial = job.trial
    flags = {
        "model": trial.model,
        "image-size": trial.image_size,
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


def _table(rounds: list[Round], trial: Trial, ground: Ground) -> Table:
    device = "GPU" if trial.device == "gpu" else "CPU worker"
    table = Table(title=f"{trial.framework} {trial.version} {trial.model}, 1 {device}, engine {ground.engine.name}")
    beside = all(each.bare for each in rounds)
    names = ["round", "suite\nimages/s", "without\ntelemetry", "ratio"]
    names.append("suite beside\nits program (s)")
    names += (
        ["bare\nimages/s", "ratio", "suite: first\nstep (s)", "bare: first\nstep (s)", "delay (s)"] if beside else []
    )
    for name in names:
        table.add_column(name, justify="right")
    ratios, delays = [], []
    for number, each in enumerate(rounds, start=1):
        row = [str(number), f"{each.suite.rate:.1f}", f"{each.unwatched.rate:.1f}", f"{each.of_telemetry:.4f}"]
        row.append(f"{each.suite.outside_s:.2f}")
        if bare := each.bare:
            ratios.append(each.suite.rate / bare.rate)
            delays.append(each.suite.first_step_s - bare.first_step_s)
            row += [f"{bare.rate:.1f}", f"{ratios[-1]:.4f}"]
            row += [f"{each.suite.first_step_s:.2f}", f"{bare.first_step_s:.2f}", f"{delays[-1]:+.2f}"]
        table.add_row(*row)
    table.add_section()
    medians = ["median", "", "", f"{statistics.median(each.of_telemetry for each in rounds):.4f}"]
    medians.append(f"{statistics.median(each.suite.outside_s or 0.0 for each in rounds):.2f}")
    medians += ["", f"{statistics.median(ratios):.4f}", "", "", f"{statistics.median(delays):+.2f}"] if beside else []
    table.add_row(*medians)
    return table
