"""`dlscale ablate`: the same training plainly, then with one technique more a line, in turns, so that a drift of the machine touches all alike.

On synthetic samples the lines are compared by throughput; with DATA also by their losses, for which the plain program runs with three seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from rich.console import Console

from runner import bench, techniques
from runner.ablation import FEWEST_SEEDS, ablations
from runner.errors import RequestError
from runner.ground import Ground, look
from runner.matrix import Run
from runner.report import ablation as report
from runner.report.progress import progress
from runner.report.publish import save
from runner.request import Request
from runner.trial import Trial


def ablate(request: Request, *, batches: Sequence[int], command: tuple[str, ...]) -> int:
    """Run every line, print the table, write its report, and return the exit code.

    Args:
        request: of one scale; its precision is that of every line where it is given.
        batches: further batches of a device for the last line.
        command: the command line, for the records.

    Raises:
        RequestError: it can't be met, or there is nothing to add to the plain program; nothing was started.
        RunFailedError: a run could not be recorded.
    """
    asked = request.gpus or request.workers or (1,)
    if len(asked) > 1:
        raise RequestError(
            f"{','.join(map(str, asked))} devices are a sweep, and an ablation has one scale; give one number"
        )
    ground = look(request)

    def scaled(trial: Trial) -> bool:
        return trial.world_size == asked[0]

    with closing(ground.fleet):
        lines = tuple(stages(request, ground, scale=asked[0], batches=batches))
    runs: list[Run] = []
    with progress(Console(stderr=True, highlight=False)) as shown:
        for _ in range(request.repeat):
            for number, line in enumerate(lines):
                seeds = FEWEST_SEEDS if request.data and number == 0 else 1
                for seed in range(request.seed, request.seed + seeds):
                    one = line.model_copy(update={"repeat": 1, "seed": seed})
                    runs += bench.run(one, command=command, name=bench.stamp(), shown=shown, wanted=scaled)
    console = Console(highlight=False, soft_wrap=True)
    for found in ablations(runs):
        console.print(report.table(found))
        save(report.reports(found), out=runs[0][0].parent, console=console)
    return bench.exit_code([record for _, record in runs])


def stages(request: Request, ground: Ground, *, scale: int, batches: Sequence[int]) -> Iterator[Request]:
    """The request of each line, the plain one first.

    Raises:
        RequestError: the program has no technique here.
    """
    tuned = techniques.settle(request.model_copy(update={"preset": "tuned"}), ground)
    strategy = "single" if scale == 1 else request.strategy or "ddp"
    names = techniques.of_trial(tuned, world_size=scale, strategy=strategy)
    plain = request.model_copy(update={"preset": "reference", "techniques": ()})
    yield plain
    if tuned.precision != plain.precision:
        yield plain.model_copy(update={"precision": tuned.precision})
    for count in range(1, len(names) + 1):
        yield plain.model_copy(update={"precision": tuned.precision, "techniques": names[:count]})
    for batch in batches:
        yield plain.model_copy(update={"precision": tuned.precision, "techniques": names, "batch": batch})
