"""The flow of `dlscale overhead`: discover, prepare, run the rounds, write, show. Each stage hands its result on.

Each side of a round but the bare loop is a whole `dlscale bench`, with options derived from the request, so that it runs the requested
trial. Every other round runs its sides in reverse order, so that drift of the machine affects all sides.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from runner.core.console import notify, open_console
from runner.core.errors import RequestError, RunFailedError
from runner.core.provenance import SUITE_ROOT
from runner.core.request import EngineName, Request
from runner.core.trial import Trial
from runner.engines.process import CommandError, read_git, run
from runner.experiments.overhead.figures import PREFIX, Command, Overhead, Printed, SideName, report_from_file
from runner.plan.choice import choose
from runner.plan.discovery import Resources, discover_own
from runner.plan.launch.job import spec
from runner.plan.layout import Prepared, make_job
from runner.plan.plan import plan, with_iterations
from runner.report.progress import Progress, progress
from runner.report.publish import save
from runner.results.disk import check_writable
from runner.results.store import read_record, run_directories, write_report
from runner.run import bench
from runner.run.execute import run_tool
from runner.run.prepare import prepare

BARE: Final = {name: f"imagenet_cnn/bare_{name}.py" for name in ("mxnet", "pytorch", "tensorflow")}
"""Plain loops by framework, in `workloads/`."""
BARE_WEIGHT_DECAY: Final = 1e-4
BARE_TECHNIQUES: Final = frozenset({"channels-last", "fused-optimizer"})
"""Techniques that PyTorch's plain loop supports."""
PASSED: Final = ("batch", "image_size", "precision", "preset", "techniques", "threads", "iterations", "warmup", "seed")
"""Fields of a request that are passed on if the user set them; all else that a side needs is always passed."""


def check_request(request: Request, resources: Resources, *, beside_host: bool) -> None:
    """Raise RequestError if the framework's own binary is the loop, if there are several devices, or if both engines to compare are ENGINE=host."""
    if resources.image.framework not in BARE:
        raise RequestError(
            f"FRAMEWORK={resources.image.framework} trains in its own program, which the suite only starts; ask for {', '.join(BARE)}"
        )
    for variable, given in (("GPUS", request.gpus), ("WORKERS", request.workers)):
        if given and given != (1,):
            counts = ",".join(map(str, given))
            raise RequestError(f"{variable}={counts}: the overhead is measured on one device; ask for {variable}=1")
    if beside_host and resources.engine.name == "host":
        raise RequestError(
            "--beside-host compares another engine with ENGINE=host, which is the requested engine; leave out one of the two"
        )


def bench_arguments(
    request: Request, resources: Resources, trial: Trial, *, engine: EngineName, telemetry_hz: int
) -> tuple[str, ...]:
    """Return the arguments after `dlscale` for one side; the caller adds the directory of its record.

    Engine `host` uses the installed software, all others the image of the resources. `telemetry_hz` 0 turns samplers off.
    """
    return (
        "bench",
        "--gpus=1" if trial.device == "gpu" else "--workers=1",
        "--repeat=1",
        f"--framework={trial.framework}",
        *(() if engine == "host" else resources.image.flags),
        f"--model={trial.model}",
        f"--engine={engine}",
        *(f"--{name.replace('_', '-')}={_text(getattr(request, name))}" for name in PASSED if _is_set(request, name)),
        f"--telemetry-hz={telemetry_hz}",
        "--idle=0",
    )


def has_bare_loop(trial: Trial) -> bool:
    """Whether the bare loop can do the same training, of a classifier; only PyTorch's supports GPUs, precisions other than fp32 (not fp16), techniques.

    Networks with a weight decay of their own have an optimizer, or further classifiers, that the loop lacks.
    """
    if trial.workload != "imagenet_cnn" or trial.weight_decay != BARE_WEIGHT_DECAY:
        return False
    if trial.framework == "pytorch":
        return trial.precision != "fp16" and BARE_TECHNIQUES.issuperset(trial.techniques)
    return trial.device == "cpu" and trial.precision == "fp32" and not trial.techniques


def bare_arguments(trial: Trial) -> tuple[str, ...]:
    """Return the arguments of the bare loop's program."""
    flags: dict[str, object] = {
        "model": trial.model,
        "image-size": trial.image_size,
        "batch": trial.batch_per_device,
        "iterations": trial.iterations,
        "warmup": trial.warmup,
        "seed": trial.seed,
        "threads": trial.threads,
    }
    if trial.framework == "pytorch":
        flags |= {"device": trial.device, "precision": trial.precision, "techniques": trial.techniques}
    return tuple(f"--{name}={_text(value)}" for name, value in flags.items())


def host_request(request: Request, framework: str) -> Request:
    """Return the same request for the machine's own software."""
    plain = {"image": None, "mounts": (), "version": None}
    return request.model_copy(update={"engine": "host", "framework": framework, **plain})


def _is_set(request: Request, name: str) -> bool:
    return name in request.model_fields_set and getattr(request, name) not in (None, ())


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


_RATE: Final = re.compile(r"^images/sec (\S+)$")
_FIRST: Final = re.compile(r"^first step (\S+)$")
Side = Callable[[], Command]


