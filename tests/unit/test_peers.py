"""NVML's answers on pairs of GPUs, in words. The codes are those of nvml.h (nvmlGpuP2PStatus_t, nvmlGpuTopologyLevel_t).

Prevents: GPUs on one switch that are called far apart; a pair that can't reach each other and is not said to; "unknown" taken for "no".
"""

import pytest

from runner.cluster.hosts.gpu_topology import describe, read_pair
from runner.cluster.hosts.remote_facts import PairAnswer


def pair(first=0, second=1, *, read=0, nvlink=5, ancestor=10):
    return read_pair(PairAnswer(first=first, second=second, read=read, nvlink=nvlink, ancestor=ancestor))


@pytest.mark.parametrize(
    ("codes", "direct", "over", "reason"),
    [
        ({"read": 0, "nvlink": 0, "ancestor": 40}, True, "NVLink", None),
        ({"read": 0, "ancestor": 10}, True, "one PCIe switch", None),
        ({"read": 1, "ancestor": 50}, False, "the link between sockets", "the chipset does not support it"),
        ({"read": 6, "ancestor": 30}, False, "one PCIe host bridge", "the driver does not say why"),
        ({"read": None, "nvlink": None, "ancestor": None}, None, "PCIe", None),
    ],
)
def test_codes_in_words(codes, direct, over, reason):
    found = pair(**codes)
    assert (found.direct, found.over, found.reason) == (direct, over, reason)


def test_a_matrix_of_one_kind_is_one_word():
    pairs = [pair(a, b, nvlink=0) for a in range(4) for b in range(a + 1, 4)]
    assert describe(pairs) == "all 6 pairs: NVLink"


def test_the_c4130_of_the_study():
    """Configuration G: "only GPU 1 and GPU 2, and GPU3 and GPU 4 have peer-to-peer accesses"."""
    near = {(0, 1), (2, 3)}
    pairs = [
        pair(a, b, ancestor=10) if (a, b) in near else pair(a, b, read=1, ancestor=50)
        for a in range(4)
        for b in range(a + 1, 4)
    ]
    assert describe(pairs) == (
        "one PCIe switch: 0-1, 2-3; not direct (the link between sockets; the chipset does not support it): 0-2, 0-3, 1-2, 1-3"
    )
