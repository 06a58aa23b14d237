"""Requested transport ≠ used transport → one sentence with both, and the likely cause if the evidence shows one. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from runner.analysis.interconnect.evidence import in_words
from runner.core.request import Interconnect
from runner.core.transport import IP_ONLY, Transport, Used, carrier
from runner.core.trial import Placed, Trial

_VERBS: Final[tuple[Interconnect, ...]] = ("infiniband", "roce")
_NO_VERBS: Final[tuple[tuple[Interconnect, ...], tuple[Used, ...]]] = (_VERBS, ("ethernet", "ipoib", "loopback"))
_NO_P2P: Final[tuple[tuple[Interconnect, ...], tuple[Used, ...]]] = (("nvlink", "pcie"), ("shm",))


class Cause(NamedTuple):
    """A likely cause, the requested and used transports that it explains, and NCCL's message that shows it; the first match wins.

    Without a pattern, the two transports suffice.
    """

    asked: tuple[Interconnect, ...]
    used: tuple[Used, ...]
    sentence: str
    pattern: str = ""


CAUSES: Final = (
    Cause(*_NO_VERBS, "the image has no libibverbs, without which NCCL finds no adapter", r"Failed to open libibverbs"),
    Cause(
        *_NO_VERBS,
        "the adapter can't be opened: the container has no /dev/infiniband, or may not use it",
        r"ibv_open_device failed|NET/IB : Unable to open device",
    ),
    Cause(
        *_NO_VERBS,
        "memory can't be locked for the adapter: the container needs IPC_LOCK and an unlimited memlock",
        r"ibv_(?:reg_mr|reg_mr_iova2|create_cq|create_qp|alloc_pd)\w* failed.*Cannot allocate memory|ibv_create_cq failed",
    ),
    Cause(
        *_NO_VERBS,
        "the adapters can't reach each other: most likely a wrong GID index, or RoCE ports in networks of their own",
        r"ibv_modify_qp failed",
    ),
    Cause(
        *_NO_VERBS,
        "NCCL was told not to use adapters (NCCL_IB_DISABLE in the image, or in its nccl.conf)",
        r"NCCL_IB_DISABLE set by environment to [1-9]",
    ),
    Cause(
        ("ethernet", *_VERBS), ("unknown",), "a plugin of the image brought another network", r"via NET/(?!IB|Socket)"
    ),
    Cause(
        *_NO_P2P,
        "NCCL turned access from one GPU to the other off, as the driver has it for this pair, or an IOMMU is in the way",
        r"P2P is disabled between",
    ),
    Cause(
        *_NO_P2P,
        "NCCL was told so (NCCL_P2P_DISABLE in the image, or in its nccl.conf)",
        r"NCCL_P2P_DISABLE set by environment to [1-9]",
    ),
    Cause(("nvlink",), ("pcie", "shm"), "no NVLink leads from each of these GPUs to the next"),
    Cause(("pcie",), ("nvlink",), "NCCL takes NVLink wherever there is one"),
    Cause(
        ("shm", "loopback"),
        ("nvlink",),
        "the usual reason is NVLS, NCCL's reductions within the NVLink switches, which NCCL_P2P_DISABLE leaves on and NCCL_NVLS_ENABLE=0 "
        "turns off",
    ),
)


def mismatch(transport: Transport, trial: Trial) -> str | None:
    """Say in one sentence that a run did not use what was requested, or that its evidence contradicts itself; None if neither."""
    if trial.world_size == 1:
        return None
    request = f"INTERCONNECT={transport.requested} asked, " if transport.requested != "auto" else ""
    if transport.contradiction:
        used = f"{transport.used} used: " if request else ""
        return _sentence(f"{request}{used}{transport.contradiction}", _cause(transport, trial))
    if not request and trial.iface is None and trial.hca is None:
        return None
    if request and not _satisfied(transport, trial):
        over = f" ({transport.interface})" if transport.interface else ""
        cause = transport.unproved or _cause(transport, trial)
        return _sentence(f"{request}{transport.used}{over} used{_bytes(transport)}", cause)
    return _wrong_adapter(transport, trial) or _wrong_interface(transport, trial)


def _bytes(transport: Transport) -> str:
    """The bytes on the requested and on the used wire, if counted."""
    counts = [count for count in transport.counted if count.wire in (transport.requested, transport.used)]
    return f", where {in_words(counts)}" if counts else ""


def _wrong_adapter(transport: Transport, trial: Trial) -> str | None:
    """Compare the adapters that carried the gradients with the one requested by name."""
    if trial.hca is None:
        return None
    if transport.used not in _VERBS:
        return _sentence(f"HCA={trial.hca} asked, {transport.used} used", _cause(transport, trial))
    others = [hca for hca in transport.hcas if hca != trial.hca and not hca.startswith(f"{trial.hca}:")]
    if others or not transport.hcas:
        return _sentence(f"HCA={trial.hca} asked, {', '.join(others) or 'an unnamed adapter'} used", None)
    return None


def _satisfied(transport: Transport, trial: Trial) -> bool:
    """Whether the used transport is the requested one; for carriers limited to IP, IP over InfiniBand counts as InfiniBand."""
    if transport.requested == "infiniband" and transport.used == "ipoib":
        return carrier(trial) in IP_ONLY
    return transport.requested == transport.used


def _wrong_interface(transport: Transport, trial: Trial) -> str | None:
    """Compare the interfaces that carried the gradients with the chosen ones; verbs bypass interfaces."""
    if len(trial.placement) == 1 or transport.used in _VERBS:
        return None
    for placed in trial.placement:
        if placed.wire is None:
            continue
        found = transport.interfaces.get(placed.node)
        if found == placed.wire.iface:
            continue
        request = f"IFACE={trial.iface}" if trial.iface else f"INTERCONNECT={transport.requested} ({placed.wire.iface})"
        if found is None:
            return _sentence(
                f"{request} asked, and no interface of {placed.node} sent as many bytes as the gradients", None
            )
        return _sentence(f"{request} asked, {found} used on {placed.node}", _why_elsewhere(transport, trial, placed))
    return None


def _why_elsewhere(transport: Transport, trial: Trial, placed: Placed) -> str | None:
    """Why bytes left a node through another interface than the chosen one."""
    chosen = {other.wire.address for other in trial.placement if other.wire}
    peers = [peer for peer in transport.evidence.peers if peer.node == placed.node]
    if any(peer.local in chosen or peer.remote in chosen for peer in peers):
        return (
            "its ranks did use the addresses of that interface, and the kernel sends by route, whatever the address; the usual reason is "
            "two interfaces in one subnet (`ip route get` shows the way it takes)"
        )
    if peers:
        addresses = ", ".join(sorted({peer.remote for peer in peers}))
        return f"its ranks reached the others at {addresses}, so that the library did not heed the interface"
    return None


def _cause(transport: Transport, trial: Trial) -> str | None:
    """The likely cause of a transport other than the requested one."""
    lines = "\n".join(transport.evidence.nccl_lines)
    for cause in CAUSES:
        applies = transport.requested in cause.asked and transport.used in cause.used
        if applies and re.search(cause.pattern, lines):
            return cause.sentence
    if transport.requested in _VERBS and "NET/IB : No device found" in lines:
        return _no_adapter(transport, trial)
    return None


def _no_adapter(transport: Transport, trial: Trial) -> str:
    """Why NCCL saw no adapter: /sys shows the host's adapters to every container, /dev/infiniband only those passed in."""
    ports = {port.port for port in transport.evidence.ports}
    wanted = {hca for placed in trial.placement if placed.wire for hca in placed.wire.hcas}
    if not ports:
        return "NCCL found no adapter, and the kernel of the node shows none"
    if missing := sorted(wanted - ports):
        return f"NCCL found no adapter of the name {', '.join(missing)}; the node has {', '.join(sorted(ports))}"
    return "NCCL found no adapter: the container has no /dev/infiniband, or may not use it"


def _sentence(what: str, cause: str | None) -> str:
    because = f": {cause}" if cause else ""
    return f"{what}{because}; the record's transport.evidence shows by what"
