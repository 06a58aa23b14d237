"""Words about an image that is given: IMAGE, MOUNT and a command of the user's. Text from the command line, checked before anything is looked at.

An image that is given runs either a command of the user's or, where FRAMEWORK says whose, the suite's own programs.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from runner.core.container_spec import Mount
from runner.core.errors import RequestError
from runner.core.request import BARE_ENGINES, Request, refuse_contradictions

# What can be asked of a program that is not the suite's; all else describes the suite's own training programs.
FOREIGN: Final = frozenset(
    {"image", "mounts", "dialect", "command", "gpus", "workers", "device", "batch", "warmup", "repeat", "data"}
    | {"engine", "out", "timeout_s", "inactivity_timeout_s", "telemetry_hz", "idle_s"}
)
# What every container has of the kernel, of the engine and of the suite: nothing may lie over or in these.
TAKEN: Final = ("/proc", "/sys", "/dev", "/tmp", "/dlscale")  # noqa: S108 - names inside the container


def mounts(texts: Iterable[str] | None) -> tuple[Mount, ...] | None:
    """Parse MOUNT: `SRC[:DST]`, several with commas or one after the other; always read-only. None and empty strings mean "not given".

    Returns:
        Sources as absolute paths, symbolic links kept; targets as absolute paths inside the container.

    Raises:
        RequestError: a source that is not there, a target that is no path of its own, or two mounts with one target.
    """
    found: dict[str, Mount] = {}
    for text in texts or ():
        for word in filter(None, (part.strip() for part in text.split(","))):
            mount = _mount(word)
            if other := found.get(mount.target):
                raise RequestError(
                    f"MOUNT shows {other.source} and {mount.source} at one place, {mount.target}; give each a place of its own"
                )
            found[mount.target] = mount
    return tuple(found.values()) or None


def _mount(word: str) -> Mount:
    source, _, target = word.partition(":")
    if not source or ":" in target or word.endswith(":"):
        raise RequestError(
            f"MOUNT={word} is not SRC or SRC:DST; mounts are read-only anyway, type for example /opt:/opt"
        )
    path = Path(posixpath.abspath(source))
    target = target or str(path)
    if not path.exists():
        raise RequestError(f"MOUNT={word}: {path} is not there; give a folder or file of this machine")
    if not target.startswith("/"):
        raise RequestError(f"MOUNT={word}: {target} is no absolute path; say where in the container with SRC:/DST")
    target = posixpath.normpath("/" + target.lstrip("/"))
    if target == "/" or any(posixpath.commonpath((place, target)) == place for place in TAKEN):
        raise RequestError(
            f"MOUNT={word}: {target} is the container's own, as are /, {', '.join(TAKEN)} and all below; name another place with SRC:/DST"
        )
    return Mount(source=str(path), target=target)


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
