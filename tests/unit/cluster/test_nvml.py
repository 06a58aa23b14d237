"""GPUs and driver from NVML's answers. The codes of pairs are those of nvml.h (nvmlGpuP2PStatus_t, nvmlGpuTopologyLevel_t).

Prevents: a crash on a machine without a driver; a plan with a GPU that CUDA_VISIBLE_DEVICES hides; a library left open after an
error; an idle GPU's low clocks reported as throttling; GPUs on one switch called far apart; "unknown" taken for "no".
"""

from __future__ import annotations

import pytest
from made_up_machine import Card, FakeNvml, write_tree

from runner.cluster.machine.nvml import PairAnswer, ask_nvml, describe_pairs, read_gpus, read_health, select_visible
from runner.core.node import Gpu

CARDS = [
    Card("GPU-aaaa-1111", links=(1, 1, 0)),
    Card("GPU-aabb-2222", name="Tesla P100", memory_bytes=17_179_869_184, capability=(6, 0)),
]
FIRST = Gpu(index=0, uuid="GPU-aaaa-1111", name="NVIDIA H200", memory_mib=143_771, compute_capability="9.0", nvlinks=2)
SECOND = Gpu(index=1, uuid="GPU-aabb-2222", name="Tesla P100", memory_mib=16_384, compute_capability="6.0")


def test_every_gpu_is_read_with_its_driver(tmp_path):
    nvml = FakeNvml(CARDS, cuda=12040)
    answers = ask_nvml(nvml)
    assert read_gpus(answers, sys_root=tmp_path) == ((FIRST, SECOND), None)
    assert (answers.driver, answers.cuda_driver) == ("580.159.03", "12.4")
    assert nvml.open == 0
    assert ask_nvml(FakeNvml([], driver=b"450.80.02")).driver == "450.80.02"  # old bindings return bytes


@pytest.mark.parametrize(
    ("error", "on_bus", "reason"),
    [
        ("Library Not Found", False, "no NVIDIA GPU on the PCI bus and no driver (Library Not Found)"),
        (
            "Driver Not Loaded",
            True,
            "an NVIDIA GPU is on the PCI bus (0000:01:00.0) and its driver does not answer (Driver Not Loaded)",
        ),
    ],
)
def test_a_machine_without_a_driver_is_ordinary_unless_a_gpu_is_on_its_bus(tmp_path, error, on_bus, reason):
    bus = "sys/bus/pci/devices/0000:01:00.0"
    write_tree(tmp_path, {f"{bus}/vendor": "0x10de", f"{bus}/class": "0x030200"} if on_bus else {})
    answers = ask_nvml(FakeNvml([], broken=error))
    assert (answers.driver, answers.cuda_driver) == (None, None)
    assert read_gpus(answers, sys_root=tmp_path) == ((), reason)


def test_hidden_gpus_are_reported_as_hidden():
    found = read_gpus(ask_nvml(FakeNvml(CARDS)), visible="")
    assert found == ((), "CUDA_VISIBLE_DEVICES='' hides every GPU (2 here)")


def test_nvml_is_closed_after_an_error():
    nvml = FakeNvml(CARDS)
    nvml.nvmlDeviceGetUUID = lambda card: (_ for _ in ()).throw(nvml.NVMLError("GPU is lost"))
    assert read_gpus(ask_nvml(nvml))[1] == "the NVIDIA driver answers with an error: GPU is lost"
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0,1", (FIRST, SECOND)),
        ("1,0", (SECOND, FIRST)),  # the requested order
        (" 0 , 1 ", (FIRST, SECOND)),
        ("0,7,1", (FIRST,)),  # an unknown index ends the list
        ("-1", ()),
        ("", ()),
        ("NoDevFiles", ()),
        ("0,0", ()),  # a repeated GPU leaves none
        ("GPU-aabb", (SECOND,)),  # a UUID's prefix
        ("GPU-aa", ()),  # ambiguous
    ],
)
def test_visible_devices_follow_the_cuda_runtime(visible, expected):
    assert select_visible((FIRST, SECOND), visible) == expected


def test_health_names_slowdowns_and_processes():
    cards = [
        Card("GPU-a", reasons=0x04 | 0x40 | 0x2),
        Card("GPU-b", reasons=0x1, pids=(4711,)),
        Card("GPU-c", reasons=-1),
    ]
    answers = ask_nvml(FakeNvml(cards))
    hot, busy = read_health(answers, read_gpus(answers)[0])  # the third reports nothing
    assert (hot.index, hot.slowdowns, hot.processes) == (0, ("power cap", "hardware thermal slowdown"), ())
    assert (busy.index, busy.slowdowns, busy.processes) == (1, (), (4711,))
    assert read_health(ask_nvml(FakeNvml([], broken="gone since")), [FIRST]) == ()


def pair(first=0, second=1, *, read=0, nvlink=5, ancestor=10):
    return PairAnswer(first=first, second=second, read=read, nvlink=nvlink, ancestor=ancestor)


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        ({"read": 0, "nvlink": 0, "ancestor": 40}, "NVLink"),
        ({"read": 0, "ancestor": 10}, "one PCIe switch"),
        ({"read": 1, "ancestor": 50}, "not direct (the link between sockets; the chipset does not support it)"),
        ({"read": 6, "ancestor": 30}, "not direct (one PCIe host bridge; the driver does not say why)"),
        ({"read": 0, "nvlink": None, "ancestor": None}, "PCIe"),
        ({"read": None, "nvlink": None, "ancestor": None}, "unknown to NVML"),
    ],
)
def test_pair_codes_are_described(codes, kind):
    assert pair(**codes).kind == kind


def test_the_pairs_of_the_studys_c4130():
    """Pairs of one kind are listed together. Configuration G: "only GPU 1 and GPU 2, and GPU3 and GPU 4 have peer-to-peer accesses"."""
    assert describe_pairs([pair(a, b, nvlink=0) for a in range(4) for b in range(a + 1, 4)]) == "all 6 pairs: NVLink"
    near = {(0, 1), (2, 3)}
    pairs = [
        pair(a, b, ancestor=10) if (a, b) in near else pair(a, b, read=1, ancestor=50)
        for a in range(4)
        for b in range(a + 1, 4)
    ]
    assert describe_pairs(pairs) == (
        "one PCIe switch: 0-1, 2-3; not direct (the link between sockets; the chipset does not support it): 0-2, 0-3, 1-2, 1-3"
    )
