"""Techniques that make training or inference faster than the plain program: named by TECHNIQUES, or with PRESET=tuned all that help here. Pure.

`reference` is the program that a paper would have run. `tuned` is the best that the framework can do on the device; its precision,
unless requested, is bf16, which has the range of fp32, or else fp16 if a technique (`amp`) scales its losses. Programs implement the techniques
(`workloads/with_<framework>/techniques.py`); a workload's file lists those that apply to it, in the order of an ablation's lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runner.core.errors import RequestError, nearest
from runner.core.request import Precision, Request, StrategyName, Technique
from runner.core.strategies import STRATEGIES
from runner.images.spec import capability_number
from runner.plan.discovery import Resources

# First compute capability whose tensor cores support bf16 (CUDA C++ Programming Guide, "Arithmetic Instructions").
_BF16_FROM: Final = (8, 0)
_BETWEEN_RANKS: Final[frozenset[Technique]] = frozenset({"local-statistics", "one-message", "bf16-gradients"})
# One message comes after the backward pass; between nodes the exchange takes as long as that, and must overlap with it.
_WITHIN_A_NODE: Final[frozenset[Technique]] = frozenset({"one-message"})
# A graph cannot record what another thread sends.
_ONE_THREAD: Final[frozenset[Technique]] = frozenset({"cuda-graphs"})
# These keep a reference to one network.
_ONE_NETWORK: Final[frozenset[Technique]] = frozenset({"compile", "kernel-search", "cuda-graphs"})
# Not with layers that are split among devices: compiling fails (PyTorch 2.13: a gradient that is no DTensor), the kernel reads all scores of a token.
_WHOLE_LAYERS: Final[frozenset[Technique]] = frozenset({"loss-kernel", "compile", "kernel-search"})
# Eager steps before the step that is recorded as a graph, and profiles that divide a step (workloads/with_pytorch/techniques.py).
_EAGER_STEPS: Final = 11
_REGION_PROFILES: Final = frozenset({"memory", "region"})
# Precisions that a technique's kernel supports.
_PRECISIONS: Final[dict[Technique, tuple[Precision, ...]]] = {
    "cudnn-attention": ("bf16", "fp8"),
    "persistent-norm": ("bf16", "fp16"),
    "amp": ("fp16",),
}
# These update weights in the workers; an asynchronous store updates them in its servers.
_IN_WORKERS: Final[frozenset[Technique]] = frozenset({"amp", "aggregated-updates"})
# Repeats one batch inside a graph.
_SYNTHETIC: Final[frozenset[Technique]] = frozenset({"step-loop"})
# Techniques that depend on another one: on its memory layout, or on its compiler.
_NEEDS: Final[dict[Technique, Technique]] = {
    "pooling-kernel": "channels-last",
    "kernel-search": "compile",
    "persistent-norm": "channels-last",
    "pooling-index": "xla",
}


def apply_defaults(request: Request, resources: Resources) -> Request:
    """Replace a preset by its precision and techniques here. Raises RequestError if the program does not offer the requested ones."""
    framework, device = resources.image.framework, resources.device
    offered = resources.workload.techniques_of(framework=framework, device=device, mode=request.mode)
    if request.preset == "reference":
        _refuse_unknown(request, offered, resources)
        return request
    if not offered:
        raise RequestError(
            f"PRESET=tuned of {resources.workload.name} is not offered by {_program(request, resources)}; leave it out"
        )
    precision = request.precision
    if "precision" not in request.model_fields_set:
        if _has_bf16(resources):
            precision = "bf16"
        elif "amp" in offered and request.kvstore != "dist_async":
            precision = "fp16"
    tuned = request.model_copy(update={"techniques": offered, "precision": precision})
    excluded = {"cuda-graphs"} if _no_graph(tuned) else set()
    excluded |= _ONE_NETWORK if STRATEGIES[request.strategy or "single"].copies_network else set()
    excluded |= {name for name, known in _PRECISIONS.items() if precision not in known}
    excluded |= _SYNTHETIC if request.data else set()
    excluded |= {"xla"} if request.xla else set()
    excluded |= _IN_WORKERS if request.kvstore == "dist_async" else set()
    excluded |= _WITHIN_A_NODE if len(resources.cluster.members) > 1 else set()
    return tuned.model_copy(update={"techniques": tuple(name for name in offered if name not in excluded)})


def effective(request: Request, *, strategy: StrategyName) -> tuple[Technique, ...]:
    """The techniques of a request, its preset applied, that work and have an effect with one strategy."""
    facts = STRATEGIES[strategy]
    without_effect = _ONE_THREAD if facts.sends_by_thread else frozenset[Technique]()
    without_effect |= _WHOLE_LAYERS if facts.splits_layers else frozenset()
    without_effect |= frozenset() if facts.tunes_exchange else _BETWEEN_RANKS
    return tuple(name for name in request.techniques if name not in without_effect)


def refuse_without_effect(request: Request, *, strategy: StrategyName, most: int) -> None:
    """Raise RequestError if a technique that was asked for by name has no effect with a strategy on `most` devices; a preset leaves it out."""
    kept = effective(request, strategy=strategy)
    if (
        most > 1
        and request.preset == "reference"
        and (lost := [name for name in request.techniques if name not in kept])
    ):
        raise RequestError(f"TECHNIQUES={','.join(lost)} has no effect with STRATEGY={strategy}; leave it out")


def _refuse_unknown(request: Request, offered: Sequence[Technique], resources: Resources) -> None:
    where = _program(request, resources)
    available = {*request.techniques, *(["xla"] if request.xla else [])}
    for name in request.techniques:
        if name not in offered:
            ask = f"ask for {nearest(name, offered)}" if offered else "leave it out"
            raise RequestError(f"TECHNIQUES={name} of {resources.workload.name} is not offered by {where}; {ask}")
        if STRATEGIES[request.strategy or "single"].copies_network and name in _ONE_NETWORK:
            raise RequestError(
                f"TECHNIQUES={name} keeps one network, but STRATEGY={request.strategy} copies it in each step; ask for STRATEGY=ddp"
            )
        if (needed := _NEEDS.get(name)) and needed not in available:
            raise RequestError(f"TECHNIQUES={name} needs {needed}; ask for TECHNIQUES={needed},{name}")
        if request.precision not in _PRECISIONS.get(name, (request.precision,)):
            known = " or ".join(_PRECISIONS[name])
            raise RequestError(
                f"TECHNIQUES={name} needs PRECISION={known}, {request.precision} asked; ask for PRECISION={known}"
            )
        if name in _IN_WORKERS and request.kvstore == "dist_async":
            raise RequestError(
                f"TECHNIQUES={name} updates weights in the workers, and KVSTORE=dist_async in its servers; ask for KVSTORE=dist_sync"
            )
        if name in _SYNTHETIC and request.data:
            raise RequestError(
                f"TECHNIQUES={name} repeats one batch inside a graph, and DATA has a new one for each step; leave one of them out"
            )
    if "cuda-graphs" in request.techniques and (why := _no_graph(request)):
        raise RequestError(f"TECHNIQUES=cuda-graphs does not go with {why}")


def _program(request: Request, resources: Resources) -> str:
    of_mode = "" if request.mode == "train" else f" with MODE={request.mode}"
    return f"FRAMEWORK={resources.image.framework} on DEVICE={resources.device}{of_mode}"


def _no_graph(request: Request) -> str | None:
    """Why a step cannot be recorded as a graph, with the remedy; None if it can."""
    if request.mode == "infer":  # inference decides nothing by its data
        return None
    if request.warmup is not None and request.warmup <= _EAGER_STEPS:
        return (
            f"WARMUP={request.warmup}, which ends before a step is recorded; ask for WARMUP={_EAGER_STEPS + 1} or more"
        )
    if request.precision == "fp16":
        return "PRECISION=fp16, whose loss scaling makes a decision in every step; ask for PRECISION=bf16"
    if request.profile_region:
        return (
            f"PROFILE_REGION={request.profile_region}, because it makes a step a single launch; leave one of them out"
        )
    if whole := [kind for kind in request.profile if kind in _REGION_PROFILES]:
        return f"PROFILE={','.join(whole)}, because it makes a step a single launch; leave one of them out"
    return None


def _has_bf16(resources: Resources) -> bool:
    precisions = resources.workload.precisions.get(resources.image.framework, {}).get(resources.device, ())
    gpus = [gpu for member in resources.cluster.members for gpu in member.node.gpus]
    supported = all(capability_number(gpu.compute_capability) >= _BF16_FROM for gpu in gpus)
    return resources.device == "gpu" and "bf16" in precisions and supported
