"""`dlscale ablate`: the plain training, then one more technique a line, in interleaved rounds, so that drift of the machine affects all lines alike.

On synthetic samples, lines are compared by throughput, and the batch of the last may grow for as long as that gains. With DATA, they are
compared by loss too, for which the plain program runs with three seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

from runner.analysis.comparisons.ablation import FEWEST_SEEDS, ablations
from runner.analysis.grading import metrics
from runner.analysis.summarize import usable_windows
from runner.core.console import open_console
from runner.core.errors import RequestError
from runner.core.request import Request
from runner.core.strategies import DEFAULT_STRATEGY
from runner.plan import techniques
from runner.plan.discovery import Resources, discover_own
from runner.plan.plan import with_iterations
from runner.report.comparisons import ablation
from runner.report.progress import progress
from runner.report.publish import save
from runner.results.find import Run
from runner.run import bench

RunLine = Callable[[Request], list[Run]]
# Doubling the batch must raise throughput by 1 % to be worth its memory.
GAIN: Final = 1.01
LARGEST_BATCH: Final = 4096


class _InterruptedError(Exception):
    """A run was stopped, as its record says; no further run starts."""


def ablate(request: Request, *, batches: Sequence[int], grow: bool, command: tuple[str, ...]) -> int:
    """Run every line, print the table, write its report, and return the exit code.

    `request` has one scale; its precision, if given, applies to every line. `batches` add lines with these batches per device at the end;
    `grow` doubles the batch of the last line while that is faster. Raises RequestError before anything starts, RunFailedError if a run left no record.
    """
    scales = request.gpus or request.workers or (1,)
    if len(scales) > 1:
        raise RequestError(
            f"{','.join(map(str, scales))} devices are a sweep, but an ablation has a single scale; give one number"
        )
    resources = discover_own(request)
    if request.data:  # losses are compared after the same iterations
        request = with_iterations(request, resources)
    with closing(resources.cluster):
        lines = tuple(line_requests(request, resources, scale=scales[0], batches=batches))
    runs: list[Run] = []
    planned = tuple(interleaved(lines, request))
    with progress(open_console(stderr=True)) as shown:

        def run(line: Request) -> list[Run]:
            one = line.model_copy(update={"repeat": 1})
            shown.begin(len(runs) + 1, max(len(runs) + 1, len(planned)))
            found = bench.run(
                one,
                command=command,
                name=bench.stamp(),
                shown=shown,
                select=lambda trial: trial.world_size == scales[0],
            )
            runs.extend(found)
            if any(record.outcome.status == "interrupted" for _, record in found):
                raise _InterruptedError
            return found

        try:
            last = [found for line in planned for found in run(line) if line == lines[-1]]
            if grow:
                grow_batch(lines[-1], last, resources, run, repeat=request.repeat)
        except _InterruptedError:
            shown.stage("stopped; the table shows the runs so far")
    console = open_console(soft_wrap=True)
    for found in map(ablation, ablations(runs)):
        console.print(found.terminal())
        save(found.files(), out=runs[0][0].parent, console=console)
    return bench.exit_code([record for _, record in runs])


def line_requests(request: Request, resources: Resources, *, scale: int, batches: Sequence[int]) -> Iterator[Request]:
    """Yield the request of each line, the plain one first. Raises RequestError if the program offers no techniques here."""
    tuned = techniques.apply_defaults(request.model_copy(update={"preset": "tuned"}), resources)
    strategy = "single" if scale == 1 else request.strategy or DEFAULT_STRATEGY[resources.image.framework]
    names = techniques.effective(tuned, strategy=strategy)
    plain = request.model_copy(update={"preset": "reference", "techniques": ()})
    yield plain
    if tuned.precision != plain.precision:
        yield plain.model_copy(update={"precision": tuned.precision})
    for count in range(1, len(names) + 1):
        yield plain.model_copy(update={"precision": tuned.precision, "techniques": names[:count]})
    for batch in batches:
        yield plain.model_copy(update={"precision": tuned.precision, "techniques": names, "batch": batch})


def interleaved(lines: Sequence[Request], request: Request) -> Iterator[Request]:
    """Yield every line once a round; with DATA, the plain one with `FEWEST_SEEDS` seeds, whose losses give the spread."""
    for _ in range(request.repeat):
        for number, line in enumerate(lines):
            seeds = FEWEST_SEEDS if request.data and number == 0 else 1
            yield from (line.model_copy(update={"seed": request.seed + more}) for more in range(seeds))


def grow_batch(line: Request, baseline_runs: Sequence[Run], resources: Resources, run: RunLine, *, repeat: int) -> None:
    """Double the batch while that raises throughput by `GAIN`, starting from `baseline_runs`, the runs of `line`. A batch that does not fit ends it too."""
    batch = line.batch or resources.workload.defaults[resources.device].batch
    before = _rate(baseline_runs)
    while before is not None and batch < LARGEST_BATCH:
        batch *= 2
        larger = line.model_copy(update={"batch": batch})
        rate = _rate(found for _ in range(repeat) for found in run(larger))
        if rate is None or rate < GAIN * before:
            return
        before = rate


def _rate(runs: Iterable[Run]) -> float | None:
    windows = usable_windows([record for _, record in runs])
    return metrics.pooled_rate(windows) if windows else None
