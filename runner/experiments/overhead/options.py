"""The commands of a round: a request → the words of each `dlscale bench`, so that its trial is the one that was asked for. Pure."""

from __future__ import annotations

from typing import Final

from runner.core.errors import RequestError
from runner.core.request import EngineName, Request
from runner.core.trial import Trial
from runner.plan.discovery import Resources

BARE: Final = {name: f"imagenet_cnn/bare_{name}.py" for name in ("mxnet", "pytorch", "tensorflow")}
"""Plain loops by framework, in `workloads/`."""
BARE_TECHNIQUES: Final = frozenset({"channels-last", "fused-optimizer"})
"""What PyTorch's loop can have: a plain program has these too."""
GIVEN: Final = ("batch", "image_size", "precision", "preset", "techniques", "threads", "iterations", "warmup", "seed")
"""Fields of a request that are passed on where the user gave them; all else is said anyway."""


def refuse(request: Request, resources: Resources, *, beside_host: bool) -> None:
    """Refuse, by a RequestError, what leaves nothing to measure: a framework whose own binary is the loop, several devices, a host beside itself."""
    if resources.image.framework not in BARE:
        raise RequestError(
            f"FRAMEWORK={resources.image.framework} trains in its own program, which the suite only starts; ask for {', '.join(BARE)}"
        )
    for variable, asked in (("GPUS", request.gpus), ("WORKERS", request.workers)):
        if asked and asked != (1,):
            told = ",".join(map(str, asked))
            raise RequestError(
                f"{variable}={told} asked, and what the suite costs is measured on one device; ask for {variable}=1"
            )
    if beside_host and resources.engine.name == "host":
        raise RequestError(
            "--beside-host holds another engine against ENGINE=host, which is the only one asked for; leave one of them out"
        )


def bench(
    request: Request, resources: Resources, trial: Trial, *, engine: EngineName, telemetry_hz: int
) -> tuple[str, ...]:
    """The words after `dlscale` of one side; the place of its record is left to the caller.

    By engine, `host` takes what is installed, all others the very image of the resources. `telemetry_hz` 0 is without samplers.
    """
    return (
        "bench",
        "--gpus=1" if trial.device == "gpu" else "--workers=1",
        "--repeat=1",
        f"--framework={trial.framework}",
        *(() if engine == "host" else resources.image.flags),
        f"--model={trial.model}",
        f"--engine={engine}",
        *(f"--{name.replace('_', '-')}={_word(getattr(request, name))}" for name in GIVEN if _given(request, name)),
        f"--telemetry-hz={telemetry_hz}",
        "--idle=0",
    )


def has_bare_loop(trial: Trial) -> bool:
    """Whether the bare loop is the same training: a classifier's; PyTorch's loop knows devices, precisions and what costs a word."""
    if trial.workload != "imagenet_cnn":
        return False
    if trial.framework == "pytorch":
        return trial.precision != "fp16" and BARE_TECHNIQUES.issuperset(trial.techniques)
    return trial.device == "cpu" and trial.precision == "fp32" and not trial.techniques


def bare(trial: Trial) -> tuple[str, ...]:
    """The words after the program of the bare loop."""
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
    return tuple(f"--{name}={_word(value)}" for name, value in flags.items())


def on_host(request: Request, framework: str) -> Request:
    """The same request of the machine's own software."""
    plain = {"image": None, "mounts": (), "version": None}
    return request.model_copy(update={"engine": "host", "framework": framework, **plain})


def _given(request: Request, name: str) -> bool:
    return name in request.model_fields_set and getattr(request, name) not in (None, ())


def _word(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
