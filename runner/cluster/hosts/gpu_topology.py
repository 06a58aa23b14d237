"""Which GPUs of a node reach each other's memory directly, and over what: NVML's codes in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runner.cluster.hosts.remote_facts import PairAnswer
from runner.core.frozen import Frozen

# nvmlGpuTopologyLevel_t, in the words of `nvidia-smi topo -m`.
_ANCESTORS: Final = {
    0: "one board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "one PCIe host bridge",
    40: "one NUMA node",
    50: "the link between sockets",
}
# nvmlGpuP2PStatus_t, in the words of `nvidia-smi topo -p2p`.
_STATUSES: Final = {
    1: "the chipset does not support it",
    2: "the GPUs do not support it",
    3: "the topology does not support it",
    4: "it is disabled in the driver's settings",
    5: "it is not supported",
}


class GpuPair(Frozen):
    """Two GPUs of a node, by index.

    Attributes:
        direct: whether they reach each other's memory; None where NVML does not say.
        over: NVLink, or what their PCIe paths have in common.
        reason: why not, when they do not.
    """

    first: int
    second: int
    direct: bool | None
    over: str
    reason: str | None = None


def read_pair(answer: PairAnswer) -> GpuPair:
    """Put NVML's codes into words."""
    direct = None if answer.read is None else answer.read == 0
    over = "NVLink" if answer.nvlink == 0 else _ANCESTORS.get(answer.ancestor if answer.ancestor is not None else -1)
    return GpuPair(
        first=answer.first,
        second=answer.second,
        direct=direct,
        over=over or "PCIe",
        reason=None if direct or answer.read is None else _STATUSES.get(answer.read, "the driver does not say why"),
    )


def describe(pairs: Sequence[GpuPair]) -> str:
    """The matrix in words, pairs of one kind together: `NVLink: 0-1, 2-3; not direct, the chipset does not support it: 0-2, ...`."""
    kinds: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.direct is None:
            kind = "unknown to NVML"
        else:
            kind = pair.over if pair.direct else f"not direct ({pair.over}; {pair.reason})"
        kinds.setdefault(kind, []).append(f"{pair.first}-{pair.second}")
    if len(kinds) == 1 and len(pairs) > 1:
        return f"all {len(pairs)} pairs: {next(iter(kinds))}"
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())
