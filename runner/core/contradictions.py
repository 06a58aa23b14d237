"""What a request may not combine, refused before anything is looked at."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final

from runner.core.errors import RequestError
from runner.core.request import BARE_ENGINES, NARROWED, Request

# What can be asked of a program that is not the suite's; all else describes the suite's own training programs.
FOREIGN: Final = frozenset(
    {"image", "mounts", "dialect", "command", "gpus", "workers", "device", "batch", "warmup", "repeat", "data"}
    | {"engine", "out", "timeout_s", "inactivity_timeout_s", "telemetry_hz", "idle_s"}
)


def request_of(asked: Mapping[str, object]) -> Request:
    """Make the request of what was asked by name; what is None was not, and is left to the defaults, which so can tell what was given.

    Raises:
        RequestError: words that exclude each other, or half of a request about an image.
    """
    request = Request.model_validate({name: value for name, value in asked.items() if value is not None})
    refuse_contradictions(request)
    refuse_mixture(request)
    return request


def refuse_mixture(request: Request) -> None:
    """Refuse words that belong to the suite's own programs beside a command line that does not, and the other way round.

    Raises:
        RequestError: half of such a request, or a flag that would be ignored; the sentence names it.
    """
    if request.image is None:
        if request.engine == "host":
            _refuse_of_host(request)
        _refuse_without_image(request)
        return
    if not request.command:
        _refuse_without_command(request, request.image)
    elif misplaced := sorted(request.model_fields_set - FOREIGN):
        flags = " and ".join("--" + re.sub("_(mib|ms|s)$", "", name).replace("_", "-") for name in misplaced)
        verb = "describes" if len(misplaced) == 1 else "describe"
        raise RequestError(
            f"{flags} {verb} a training program of the suite, --image runs your own command; say it in that"
        )
    if request.engine in BARE_ENGINES:
        raise RequestError(
            f"ENGINE={request.engine} asked, and --image {request.image} runs in a container; ask for ENGINE=docker"
        )
    if request.mounts and request.hosts:
        raise RequestError(
            f"MOUNT shows folders of this machine, and HOSTS={request.hosts} names others; leave MOUNT out, or put what it shows into the image"
        )
    if request.command:
        _refuse_of_command(request)


def _refuse_of_host(request: Request) -> None:
    """Refuse what picks or changes an image where the machine's own software runs as it is, or does not say which framework of it."""
    if request.framework is None:
        raise RequestError(
            "ENGINE=host runs a framework that is installed here, and none is named; add FRAMEWORK=mxnet, pytorch or tensorflow"
        )
    if request.version:
        raise RequestError(
            f"VERSION={request.version} picks an image of the suite, and ENGINE=host runs the version that is installed here; leave one of "
            "them out"
        )
    if request.mounts:
        raise RequestError(
            f"MOUNT={request.mounts[0].source} shows a folder in a container, and ENGINE=host has none; leave one of them out"
        )


def _refuse_without_image(request: Request) -> None:
    """Refuse what says something about an image that nobody gave."""
    if request.command:
        raise RequestError(
            f"{shlex.join(request.command)!r} is a command without an image to run it in; "
            "type `dlscale bench --image IMG -- COMMAND ...`, or leave it out to train a model of the suite"
        )
    if request.dialect:
        raise RequestError("--dialect reads the log of a command of yours; give --image IMG and -- COMMAND ... too")
    if request.mounts:
        raise RequestError(
            f"MOUNT={request.mounts[0].source} shows a folder in an image that is given; add IMAGE=..., or leave it out: the suite's own "
            "images have all they need"
        )


def _refuse_without_command(request: Request, image: str) -> None:
    """Refuse what does not say which of the suite's programs an image is to run."""
    if request.framework is None:
        raise RequestError(
            f"--image {image} without a command; type `dlscale bench --image {image} -- COMMAND ...` to run a command of yours in it, or "
            "add FRAMEWORK=... to train a model of the suite with the framework that it has"
        )
    if request.version:
        raise RequestError(
            f"VERSION={request.version} picks an image of the suite, and --image {image} is given; leave one of them out"
        )
    if request.dialect:
        raise RequestError("--dialect reads the log of a command of yours; give -- COMMAND ... too, or leave it out")


def _refuse_of_command(request: Request) -> None:
    """Refuse what a command line of the user's can't be asked, or lacks."""
    for variable, asked in (("GPUS", request.gpus), ("WORKERS", request.workers)):
        if asked and len(asked) > 1:
            raise RequestError(
                f"{variable}={','.join(map(str, asked))} is a sweep, and a command line is written for one number of devices; "
                f"give one number, for example {variable}={asked[-1]}"
            )
    if request.dialect == "mxnet" and request.batch is None:
        raise RequestError(
            "MXNet's log does not tell the batch size; give --batch N, the samples that a device takes at once"
        )


def refuse_contradictions(request: Request) -> None:
    """Refuse words that exclude each other, before anything is looked at.

    Raises:
        RequestError: both kinds of device, nodes without machines to be them, a network on one host, or a profiler's settings without
            one.
    """
    _refuse_nodes(request)
    _refuse_profile(request)
    if request.gpus and (request.workers or request.device == "cpu"):
        other = "WORKERS" if request.workers else "DEVICE=cpu"
        raise RequestError(f"GPUS and {other} exclude each other; ask for GPUS=n, or for DEVICE=cpu WORKERS=n")
    if request.workers and request.device == "gpu":
        raise RequestError("WORKERS counts CPU workers and DEVICE=gpu asks for GPUs; ask for GPUS=n instead")
    _refuse_modes(request)
    _refuse_input(request)
    if request.techniques and request.preset == "tuned":
        raise RequestError("PRESET=tuned is all techniques that there are here, TECHNIQUES some; give one of them")
    if request.iterations and request.epochs:
        raise RequestError("ITERATIONS and EPOCHS say the same thing twice; give one of them")


