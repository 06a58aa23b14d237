"""Predicates on what ran by name: `runs_kernel`, `top`, `flags`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runner.experiments.studies.evidence import Answer, Scene, answer, shown
from runner.experiments.studies.matching import told_apart
from runner.experiments.studies.model import Observation
from runner.results.published.findings import Flags, RunsKernel, Top
from runner.results.published.selector import Selector

# What stands for the remarks of NVIDIA's Visual Profiler, whose own limits are not documented. A copy over PCIe reaches about half of what
# the bus can do at 64 KiB; half of PCIe 3.0 ×16, the bus of the source's GPUs, is 8 GB/s; a tenth hidden behind kernels is hardly any.
_LIMITS: Final = {
    "inefficient_memcpy_size": ("copy_size", 65536 / 1e6),
    "low_memcpy_throughput": ("copy_throughput", 8.0),
    "low_memcpy_overlap": ("copy_overlap", 10.0),
}


def runs_kernel(predicate: RunsKernel, scene: Scene) -> Answer:
    """Whether the kernel is among those that a pass lists, which are the ones that take most time."""
    own = scene.of("kernel_time_share", Selector(gpu=(predicate.gpu,)))
    if not own:
        return Answer(None, scene.nothing("kernel", Selector(gpu=(predicate.gpu,))))
    found = [one for one in own if one.name and predicate.kernel in one.name]
    if found:
        return answer(True, f"{found[0].name} takes {shown(found[0])}", *found)  # noqa: FBT003 - an answer
    return answer(False, f"none of the {len(own)} kernels that take most time", *own)  # noqa: FBT003


def top(predicate: Top, pool: Sequence[Observation], scene: Scene) -> list[Answer]:
    """As many names as it has, by size, are its own, in any order."""
    groups: dict[tuple[object, ...], list[Observation]] = {}
    for one in pool:
        groups.setdefault((one.where, one.case), []).append(one)
    answers = []
    firsts = [group[0] for group in groups.values()]
    for group in groups.values():
        largest = sorted(group, key=lambda one: one.value, reverse=True)[: len(predicate.names)]
        listed = ", ".join(f"{one.name} {shown(one)}" for one in largest)
        label = told_apart(firsts, group[0], but={"name"})
        holds = {one.name for one in largest} == set(predicate.names)
        answers.append(answer(holds, f"{label + ': ' if label else ''}{listed}", *largest))
    return answers or [Answer(None, scene.nothing(predicate.metric, Selector()))]


def flags(predicate: Flags, scene: Scene) -> list[Answer]:
    """Each remark that a limit stands for here is raised by the figure that it is about."""
    answers = []
    for name in predicate.names:
        metric, limit = _LIMITS.get(name, (None, 0.0))
        if metric is None:
            answers.append(Answer(None, f"nothing here raises {name}"))
            continue
        own = scene.of(metric, predicate.select)
        answers += [answer(one.value < limit, f"{name}: {shown(one)}, limit {limit:.3g}", one) for one in own]
        if not own:
            answers.append(Answer(None, scene.nothing(metric, predicate.select)))
    return answers
