"""Refuses contradictory requests before anything is inspected. Each function yields the sentences that object to a request."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from runner.core import parsing
from runner.core.errors import RequestError, shorten
from runner.core.request import BARE_ENGINES, COMMAND_OPTIONS, LOGIN_ENGINES, NARROWED, SLURM, Request

_NAME: Final = re.compile(r"\w[\w .+:-]{0,79}")
# The options of an external program; all others describe the suite's own training programs.
EXTERNAL_OPTIONS: Final = frozenset(
    {"image", "mounts", "command", "gpus", "workers", "device", "batch", "scaling", "warmup", "repeat", "data"}
    | {"engine", "out", "timeout_s", "inactivity_timeout_s", "telemetry_hz", "idle_s"}
    | COMMAND_OPTIONS.keys()
)


def request_of(options: Mapping[str, object]) -> Request:
    """Build a request from options by name. None counts as unset, so that the request knows which fields were set."""
    request = Request.model_validate({name: value for name, value in options.items() if value is not None})
    refuse_contradictions(request)
    return request


def refuse_contradictions(request: Request) -> None:
    """Refuse options that exclude each other, that lack an option they depend on, or that would be ignored."""
    first = (_of_clusters, _of_nodes, _of_profile, _of_devices, _of_modes)
    for of_subject in (*first, _of_concurrent, _of_input, _of_duplicates, _of_image):
        if sentence := next(of_subject(request), None):
            raise RequestError(sentence)


def _of_nodes(request: Request) -> Iterator[str]:
    """Several nodes with only one machine or a single-node program; a network with only one node."""
    several = request.hosts is not None or request.cluster is not None or (request.nodes or 1) > 1
    if several and request.framework == "caffe":
        yield (
            "FRAMEWORK=caffe runs on one node only: Caffe has no distributed training; ask for one node and GPUS=n, or for "
            "FRAMEWORK=mxnet, pytorch or tensorflow"
        )
    if several and request.command:
        yield "--image runs a command of yours on one host only; leave HOSTS and NODES out, or train a model of the suite on several"
    if request.links and request.hosts:
        yield (
            f"LINK_RATE and LINK_DELAY slow links of emulated nodes only, and HOSTS={request.hosts} names real hosts; leave one of "
            "them out"
        )
    if request.links and not several:
        yield "LINK_RATE and LINK_DELAY slow the links between nodes, and there is only one; add NODES=2 to emulate two on this machine"
    if several and not request.hosts and not request.cluster and not request.links:
        yield (
            f"NODES={request.nodes} needs hosts to run on; add HOSTS=hosts.yaml (or HOSTS=a:4,b:4), or LINK_RATE=1gbit to emulate "
            "them on this machine"
        )
    network = [kind for kind in request.interconnect if kind in ("ethernet", "infiniband", "roce")]
    if not several and (network or request.iface or request.hca):
        variables = {"INTERCONNECT": network[0] if network else None, "IFACE": request.iface, "HCA": request.hca}
        name, value = next(item for item in variables.items() if item[1])
        yield (
            f"{name}={value} needs several hosts: a job on one host uses no network; ask for INTERCONNECT=auto, nvlink, pcie, shm or loopback, or "
            "add HOSTS"
        )


def _of_clusters(request: Request) -> Iterator[str]:
    """Slurm's nodes combined with others, and engines that don't run there."""
    several = request.hosts is not None or (request.nodes or 1) > 1
    slurm = SLURM in (request.hosts, request.cluster)
    if several and not slurm and request.engine not in (None, "docker", *(LOGIN_ENGINES if request.hosts else ())):
        yield (
            f"ENGINE={request.engine} emulates no nodes and runs on no other machines; leave it out, or ask for ENGINE=apptainer, podman or "
            "venv on HOSTS"
        )
    if request.cluster and request.hosts:
        yield f"CLUSTER={request.cluster} allocates nodes, and HOSTS={request.hosts} names others; leave one of them out"
    if request.slurm_flags and not request.cluster:
        yield f"SLURM_FLAGS={request.slurm_flags} apply only with CLUSTER=slurm; add that, or leave them out"
    if slurm and request.links:
        yield "LINK_RATE and LINK_DELAY slow links of emulated nodes only, and Slurm's nodes are real; leave them out"
    if slurm and request.engine in ("docker", "host"):
        yield (
            f"ENGINE={request.engine} does not run in a job of Slurm; ask for ENGINE=apptainer, podman, pyxis or venv, or "
            "leave it out"
        )
    if request.engine == "pyxis" and not slurm:
        yield "ENGINE=pyxis is a plugin of Slurm's srun; add HOSTS=slurm or CLUSTER=slurm, or ask for ENGINE=apptainer"


def _of_profile(request: Request) -> Iterator[str]:
    """Settings of a profiling pass that was not requested, or that has no such setting."""
    if not request.profile:
        if settings := sorted(name for name in request.model_fields_set if name.startswith("profile_")):
            variables = " and ".join(name.removesuffix("_s").upper() for name in settings)
            verb = "configures" if len(settings) == 1 else "configure"
            yield f"{variables} {verb} a profiling pass, and none is requested; add PROFILE=kernels"
        return
    if "metrics" in request.profile and not request.telemetry_hz:
        yield "PROFILE=metrics needs the node's sampler if ncu can't read the counters, and TELEMETRY_HZ=0 turns it off; leave it out"
    if request.profile_region and not set(request.profile) & set(NARROWED):
        yield (
            f"PROFILE_REGION={request.profile_region} narrows PROFILE={' or '.join(NARROWED)} only, and PROFILE={','.join(request.profile)} covers "
            "all regions; leave it out"
        )


def _of_devices(request: Request) -> Iterator[str]:
    """GPUs and CPU workers together."""
    if request.gpus and (request.workers or request.device == "cpu"):
        other = "WORKERS" if request.workers else "DEVICE=cpu"
        yield f"GPUS and {other} exclude each other; ask for GPUS=n, or for DEVICE=cpu WORKERS=n"
    if request.workers and request.device == "gpu":
        yield "WORKERS counts CPU workers and DEVICE=gpu asks for GPUs; ask for GPUS=n instead"


def _of_modes(request: Request) -> Iterator[str]:
    """Options that the mode would ignore."""
    if request.mode == "infer":
        if request.profile:
            yield "PROFILE is of training, and MODE=infer does not train; leave one of them out"
        if request.strategy not in (None, "single"):
            yield f"STRATEGY={request.strategy} needs several devices, and MODE=infer uses one; leave it out"
    elif request.fit is not None:
        yield f"FIT trains before inference, and MODE={request.mode} does not infer; ask for MODE=infer, or leave it out"
    if request.mode == "converge":
        for variable, value in (("ITERATIONS", request.iterations), ("PROFILE", request.profile)):
            if value:
                yield f"{variable} can't be combined with MODE=converge, which trains by EPOCHS; leave it out"


def _of_concurrent(request: Request) -> Iterator[str]:
    """Options that make no sense with concurrent trainings on one machine."""
    if not request.concurrent:
        return
    if request.mode != "train":
        yield f"CONCURRENT needs MODE=train, and MODE={request.mode} is requested; leave one of them out"
    if request.concurrent == 1:
        yield "CONCURRENT=1 is a single training; ask for CONCURRENT=2 or more, or leave it out"
    if request.gpu_memory == "all":
        yield "GPU_MEMORY=all leaves no memory for a second training, and CONCURRENT may put two on one GPU; leave one of them out"
    for name in ("profile", "hosts", "nodes", "compare"):
        if getattr(request, name):
            yield (
                f"{name.upper()} can't be combined with CONCURRENT, which runs several trainings on one machine; leave one of them out"
            )


def _of_input(request: Request) -> Iterator[str]:
    """Ways to read data that need real data, a GPU or a training."""
    for variable, value in (("DECODE=gpu", request.decode == "gpu"), ("LOADER_WORKERS", request.loader_workers)):
        if value and request.data is None:
            yield f"{variable} applies only to real data; add DATA=DIR, or leave it out"
    if request.decode == "gpu":
        if request.device == "cpu" or request.workers:
            yield "DECODE=gpu needs a GPU that trains, and CPUs are requested; ask for GPUS=n instead"
        if request.mode == "infer":
            yield "DECODE=gpu feeds a training, and MODE=infer does not train; leave it out"


def _of_duplicates(request: Request) -> Iterator[str]:
    """Two options that set the same thing."""
    if request.techniques and request.preset == "tuned":
        yield "PRESET=tuned already uses all techniques, and TECHNIQUES selects some; give only one of them"
    if request.xla and "xla" in request.techniques:
        yield "XLA=1 and TECHNIQUES=xla mean the same; give only one of them"
    if request.iterations and request.epochs:
        yield "ITERATIONS and EPOCHS both set the length of the run; give only one of them"


def _of_image(request: Request) -> Iterator[str]:
    """Options of the suite's programs with a user's command and vice versa, and incomplete requests about an image."""
    if request.image is None:
        yield from _without_image(request)
        return
    yield from _of_command(request) if request.command else _of_program_in_image(request)
    if request.engine not in (None, "docker") or SLURM in (request.hosts, request.cluster):
        asked = f"ENGINE={request.engine}" if request.engine else "a job of Slurm"
        where = "in a container" if request.engine in BARE_ENGINES else "in Docker"
        yield f"--image {request.image} runs only {where}, and {asked} is requested; ask for ENGINE=docker"
    if request.mounts and request.hosts:
        yield (
            f"MOUNT mounts folders of this machine, and HOSTS={request.hosts} names others; leave MOUNT out, or copy the folders into the image"
        )


def _of_program_in_image(request: Request) -> Iterator[str]:
    """The user's image for a program of the suite, but no framework, or options that do not apply."""
    image = f"--image {request.image}"
    if request.framework is None:
        yield (
            f"{image} has no command; type `dlscale bench {image} -- COMMAND ...` to run a command of yours in it, or "
            "add FRAMEWORK=... to train a model of the suite with its framework"
        )
    if request.version:
        yield f"VERSION={request.version} selects an image of the suite, and {image} another; leave one of them out"
    yield from _of_command_alone(request, "give -- COMMAND ... too, or leave it out")


