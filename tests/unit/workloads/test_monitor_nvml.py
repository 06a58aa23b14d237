"""Prevents: a GPU's figure in the wrong unit or column, GPM over the wrong two samples or with leaked memory, one call
that fails, hangs or does not exist affecting other columns, other GPUs or the whole sampler, a reason reported ten times a
second, another job's process taken for the job's own.

The sampler runs as a separate process against `made_up_nvml/pynvml.py`: nvidia-ml-py's own names and structures, made-up answers."""

import itertools
import os
import time
from pathlib import Path
from types import SimpleNamespace

import events
import monitor
import monitor_nvml
import pynvml
import pytest

UNKNOWN, LOST, NOT_SUPPORTED = pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_SUPPORTED
GPU_COLUMNS = set(monitor_nvml.Gpu(None, 0, 0).columns)
PCIE_COLUMNS = {"pcie_rx_bytes", "pcie_tx_bytes"}  # of GPUs without GPM


def test_values_have_their_units(sampled):
    sampler = sampled(nvml={})
    sampler.rows_of("gpu0", 11)
    assert sampler.close() == 0
    (start,) = sampler.events("monitor_start")
    (gpu,) = start.gpus
    assert (gpu.index, gpu.uuid, gpu.name, gpu.counters) == (0, "GPU-0", "NVIDIA H200", "gpm")
    assert gpu.power_reading == "instant"
    assert (gpu.power_limit_w, gpu.default_power_limit_w) == (650.0, 700.0)
    assert {name: start.sources[name] for name in ("nvml", "gpm", "dcgm")} == {
        "nvml": None,
        "gpm": None,
        "dcgm": "GPM is here",
    }
    row = sampler.rows_of("gpu0", 11)[0]
    owners = row.pop("processes")
    assert row.pop("t") > start.t
    assert row == {
        "device": "gpu0",
        "utilisation_percent": 87,
        "memory_utilisation_percent": 41,
        "memory_mib": 10_241,
        "power_w": 298.765,
        "energy_j": 5_031.234,
        "temperature_c": 55,
        "sm_clock_mhz": 1_980,
        "memory_clock_mhz": 3_201,
        "slowdown_bits": 0x24,
        "nvlink_rx_bytes": 3_072,
        "nvlink_tx_bytes": 4_096,
        "ecc_corrected": 7,
        "ecc_uncorrected": 1,
        "sm_active_percent": 93.46,
        "sm_occupancy_percent": 41.0,
        "fp64_percent": 0.0,
        "fp32_percent": 12.5,
        "fp16_percent": 0.25,
        "tensor_percent": 62.0,
        "dram_percent": 38.0,
        "pcie_rx_rate": 2_097_152,
        "pcie_tx_rate": 524_288,
        "nvlink_rx_rate": 1_073_741_824,
    }
    me, gone = owners
    assert (me["pid"], me["memory_mib"], me["session"]) == (os.getpid(), 512, os.getsid(0))
    assert me["cgroup"] in Path("/proc/self/cgroup").read_text()
    assert gone == {"pid": 2**22 + 1, "memory_mib": None, "cgroup": None, "session": None}
    assert sampler.troubles("gpu0") == {"GPM: Not Supported": ["nvlink_tx_rate"]}


def followed(*readings, fastest=1e9):
    """What a counter of at most `fastest` bytes a second says after each (seconds, value)."""
    counter = monitor_nvml.WrappingCounter(fastest)
    told = []
    for at, value in readings:
        counter.follow(value, at, at)
        told.append(counter.count())
    return told


def test_a_32_bit_counter_continues_past_a_wrap_around():
    values = (5, 2**32 - 1, 3, 7, 1)
    assert followed(*enumerate(values)) == [5, 2**32 - 1, 2**32 + 3, 2**32 + 7, 2 * 2**32 + 1]


def test_a_32_bit_counter_that_may_have_wrapped_unnoticed_begins_anew_below_all_it_said():
    """Two readings too far apart missed 4 GiB each time; the increase over such a time is unknown, and that after it is not."""
    told = followed((0, 0), (1, 0), (9, 2**31), (10, 2**31 + 5), (11, 2**31 + 8), (20, 7), (21, 8), (22, 9))
    assert "may have wrapped" in told.pop(2).reason
    assert "may have wrapped" in told.pop(4).reason
    assert told == [0, 0, -1, 2, -2, -1]