@dataclass(frozen=True)
class _Setup:
    """What all sides share."""

    request: Request
    resources: Resources
    trial: Trial
    prepared: Prepared


def measure_overhead(request: Request, *, beside_host: bool, command: tuple[str, ...]) -> None:
    """Run `repeat` rounds, write their records and reports, and print them; `beside_host` adds a side with ENGINE=host.

    Raises RequestError before anything starts, RunFailedError if a run of any side failed.
    """
    resources, _ = choose(request, discover_own(request), say=lambda text: notify([text]))
    request = with_iterations(request, resources)
    with closing(resources.cluster):
        check_request(request, resources, beside_host=beside_host)
        trial = plan(request, resources)[0]
        if beside_host:
            discover_own(
                host_request(request, resources.image.framework)
            ).cluster.close()  # to refuse it now, not in the first round
        check_writable(resources.out)
        with progress(open_console(stderr=True)) as shown:
            prepared = prepare(resources, shown, packed_at=trial.packed_at, run="overhead")
            setup = _Setup(request, resources, trial, prepared)
            raw = _run_rounds(setup, _sides(setup, beside_host=beside_host), shown, command=command)
    found = report_from_file(raw, resources.out)
    console = open_console(soft_wrap=True)
    console.print(found.terminal())
    save(found.files(), out=resources.out, console=console)


def _run_rounds(setup: _Setup, sides: dict[SideName, Side], shown: Progress, *, command: tuple[str, ...]) -> Overhead:
    """Run all rounds; the results of each are on disk before the next starts."""
    began, count = bench.stamp(), setup.request.repeat
    rounds: list[tuple[Command, ...]] = []
    while True:
        shown.stage(f"round {len(rounds) + 1} of {count}")
        order = list(sides) if len(rounds) % 2 == 0 else list(reversed(sides))
        rounds.append(tuple(sides[name]() for name in order))
        raw = Overhead(
            name=f"{PREFIX}{began}",
            made_at=datetime.now(timezone.utc),
            command=command,
            commit=read_git(SUITE_ROOT).commit,
            rounds=tuple(rounds),
        )
        write_report(setup.resources.out, raw.file, raw.to_json())
        if len(rounds) == count:
            return raw


def _sides(setup: _Setup, *, beside_host: bool) -> dict[SideName, Side]:
    hz, engine = setup.request.telemetry_hz, setup.resources.engine.name
    sides: dict[SideName, Side] = {
        "suite": lambda: _bench(setup, "suite", engine=engine, telemetry_hz=hz),
        "unwatched": lambda: _bench(setup, "unwatched", engine=engine, telemetry_hz=0),
    }
    if beside_host:
        sides["host"] = lambda: _bench(setup, "host", engine="host", telemetry_hz=hz)
    if has_bare_loop(setup.trial):
        sides["bare"] = lambda: _bare(setup)
    return sides


def _bench(setup: _Setup, side: SideName, *, engine: EngineName, telemetry_hz: int) -> Command:
    out = setup.resources.out
    arguments = bench_arguments(setup.request, setup.resources, setup.trial, engine=engine, telemetry_hz=telemetry_hz)
    arguments = (*arguments, f"--out={out}")
    before = set(run_directories(out))
    began = time.monotonic()
    try:
        run([sys.executable, "-m", "runner.commands", *arguments])
    except CommandError as error:
        raise RunFailedError(f"side {side} failed: {error.last_line}") from error
    ended = time.monotonic()
    return Command(side=side, began_s=began, ended_s=ended, run_id=_find_run(out, before, arguments))


def _find_run(out: Path, before: set[Path], arguments: Sequence[str]) -> str:
    """Find the run that a command left, by the command in its record: other runs may write to the same directory meanwhile."""
    for path in sorted(set(run_directories(out)) - before):
        record = read_record(path)
        if record.provenance.command[-len(arguments) :] == tuple(arguments):
            return record.run_id
    raise RunFailedError(f"{out}: a run of `dlscale {' '.join(arguments)}` left no record there")


def _bare(setup: _Setup) -> Command:
    job = make_job(setup.trial, setup.resources, setup.prepared, run_id=f"bare-{time.monotonic_ns()}")
    lines: list[str] = []
    began = time.monotonic()
    engine = setup.prepared.engines[job.head.node.name]
    program = f"{job.site.workloads}/{BARE[setup.trial.framework]}"
    argv = (job.site.python, program, *bare_arguments(setup.trial))
    run_tool(engine, spec(job, job.head, role="tool", argv=argv), lines.append)
    printed = Printed(rate_per_s=_figure(_RATE, lines), first_step_s=_figure(_FIRST, lines))
    return Command(side="bare", began_s=began, ended_s=time.monotonic(), printed=printed)


def _figure(pattern: re.Pattern[str], lines: Sequence[str]) -> float:
    found = [float(match[1]) for line in lines if (match := pattern.match(line))]
    if not found:
        raise RunFailedError(
            f"the bare loop did not print {pattern.pattern!r}; its last line is {lines[-1] if lines else ''!r}"
        )
    return found[-1]