def _of_command(request: Request) -> Iterator[str]:
    """Options that do not apply to a user's command, and those that it lacks."""
    if misplaced := sorted(request.model_fields_set - EXTERNAL_OPTIONS):
        flags = " and ".join("--" + re.sub("_(mib|ms|s)$", "", name).replace("_", "-") for name in misplaced)
        verb = "applies" if len(misplaced) == 1 else "apply"
        yield f"{flags} {verb} to the suite's own programs, and --image runs your own command; set it in that command"
    for variable, devices in (("GPUS", request.gpus), ("WORKERS", request.workers)):
        if devices and len(devices) > 1 and not parsing.names_devices(request.command):
            yield (
                f"{variable}={','.join(map(str, devices))} is a sweep, and the command has no placeholder for the number of devices; "
                f"write {{{variable.lower()}}} in it, or give one number, for example {variable}={devices[-1]}"
            )
    if request.name and not _NAME.fullmatch(request.name):
        yield f"NAME={shorten(request.name)} is not a valid name; use up to 80 letters, digits, spaces and . _ + : -"
    if request.workdir and not request.workdir.startswith("/"):
        yield f"WORKDIR={shorten(request.workdir)} is not an absolute path; give one in the image, for example /workspace"
    if request.baseline and parsing.names_devices(request.command):
        yield f"--baseline {request.baseline} is not needed: the command has a placeholder, so its own run on one device is the baseline; leave it out"
    if request.pattern and request.dialect:
        yield f"--pattern and --dialect {request.dialect} both say how the log is read; give only one of them"
    alone = (request.gpus or request.workers or (1,))[-1] == 1
    if request.dialect == "mxnet" and request.batch is None and not (alone and parsing.batch_of(request.command)):
        yield "MXNet's log does not state the batch size; give --batch N, the samples a device and step"


