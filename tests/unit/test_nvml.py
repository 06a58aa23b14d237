"""GPUs and driver through NVML.

Prevents: a machine without a driver ending the program; a GPU hidden by CUDA_VISIBLE_DEVICES planned with; a library left
open after an error; an idle GPU's low clocks reported as throttling.
"""

from __future__ import annotations

import pytest
from made_up_machine import Card, FakeNvml, write_tree

from runner.cluster.machine.nvml import read_gpus, read_health, select_visible
from runner.core.node import Gpu

CARDS = [
    Card("GPU-aaaa-1111", links=(1, 1, 0)),
    Card("GPU-aabb-2222", name="Tesla P100", memory_bytes=17_179_869_184, capability=(6, 0)),
]
FIRST = Gpu(index=0, uuid="GPU-aaaa-1111", name="NVIDIA H200", memory_mib=143_771, compute_capability="9.0", nvlinks=2)
SECOND = Gpu(index=1, uuid="GPU-aabb-2222", name="Tesla P100", memory_mib=16_384, compute_capability="6.0")


def test_every_gpu_with_its_driver(tmp_path):
    nvml = FakeNvml(CARDS, cuda=12040)
    found = read_gpus(sys_root=tmp_path, nvml=nvml)
    assert found.gpus == (FIRST, SECOND)
    assert (found.driver, found.cuda_driver, found.reason) == ("580.159.03", "12.4", None)
    assert nvml.open == 0


def test_old_bindings_answer_in_bytes(tmp_path):
    assert read_gpus(sys_root=tmp_path, nvml=FakeNvml([], driver=b"450.80.02")).driver == "450.80.02"


def test_no_driver_and_no_gpu_is_an_ordinary_machine(tmp_path):
    found = read_gpus(sys_root=tmp_path, nvml=FakeNvml([], broken="NVML Shared Library Not Found"))
    assert (found.gpus, found.driver) == ((), None)
    assert found.reason == "no NVIDIA GPU on the PCI bus and no driver (NVML Shared Library Not Found)"


def test_a_gpu_without_a_driver_is_named(tmp_path):
    bus = "sys/bus/pci/devices/0000:01:00.0"
    write_tree(tmp_path, {f"{bus}/vendor": "0x10de", f"{bus}/class": "0x030200"})
    found = read_gpus(sys_root=tmp_path, nvml=FakeNvml([], broken="Driver Not Loaded"))
    assert (
        found.reason
        == "an NVIDIA GPU is on the PCI bus (0000:01:00.0) and its driver does not answer (Driver Not Loaded)"
    )


def test_hidden_gpus_are_said_to_be_hidden(tmp_path):
    found = read_gpus(sys_root=tmp_path, nvml=FakeNvml(CARDS), visible="")
    assert found.gpus == ()
    assert found.reason == "CUDA_VISIBLE_DEVICES='' hides every GPU (2 here)"


def test_a_driver_that_fails_in_mid_answer_is_closed(tmp_path):
    nvml = FakeNvml(CARDS)
    nvml.nvmlDeviceGetUUID = lambda card: (_ for _ in ()).throw(nvml.NVMLError("GPU is lost"))
    found = read_gpus(sys_root=tmp_path, nvml=nvml)
    assert found.reason == "the NVIDIA driver answers with an error: GPU is lost"
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0,1", (FIRST, SECOND)),
        ("1,0", (SECOND, FIRST)),  # the order asked for
        ("1", (SECOND,)),
        (" 0 , 1 ", (FIRST, SECOND)),
        ("0,7,1", (FIRST,)),  # an unknown index ends the list
        ("-1", ()),
        ("", ()),
        ("NoDevFiles", ()),
        ("0,0", ()),  # a repeated GPU leaves none
        ("GPU-aabb", (SECOND,)),  # the beginning of a UUID
        ("GPU-aa", ()),  # ambiguous
    ],
)
def test_visible_devices_follow_the_cuda_runtime(visible, expected):
    assert select_visible((FIRST, SECOND), visible) == expected


def test_health_names_what_holds_clocks_down_and_who_computes():
    nvml = FakeNvml(
        [Card("GPU-a", reasons=0x04 | 0x40 | 0x2), Card("GPU-b", reasons=0x1, pids=(4711,)), Card("GPU-c", reasons=-1)]
    )
    gpus = read_gpus(nvml=nvml).gpus
    hot, busy = read_health(gpus, nvml=nvml)  # the third will not say
    assert (hot.index, hot.slowdowns, hot.processes) == (0, ("power cap", "hardware thermal slowdown"), ())
    assert (busy.index, busy.slowdowns, busy.processes) == (1, (), (4711,))
    assert nvml.open == 0


def test_health_of_no_gpus_asks_nobody():
    assert read_health((), nvml=FakeNvml([], broken="must not be asked")) == ()
