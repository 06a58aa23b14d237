"""The support matrix: which image can train with which strategy, and where each was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runner.core.record import RunRecord
from runner.core.request import StrategyName
from runner.core.trial import Trial
from runner.images.spec import ImageSpec
from runner.plan.strategy import offered

HEADERS = ("image", "device", "compute capability", "driver", "strategy", "ran on")
NOWHERE = "not yet"


def support_matrix(images: Sequence[ImageSpec], records: Iterable[RunRecord]) -> str:
    """A Markdown table with one row for each image and strategy.

    Args:
        images: in the order of the rows.
        records: whatever was measured; those whose figures may not be used, passes under a profiler, and software that is in no image do
            not count.
    """
    ran = [
        (record.trial, record)
        for record in records
        if record.validity.status != "invalid"
        and isinstance(record.trial, Trial)
        and not record.profiled
        and record.engine != "host"
    ]
    lines = [HEADERS, ("---",) * len(HEADERS)]
    lines += [_row(image, strategy, ran) for image in images for strategy in strategies_of(image)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def strategies_of(image: ImageSpec) -> tuple[StrategyName, ...]:
    """The strategies that an image can train with: one of the suite's with Horovod is built for that alone, a vendor's may have it too."""
    if image.extension:
        return (image.extension,)
    return tuple(name for name in offered(image) if name != "horovod" or name in image.brings)


def _row(image: ImageSpec, strategy: StrategyName, ran: Sequence[tuple[Trial, RunRecord]]) -> tuple[str, ...]:
    own = [
        (trial, record)
        for trial, record in ran
        if (trial.framework, trial.version, trial.strategy) == (image.framework, image.version, strategy)
    ]
    return (
        image.name,
        "GPU" if image.device == "gpu" else "CPU",
        ", ".join(image.compute_capabilities) + (" and newer" if image.ptx else ""),
        f"≥ {image.minimum_driver}" if image.minimum_driver else "",
        _with_kinds(strategy, [trial for trial, _ in own]),
        "; ".join(dict.fromkeys(_place(record) for _, record in own)) or NOWHERE,
    )


def _with_kinds(strategy: StrategyName, trials: Sequence[Trial]) -> str:
    """A strategy and, where it has several, the stores or controllers that ran."""
    kinds: set[str] = {trial.kvstore for trial in trials if trial.kvstore}
    kinds |= {trial.horovod.controller for trial in trials if trial.horovod}
    return f"{strategy} ({', '.join(sorted(kinds))})" if kinds else strategy


def _place(record: RunRecord) -> str:
    """What a run had: so many of which devices, on how many nodes, and whether those are emulated."""
    count = record.trial.world_size
    nodes = f" on {record.trial.nodes} nodes" if record.trial.nodes > 1 else ""
    if record.transport.emulated:
        nodes += " (emulated)"
    if record.trial.device == "gpu":
        names = [gpu.name for gpu in record.provenance.gpus[:1]]
        return f"{count} × {names[0] if names else 'unknown GPU'}{nodes}"
    workers = f"{count} CPU worker{'s' if count > 1 else ''}"
    return f"{workers}{nodes}, {record.provenance.host.cpu_model or 'unknown processor'}"