def test_a_32_bit_counter_trusts_readings_between_which_it_can_wrap_only_once():
    """At 1 GB/s, 8.6 s allow two wrap-arounds; a counter that is nearly back where it was wrapped less than twice in 8 s."""
    assert followed((0, 9), (8, 8)) == [9, 8 + 2**32]
    assert "may have wrapped" in followed((0, 9), (8.6, 8))[1].reason


@pytest.mark.parametrize(
    ("link", "readings_s"), [([5, 16], 0.0336), ([4, 16], 0.0671), ([3, 16], 0.1342), ([2, 1], 0.25), ([1, 4], 0.25)]
)
def test_pcie_counters_are_read_twice_in_the_time_that_they_wrap_in(link, readings_s):
    generation, lanes = link
    nvml = SimpleNamespace(
        NVMLError=pynvml.NVMLError,
        nvmlDeviceGetMaxPcieLinkGeneration=lambda _: generation,
        nvmlDeviceGetMaxPcieLinkWidth=lambda _: lanes,
    )
    gpu = monitor_nvml.Gpu(nvml, 0, 0)
    gpu.handle = 0
    gpu.open_pcie()
    assert gpu.nap_s == pytest.approx(readings_s, abs=5e-5)


def test_pcie_counters_are_followed_between_samples(sampled):
    """A counter that wraps more often than a slow sampler samples."""
    sampler = sampled("--hz=1", nvml={"gpm": False, "link": [1, 1], "pcie": 3 << 30})
    first, second = (row["pcie_rx_bytes"] for row in sampler.rows_of("gpu0", 2)[:2])
    assert sampler.close() == 0
    readings, rest = divmod(second - first, 3 << 30)
    assert (readings >= 2, rest) == (True, 0)


def test_pcie_counters_of_a_link_of_unknown_speed_are_refused_with_the_reason(sampled):
    faults = [{"call": "nvmlDeviceGetMaxPcieLinkWidth", "error": NOT_SUPPORTED}]
    sampler = sampled(nvml={"gpm": False, "faults": faults})
    assert PCIE_COLUMNS.isdisjoint(sampler.rows_of("gpu0", 1)[0])
    assert sampler.close() == 0
    (reason,) = (why for why, columns in sampler.troubles("gpu0").items() if set(columns) == PCIE_COLUMNS)
    assert "Not Supported" in reason


def test_every_column_is_in_the_contract():
    assert all(column in events.__doc__ for column in GPU_COLUMNS)


def test_slow_values_are_read_rarely(sampled):
    sampler = sampled(nvml={})
    rows = sampler.rows_of("gpu0", 8)
    assert [("ecc_corrected" in row, "processes" in row) for row in rows[:8]] == [(True, True)] + [(False, False)] * 7


def test_gpm_is_not_read_faster_than_it_measures(sampled):
    """Hopper's counters are invalid over less than 100 ms, however often the rest is read."""
    sampler = sampled("--hz=40", nvml={})
    times = [row["t"] for row in sampler.rows_of("gpu0", 40) if "sm_active_percent" in row]
    assert len(times) >= 2
    assert min(after - before for before, after in itertools.pairwise(times)) >= 0.0945


def test_gpm_samples_are_freed(sampled, tmp_path):
    sampler = sampled(nvml={"log": str(tmp_path / "log")})
    sampler.rows_of("gpu0", 3)
    assert sampler.close() == 0
    assert sorted((tmp_path / "log").read_text().split("\n")) == ["", "alloc 16", "alloc 32", "free 16", "free 32"]


def test_a_gpu_before_hopper_has_all_but_gpm_and_a_reason(sampled):
    sampler = sampled(nvml={"gpm": False, "nvlink": False})
    row = sampler.rows_of("gpu0", 2)[1]
    assert sampler.close() == 0
    assert set(row) & set(monitor_nvml.COUNTERS) == set()
    assert (row["power_w"], row["pcie_rx_bytes"], row.get("nvlink_rx_bytes")) == (298.765, 1_111, None)
    reason = "this GPU has no GPM (Hopper and later have)"
    (start,) = sampler.events("monitor_start")
    assert (start.sources["gpm"], start.sources["dcgm"]) == (reason, "no dcgmi on the PATH")
    assert start.gpus[0].counters is None
    assert sampler.troubles("gpu0") == {
        reason: list(monitor_nvml.COUNTERS),
        "Not Supported": ["nvlink_rx_bytes", "nvlink_tx_bytes"],
    }