def _of_command_alone(request: Request, step: str) -> Iterator[str]:
    """Options that apply to a user's command alone."""
    for name, does in COMMAND_OPTIONS.items():
        if getattr(request, name):
            yield f"--{name} {does} a command of yours; {step}"


def _without_image(request: Request) -> Iterator[str]:
    """Options about an image when none is given, or that choose one although the host's own installation runs."""
    if request.engine == "host" and not request.command:
        if request.framework is None:
            yield "ENGINE=host runs a framework installed on this machine, and none is named; add FRAMEWORK=mxnet, pytorch or tensorflow"
        if request.version:
            yield (
                f"VERSION={request.version} selects an image of the suite, and ENGINE=host runs the installed version; leave one of "
                "them out"
            )
        if request.mounts:
            yield f"MOUNT={request.mounts[0].source} mounts a folder in a container, and ENGINE=host has none; leave one of them out"
    if request.command:
        yield (
            f"{shlex.join(request.command)!r} is a command without an image to run it in; "
            "type `dlscale bench --image IMG -- COMMAND ...`, or leave it out to train a model of the suite"
        )
    yield from _of_command_alone(request, "give --image IMG and -- COMMAND ... too")
    if request.mounts:
        yield (
            f"MOUNT={request.mounts[0].source} needs an image of yours; add IMAGE=..., or leave it out: the suite's own "
            "images have all they need"
        )