def _refuse_modes(request: Request) -> None:
    """Refuse what a mode would ignore."""
    if request.mode == "infer":
        if request.techniques or request.preset == "tuned":
            variable = "TECHNIQUES" if request.techniques else "PRESET=tuned"
            raise RequestError(f"{variable} makes training faster, and MODE=infer does not train; leave it out")
        if request.profile:
            raise RequestError("PROFILE looks into training, and MODE=infer does not train; leave one of them out")
        if request.strategy not in (None, "single"):
            raise RequestError(f"STRATEGY={request.strategy} joins devices, and MODE=infer has one; leave it out")
    elif request.fit is not None:
        raise RequestError(
            f"FIT trains before inference, and MODE={request.mode} is none; add MODE=infer or leave it out"
        )
    if request.mode == "converge":
        for variable, given in (("ITERATIONS", request.iterations), ("PROFILE", request.profile)):
            if given:
                raise RequestError(f"{variable} does not go with MODE=converge, which trains by EPOCHS; leave it out")
    if request.concurrent:
        _refuse_concurrent(request)


def _refuse_input(request: Request) -> None:
    """Refuse ways to read data where there are none to read, or where they can't be gone."""
    for variable, given in (("DECODE=gpu", request.decode == "gpu"), ("LOADER_WORKERS", request.loader_workers)):
        if given and request.data is None:
            raise RequestError(f"{variable} is about real data, and none are given; add DATA=DIR, or leave it out")
    if request.decode == "gpu":
        if request.device == "cpu" or request.workers:
            raise RequestError(
                "DECODE=gpu decodes on the GPU that trains, and CPUs are asked for; ask for GPUS=n instead"
            )
        if request.mode == "infer":
            raise RequestError("DECODE=gpu feeds a training, and MODE=infer does not train; leave it out")


def _refuse_concurrent(request: Request) -> None:
    """Refuse what has no meaning beside trainings at once on one machine."""
    if request.mode != "train":
        raise RequestError(f"CONCURRENT counts trainings, and MODE={request.mode} asked; leave one of them out")
    if request.concurrent == 1:
        raise RequestError("CONCURRENT=1 is one training beside none; ask for CONCURRENT=2 or more, or leave it out")
    for variable, given in (
        ("PROFILE", request.profile),
        ("HOSTS", request.hosts),
        ("NODES", request.nodes),
        ("COMPARE", request.compare),
    ):
        if given:
            raise RequestError(
                f"{variable} does not go with CONCURRENT, which runs trainings at once on one machine; leave one of them out"
            )


def _refuse_profile(request: Request) -> None:
    """Refuse settings of a pass under a profiler that nobody asked for, or that does not know them."""
    if not request.profile:
        given = sorted(name for name in request.model_fields_set if name.startswith("profile_"))
        if given:
            variables = " and ".join(name.removesuffix("_s").upper() for name in given)
            verb = "describes" if len(given) == 1 else "describe"
            raise RequestError(
                f"{variables} {verb} a pass under a profiler, and none is asked for; add PROFILE=kernels"
            )
        return
    if "metrics" in request.profile and not request.telemetry_hz:
        raise RequestError(
            "PROFILE=metrics has the counters read by the node's sampler where ncu can't, and TELEMETRY_HZ=0 asks for none; leave it out"
        )
    if request.profile_region and not set(request.profile) & set(NARROWED):
        raise RequestError(
            f"PROFILE_REGION={request.profile_region} narrows PROFILE={' and '.join(NARROWED)}, and PROFILE={','.join(request.profile)} tells of "
            "all regions; leave it out"
        )


def _refuse_nodes(request: Request) -> None:
    """Refuse several nodes where there is one machine, or a program that knows one; and a network where there is one node."""
    several = request.hosts is not None or (request.nodes or 1) > 1
    if several and request.framework == "caffe":
        raise RequestError(
            "FRAMEWORK=caffe on several nodes asked, but Caffe has no distributed training; ask for one node and GPUS=n, or for "
            "FRAMEWORK=mxnet, pytorch or tensorflow"
        )
    if several and request.engine in BARE_ENGINES:
        raise RequestError(
            f"ENGINE={request.engine} runs on this machine alone; leave it out: several nodes run in containers"
        )
    if several and request.command:
        raise RequestError(
            "--image runs a command of yours on one host; leave HOSTS and NODES out, or train a model of the suite on several"
        )
    if request.links and request.hosts:
        raise RequestError(
            f"LINK_RATE and LINK_DELAY slow the links of nodes that are emulated on this machine, and HOSTS={request.hosts} names real "
            "ones, whose links are never touched; leave one of them out"
        )
    if request.links and not several:
        raise RequestError(
            "LINK_RATE and LINK_DELAY slow the links between nodes, and there is one node; add NODES=2 to emulate two on this machine"
        )
    if several and not request.hosts and not request.links:
        raise RequestError(
            f"NODES={request.nodes} asked, but no machines for them; add HOSTS=hosts.yaml (or HOSTS=a:4,b:4), or LINK_RATE=1gbit to emulate "
            "them on this machine"
        )
    network = [kind for kind in request.interconnect if kind in ("ethernet", "infiniband", "roce")]
    if not several and (network or request.iface or request.hca):
        asked = network[0] if network else None
        word = f"INTERCONNECT={asked}" if asked else f"IFACE={request.iface}" if request.iface else f"HCA={request.hca}"
        raise RequestError(
            f"{word} asked, but a job on one host crosses no network; ask for INTERCONNECT=auto, nvlink, pcie, shm or loopback, or add HOSTS"
        )