def test_an_older_nvidia_ml_py_is_asked_only_for_what_it_supports(sampled):
    # As before Hopper, so that PCIe is read from its counters.
    forget = ["nvmlGpmQueryDeviceSupport", "nvmlDeviceGetCurrentClocksEventReasons", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES"]
    sampler = sampled(nvml={"forget": forget})
    row = sampler.rows_of("gpu0", 1)[0]
    assert sampler.close() == 0
    assert (row["slowdown_bits"], row.get("pcie_rx_bytes"), row["pcie_tx_bytes"]) == (0x42, None, 2_222)
    assert sampler.troubles("gpu0") == {
        "this nvidia-ml-py does not know GPM": list(monitor_nvml.COUNTERS),
        "this nvidia-ml-py does not know NVML_FI_DEV_PCIE_COUNT_RX_BYTES": ["pcie_rx_bytes"],
    }


@pytest.mark.parametrize(
    "nvml",
    [
        {"refuse": [pynvml.NVML_FI_DEV_POWER_INSTANT]},
        {"forget": ["NVML_FI_DEV_POWER_INSTANT"]},
        {"gpm": False, "forget": ["nvmlDeviceGetFieldValues"]},
    ],
    ids=["driver", "library", "older library"],
)
def test_without_instant_power_the_usage_of_nvidia_smi_is_read(sampled, nvml):
    sampler = sampled(nvml=nvml)
    assert sampler.rows_of("gpu0", 1)[0]["power_w"] == 312.345
    assert sampler.close() == 0
    (start,) = sampler.events("monitor_start")
    assert start.gpus[0].power_reading == "usage"


def test_a_gpu_without_an_energy_counter_has_the_rest(sampled):
    sampler = sampled(nvml={"faults": [{"call": "nvmlDeviceGetTotalEnergyConsumption", "error": NOT_SUPPORTED}]})
    rows = sampler.rows_of("gpu0", 3)
    assert all("energy_j" not in row and row["power_w"] == 298.765 for row in rows)
    assert sampler.troubles("gpu0")["Not Supported"] == ["energy_j"]


def test_a_failing_call_is_reported_once_per_reason(sampled):
    faults = [
        {"call": "nvmlDeviceGetMemoryInfo", "after": 8, "error": pynvml.NVML_ERROR_TIMEOUT},
        {"call": "nvmlDeviceGetMemoryInfo", "after": 2, "error": UNKNOWN},
    ]
    sampler = sampled(nvml={"faults": faults})
    rows = sampler.rows_of("gpu0", 14)
    assert sampler.close() == 0
    assert ["memory_mib" in row for row in rows[:14]] == [True] * 2 + [False] * 12
    assert all(row["temperature_c"] == 55 for row in rows)
    told = [(trouble.fields, trouble.reason) for trouble in sampler.events("trouble") if "memory_mib" in trouble.fields]
    assert told == [(("memory_mib",), "Unknown Error"), (("memory_mib",), "Timeout")]


def test_a_lost_gpu_ends_only_its_own_columns(sampled):
    faults = [{"call": "nvmlDeviceGetTemperature", "gpu": 1, "after": 3, "error": LOST}]
    sampler = sampled(nvml={"gpus": 2, "faults": faults})
    rows = sampler.rows_of("gpu0", 12)
    assert sampler.close() == 0
    assert len(rows) >= 12
    assert len(sampler.rows_of("gpu1", 0)) == 3
    assert set(sampler.troubles("gpu1")["GPU is lost"]) == GPU_COLUMNS - PCIE_COLUMNS
    assert "GPU is lost" not in sampler.troubles("gpu0")


@pytest.mark.parametrize("end", ["close", "terminate"])
def test_a_call_that_never_returns_is_abandoned(sampled, end):
    faults = [{"call": "nvmlDeviceGetMemoryInfo", "gpu": 1, "after": 2, "error": None}]
    sampler = sampled(nvml={"gpus": 2, "faults": faults})
    sampler.wait_for(lambda: "NVML did not answer for 2 s" in sampler.troubles("gpu1"))
    sampler.rows_of("gpu0", len(sampler.rows_of("gpu0", 0)) + 10)
    assert getattr(sampler, end)() == 0
    assert len(sampler.rows_of("gpu1", 0)) == 2
    assert set(sampler.troubles("gpu1")["NVML did not answer for 2 s"]) == GPU_COLUMNS - PCIE_COLUMNS
    assert sampler.rows_of("host", 1)
    assert len(sampler.events("monitor_stop")) == 1


def test_a_driver_that_never_opens_is_given_up_after_its_timeout(monkeypatch):
    monkeypatch.setattr(monitor, "NVML_OPEN_S", 0.05)
    monkeypatch.setattr(monitor_nvml, "find", lambda _: time.sleep(1000))
    never = SimpleNamespace(wait=time.sleep)
    gpus, silent, sources, dcgm = monitor.find_gpus(None, 10, never)
    assert (gpus, silent, dcgm) == ([], {}, None)
    assert set(sources.values()) == {"NVML did not answer from the beginning on"}


def test_a_driver_that_never_opens_does_not_delay_the_exit(sampled):
    """The runner may stop the sampler at any time, also while it waits for the driver to count the GPUs."""
    sampler = sampled(nvml={"faults": [{"call": "nvmlInit", "error": None}]})
    assert sampler.close() == 0
    assert [event.event for event in sampler.read] == ["monitor_start", "monitor_stop"]


def test_a_chosen_gpu_that_does_not_exist_is_reported(sampled):
    sampler = sampled("--gpus=1,7", nvml={"gpus": 3})
    sampler.rows_of("gpu1", 1)
    assert sampler.close() == 0
    (start,) = sampler.events("monitor_start")
    assert [gpu.index for gpu in start.gpus] == [1]
    assert sampler.rows_of("gpu0", 0) == []
    assert set(sampler.troubles("gpu7")["Invalid Argument"]) == GPU_COLUMNS


def test_gpus_of_a_container_keep_the_hosts_indices(sampled):
    """A container with the host's GPUs 4 and 6 numbers them 0 and 1."""
    sampler = sampled("--gpus=6,4", nvml={"gpus": 2})
    sampler.rows_of("gpu4", 1)
    sampler.rows_of("gpu6", 1)
    assert sampler.close() == 0
    (start,) = sampler.events("monitor_start")
    assert [(gpu.index, gpu.uuid) for gpu in start.gpus] == [(4, "GPU-0"), (6, "GPU-1")]


def test_without_requested_gpus_the_driver_is_not_opened(sampled):
    sampler = sampled("--gpus=", nvml={"faults": [{"call": "nvmlInit", "error": None}]})
    sampler.rows_of("host", 1)
    assert sampler.close() == 0
    (start,) = sampler.events("monitor_start")
    here = Path("/proc/driver/nvidia/version").exists()
    assert (start.gpus, start.sources["nvml"]) == ((), "no GPU was asked for" if here else "no NVIDIA device")


def test_a_machine_without_a_driver_is_no_error(sampled):
    error = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    sampler = sampled(nvml={"faults": [{"call": "nvmlInit", "error": error}]})
    sampler.rows_of("host", 1)
    assert sampler.close() == 0
    (start,) = sampler.events("monitor_start")
    assert start.sources["nvml"] == "no NVIDIA device: NVML Shared Library Not Found"


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ("12:memory:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n", "/docker/abc"),  # v1 next to an unused v2
        ("0::/system.slice/docker-abc.scope\n", "/system.slice/docker-abc.scope"),
    ],
)
def test_the_longest_group_path_identifies_a_container(tmp_path, groups, told):
    process(tmp_path, 1, parent=0, session=1)
    process(tmp_path, 5, parent=1, session=5)
    process(tmp_path, 77, parent=1, session=75, groups=groups)
    computing = pynvml.nvmlFriendlyObject({"pid": 77, "usedGpuMemory": 3 << 20})
    assert monitor_nvml.Processes(tmp_path, own_pid=5).describe_all([computing]) == [
        {"pid": 77, "memory_mib": 3, "cgroup": told, "session": 75}
    ]


def test_a_rank_with_its_own_session_belongs_to_the_runners_session(tmp_path):
    """torchrun gives each rank a new session; the runner (20) started the sampler (22 below 21) and the job (30)."""
    for pid, parent, session in [
        (1, 0, 1),
        (20, 1, 20),
        (21, 20, 21),
        (22, 21, 21),
        (30, 20, 30),
        (31, 30, 30),
        (32, 31, 32),
    ]:
        process(tmp_path, pid, parent=parent, session=session)
    process(tmp_path, 40, parent=1, session=40)
    mine, others = (pynvml.nvmlFriendlyObject({"pid": pid, "usedGpuMemory": 0}) for pid in (32, 40))
    told = monitor_nvml.Processes(tmp_path, own_pid=22).describe_all([mine, others])
    assert [(entry["pid"], entry["session"]) for entry in told] == [(32, 30), (40, 40)]


def process(proc, pid, *, parent, session, groups="0::/\n"):
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "cgroup").write_text(groups)
    (folder / "stat").write_text(
        f"{pid} (a) b (c) S {parent} {pid} {session} 34817 77 4194560"
    )  # a name with parentheses
