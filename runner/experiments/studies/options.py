"""The cells of a curve → what to ask of `bench` for them. Pure.

Cells of one curve share a request, so that their devices are the same at every scale: a CPU worker has as many cores in each. Scales of
several nodes have a request of their own, a sweep over the networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from runner.core.request import Interconnect, Request, Scaling
from runner.core.wire import Link, parse_rate
from runner.experiments.studies.block_context import Leaf, Setting
from runner.experiments.studies.model import Pick

Asked = tuple[Request, Pick]


def ask(setting: Setting, leaves: Sequence[Leaf]) -> dict[Leaf, Asked]:
    """Requests for the leaves of one curve: equal in all but scale, network and case.

    Args:
        setting: the block on this machine.
        leaves: those that can run here.
    """
    found = dict(_one_node(setting, [leaf for leaf in leaves if leaf.point.nodes == 1]))
    for point in dict.fromkeys(leaf.point for leaf in leaves if leaf.point.nodes > 1):
        found |= dict(_several_nodes(setting, [leaf for leaf in leaves if leaf.point == point]))
    return found


def interconnect(setting: Setting, network: str | None) -> Interconnect:
    """What stands for a network of the source between real hosts."""
    return setting.study.networks[network].interconnect if network else "auto"


def link(setting: Setting, network: str | None) -> Link | None:
    """What stands for it between emulated nodes; None for links as they are."""
    rate = setting.study.networks[network].rate if network else None
    return Link(rate_mbit=parse_rate(rate), emulated=True) if rate else None


def _one_node(setting: Setting, leaves: Sequence[Leaf]) -> Iterator[tuple[Leaf, Asked]]:
    """One request for all scales if the batch of a device is the same at each, or that of all devices; else one for each."""
    if len({leaf.each for leaf in leaves}) == 1:
        groups: list[tuple[Sequence[Leaf], Scaling]] = [(leaves, "weak")]
    elif len({_of_all(leaf) for leaf in leaves}) == 1:
        groups = [(leaves, "strong")]
    else:
        groups = [([leaf], "weak") for leaf in leaves]
    hosts = setting.machine.hosts if setting.block.networks else None
    more = {"hosts": hosts, "nodes": 1} if hosts else {}
    for group, scaling in groups:
        scales = tuple(sorted({leaf.point.gpus for leaf in group}))
        batch = group[0].each if scaling == "weak" else _of_all(group[0])
        request = _request(setting, group[0], scales=scales, batch=batch, scaling=scaling, **more)
        for leaf in group:
            case = setting.block.cases[leaf.case] if leaf.case else None
            yield leaf, (request, _pick(setting, leaf, case=case))


def _several_nodes(setting: Setting, leaves: Sequence[Leaf]) -> Iterator[tuple[Leaf, Asked]]:
    """One request for a scale, a sweep over its networks."""
    first, hosts = leaves[0], setting.machine.hosts
    point = first.point
    if hosts:
        kinds = tuple(dict.fromkeys(interconnect(setting, leaf.network) for leaf in leaves))
        more: dict[str, Any] = {"hosts": hosts, "interconnect": kinds}
    else:
        more = {"links": tuple(dict.fromkeys(link(setting, leaf.network) for leaf in leaves))}
    request = _request(
        setting, first, scales=(point.gpus,), batch=first.each, scaling="weak", nodes=point.nodes, **more
    )
    for leaf in leaves:
        if hosts:
            pick = _pick(setting, leaf, interconnect=interconnect(setting, leaf.network))
        else:
            pick = _pick(setting, leaf, link=link(setting, leaf.network))
        yield leaf, (request, pick)


def _pick(setting: Setting, leaf: Leaf, **more: Any) -> Pick:
    measured = not setting.block.passes_only
    return Pick(devices=leaf.point.gpus, nodes=leaf.point.nodes, measured=measured, **more)


def _of_all(leaf: Leaf) -> int | None:
    return leaf.each * leaf.point.gpus if leaf.each is not None else None


def _request(
    setting: Setting, leaf: Leaf, *, scales: tuple[int, ...], batch: int | None, scaling: Scaling, **more: Any
) -> Request:
    """What the study says; all else stays at the suite's default. Several devices share the iterations of one."""
    block, image, device = setting.block, setting.image, setting.device
    several = scales[-1] > 1 and block.device == "gpu"
    # A sampler counts nothing on a CPU, so that a pass for its counters would find nothing there.
    profile = tuple(kind for kind in block.profile if device == "gpu" or kind != "metrics")
    samples = setting.shortened("samples")
    asked: dict[str, Any] = {
        "framework": setting.framework,
        "version": image.version if image else None,
        "model": leaf.model,
        "device": device,
        "gpus": scales if device == "gpu" else None,
        "workers": (scales if block.device == "gpu" else (1,)) if device == "cpu" else None,
        # A core in place of a GPU, also where it is alone.
        "threads": 1 if device == "cpu" and block.device == "gpu" else None,
        "batch": batch,
        "image_size": setting.shortened("image_size"),
        "strategy": block.strategy if several else None,
        "kvstore": block.kvstore if several else None,
        "precision": leaf.precision,
        "mode": block.mode,
        "iterations": -(-samples // leaf.batch) if samples else setting.shortened("iterations"),
        "epochs": setting.shortened("epochs"),
        "warmup": setting.shortened("warmup"),
        "fit": setting.shortened("fit"),
        "concurrent": block.concurrent,
        "scaling": scaling,
        "repeat": 1 if setting.small else setting.study.repeat,
        "data": setting.images,
        **more,
    }
    if profile:
        asked |= {
            "profile": profile,
            "profile_after": setting.shortened("profile_after"),
            "profile_iterations": setting.shortened("profile_iterations"),
            "profile_region": block.profile_region,
        }
    return Request.model_validate({name: value for name, value in asked.items() if value is not None})
