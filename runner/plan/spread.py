"""Devices × nodes → who runs where. Pure: nodes are taken in order, each gives the same number of devices, as few nodes as will do.

With CONCURRENT the devices are all that were asked for: one training alone on them, several one after the other on all of them, and as
many at once, each on its own share, or all on all of them where the devices can't be shared out.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.core.errors import RequestError
from runner.core.node import Member
from runner.core.request import Device, Request
from runner.core.trial import Concurrent
from runner.images.custom_image import AnyImage
from runner.plan.strategy import offered


def nodes_for(scale: int, members: Sequence[Member], *, request: Request, device: Device) -> int | None:
    """How many nodes `scale` devices take: as many as NODES says, else as few as will do; None where they can't be shared out equally."""
    if scale == 1:
        return 1
    room = [member.devices(device) for member in members]
    if request.oversubscribe and device == "cpu" and len(members) == 1:
        return 1
    counts = [request.nodes] if request.nodes else range(1, len(members) + 1)
    fitting = (n for n in counts if n <= len(room) and scale % n == 0 and scale // n <= min(room[:n]))
    return next(fitting, None)


def scales(request: Request, image: AnyImage, members: Sequence[Member]) -> tuple[int, ...]:
    """Numbers of devices to run on, ascending. RequestError: more than the nodes offer, with what to ask for instead."""
    device = image.device
    asked = request.gpus if device == "gpu" else request.workers
    room = [member.devices(device) for member in members]
    variable = "GPUS" if device == "gpu" else "WORKERS"
    if device == "gpu" and not room[0]:
        wanted = f"GPUS={','.join(map(str, asked))}" if asked else "DEVICE=gpu"
        first = members[0].node
        step = f"leave it out of {request.hosts}" if any(room) else "ask for DEVICE=cpu WORKERS=1,2 instead"
        raise RequestError(f"{wanted} asked, {first.name} offers none ({first.gpu_reason}); {step}")
    if request.nodes and request.nodes > len(members):
        names = ", ".join(member.node.name for member in members)
        raise RequestError(
            f"NODES={request.nodes} asked, {request.hosts} offers {len(members)} ({names}); add nodes or ask for NODES={len(members)}"
        )
    alone = offered(image) == ("single",)
    if asked and asked[-1] > 1 and alone:
        raise RequestError(f"{variable}={asked[-1]} asked, {image.name} trains on one device; ask for {variable}=1")
    for scale in asked or ():
        if nodes_for(scale, members, request=request, device=device) is None:
            raise RequestError(_no_room(scale, members, request=request, device=device))
    if asked:
        return asked
    if alone:
        return (1,)
    return _usual(members, request=request, device=device)


def _usual(members: Sequence[Member], *, request: Request, device: Device) -> tuple[int, ...]:
    """What a request that names no number gets: one device and two of a CPU node or one a node, or all powers of two and all GPUs."""
    most = sum(member.devices(device) for member in members)
    if device == "cpu" and len(members) > 1:
        return tuple(sorted({1, request.nodes or len(members)}))
    if device == "cpu":
        return (1, 2) if most > 1 else (1,)
    wanted = sorted({*(2**exponent for exponent in range(most.bit_length())), most})
    return tuple(n for n in wanted if nodes_for(n, members, request=request, device=device))


def _no_room(scale: int, members: Sequence[Member], *, request: Request, device: Device) -> str:
    """Say why devices can't be had, and what can."""
    unit, variable = ("GPUs", "GPUS") if device == "gpu" else ("cores", "WORKERS")
    room = [member.devices(device) for member in members]
    if len(members) == 1:
        step = " or add --oversubscribe" if device == "cpu" else ""
        return (
            f"{variable}={scale} asked, {members[0].node.name} offers {room[0]} {unit}; "
            f"ask for {variable}={room[0]} or fewer{step}"
        )
    used = room[: request.nodes or len(room)]
    each = ", ".join(f"{member.node.name}: {count}" for member, count in zip(members, used, strict=False))
    source = request.hosts or "this machine"
    if scale > sum(used):
        return f"{variable}={scale} asked, {source} offers {sum(used)} ({each}); add nodes or ask for {sum(used)}"
    possible = [n for n in range(1, sum(used) + 1) if nodes_for(n, members, request=request, device=device)]
    nodes = f" over NODES={request.nodes}" if request.nodes else ""
    return (
        f"{variable}={scale}{nodes} asked, and every node has to give as many {unit} as the others ({each}); "
        f"ask for {variable}={' or '.join(map(str, possible[-3:]))}"
    )


def devices_of_cases(trainings: int, asked: Sequence[int]) -> tuple[int, ...]:
    """Numbers of devices that a training has in some case, ascending. RequestError: a sweep; they are compared on one number."""
    if len(asked) > 1:
        listed = ",".join(map(str, asked))
        raise RequestError(
            f"CONCURRENT={trainings} compares on one number of devices, {listed} asked or usual here; give one, such as WORKERS={asked[-1]}"
        )
    return tuple(sorted({devices for devices, _ in cases(trainings, asked[0])}))


def cases(trainings: int, devices: int) -> tuple[tuple[int, Concurrent], ...]:
    """Every training of one repeat in the order in which they run, each with the number of its devices."""
    shared = devices % trainings != 0
    each = devices if shared else devices // trainings
    numbers = range(1, trainings + 1)
    return (
        (devices, Concurrent(trainings=trainings, case="one", number=1)),
        *((devices, Concurrent(trainings=trainings, case="sequential", number=number)) for number in numbers),
        *((each, Concurrent(trainings=trainings, case="together", number=number, shared=shared)) for number in numbers),
    )
