"""Model FLOP utilisation and roofline position, from a run's events, its provenance and its telemetry.

Prevents: utilisation of one device in place of all; a peak of another precision; an unmeasured peak of CPUs (one guessed from their
instructions gave 147 %); one rank's peak for all; a side of the roofline without counted bytes; a figure without its source; a figure above
100 %.

Dense peaks of GPUs.

Prevents: a mistyped figure, one doubled for sparse weights, or one of half a board; the entry of another GPU with a similar name; a peak
for a slice of a GPU; utilisation of an arithmetic that a GPU lacks.
"""

from __future__ import annotations

import re
from types import SimpleNamespace

import examples
import pytest
import wires
from program_events import program_event

from runner.analysis.flop.figures import METHOD, flop_figures, gpu_peak, gpus_peak, known_gpus
from runner.core.events import CpuPeak, Env, FlopPerSample
from runner.core.trial import Concurrent

GPU_TRIAL = examples.trial(device="gpu", precision="bf16", world_size=2, processes=2, cpus_per_worker=None)


def start(flop=(1e9, 2e9), rank=0):
    counted = FlopPerSample(forward=flop[0], backward=flop[1]) if flop else None
    return wires.start(None, rank=rank, flop_per_sample=counted)


def env(rank=0, names=(), cpus=(0, 1), threads=2):
    software = {"python": "3.11", "framework": "mxnet", "framework_version": "1.9.1", "threads": threads, "cpus": cpus}
    return program_event(Env, rank=rank, device="gpu" if names else "cpu", device_names=names, **software)


def peak(rank, flop_per_s):
    return program_event(
        CpuPeak, rank=rank, flop_per_s=flop_per_s, precision="fp32", cores=2, library="torch.mm in fp32"
    )


def figures(*events, trial=None, throughput=100.0, telemetry=None):
    trial = trial or examples.trial()
    return flop_figures(trial=trial, events=events, throughput=throughput, telemetry=telemetry)


def gpus(*, dram=(50.0, 50.0), name="NVIDIA H200", reason=None):
    """Telemetry of two GPUs; `dram` in percent, None without counters."""
    found = [
        SimpleNamespace(node="here", index=index, name=name, dram_percent=percent and SimpleNamespace(avg=percent))
        for index, percent in enumerate(dram)
    ]
    return SimpleNamespace(gpus=found, hosts=(), why_missing=lambda *_: reason)


def test_a_program_that_counts_no_flop_has_no_figures():
    assert figures(start(flop=None), env()) is None
    assert figures() is None


def test_two_gpus_by_hand():
    """3 GFLOP × 10,000 samples/s are 30 TFLOP/s, of 2 × 989.4."""
    found = figures(start(), env(0, ("NVIDIA H200",)), env(1, ("NVIDIA H200",)), trial=GPU_TRIAL, throughput=10_000.0)
    assert (found.forward_flop_per_sample, found.backward_flop_per_sample, found.method) == (1e9, 2e9, METHOD)
    assert found.achieved_tflops == pytest.approx(30)
    assert (found.peak_tflops, found.bandwidth_gb_s) == (1978.8, 9600)
    assert found.mfu_percent == pytest.approx(100 * 30 / 1978.8)
    assert not found.above_peak
    assert "2 × NVIDIA H200: 989.4 TFLOP/s in bf16 on tensor cores" in found.peak_source
    assert (found.roofline, found.roofline_source) == (None, "unavailable: no telemetry")


@pytest.mark.parametrize(
    ("throughput", "intensity", "side"),
    [
        # Half of 2 × 4,800 GB/s are 4.8 TB/s; the ridge lies at 1,978.8 TFLOP/s ÷ 9.6 TB/s = 206.1 FLOP a byte.
        (10_000.0, 6.25, "memory"),  # 480 MB a sample for 3 GFLOP
        (400_000.0, 250.0, "compute"),  # 12 MB a sample
    ],
)
def test_memory_traffic_decides_the_side_of_the_roofline(throughput, intensity, side):
    envs = (env(0, ("NVIDIA H200",)), env(1, ("NVIDIA H200",)))
    found = figures(start(), *envs, trial=GPU_TRIAL, throughput=throughput, telemetry=gpus())
    assert found.dram_bytes_per_sample == pytest.approx(4.8e12 / throughput)
    assert found.intensity_flop_per_byte == pytest.approx(intensity)
    assert found.ridge_flop_per_byte == pytest.approx(206.125)
    assert (found.roofline, found.roofline_source) == (side, "DRAM counters of the GPUs")


@pytest.mark.parametrize(
    ("telemetry", "reason"),
    [
        (gpus(dram=(50.0,)), "telemetry has 1 GPUs, the job 2"),
        (gpus(dram=(50.0, None), reason="GPM needs root"), "GPM needs root"),
        (gpus(dram=(None, 50.0)), "no DRAM counters of NVIDIA H200, or no peak of its memory is known"),
    ],
)
def test_without_counters_of_all_gpus_there_is_no_roofline(telemetry, reason):
    envs = (env(0, ("NVIDIA H200",)), env(1, ("NVIDIA H200",)))
    found = figures(start(), *envs, trial=GPU_TRIAL, telemetry=telemetry)
    assert (found.roofline, found.intensity_flop_per_byte) == (None, None)
    assert found.roofline_source == f"unavailable: {reason}"
    assert found.mfu_percent is not None


def test_an_unknown_gpu_has_a_reason_and_no_peak():
    names = ("Voodoo 2",)
    found = figures(start(), env(0, names), env(1, names), trial=GPU_TRIAL, telemetry=gpus(name="Voodoo 2"))
    assert (found.peak_tflops, found.mfu_percent, found.ridge_flop_per_byte) == (None, None, None)
    assert found.peak_source == "unavailable: no peak is known for Voodoo 2"
    assert found.achieved_tflops == pytest.approx(0.3)
    silent = figures(start(), env(0, ("NVIDIA H200",)), trial=GPU_TRIAL)
    assert silent.peak_source == "unavailable: the programs named 1 of 2 GPUs"


def test_cpu_workers_by_hand():
    """3 GFLOP × 10 samples/s are 30 GFLOP/s, or 18.75 % of the 90 + 70 that the two ranks measured concurrently."""
    trial = examples.trial(world_size=2, processes=2)
    found = figures(start(), peak(0, 90e9), peak(1, 70e9), trial=trial, throughput=10.0)
    assert found.peak_tflops == pytest.approx(0.160)
    assert found.mfu_percent == pytest.approx(18.75)
    assert "(torch.mm in fp32) on 2 cores in each of 2 processes at once" in found.peak_source
    assert found.roofline_source == "unavailable: nothing counts the memory traffic of CPUs"


@pytest.mark.parametrize(
    ("ranks", "changes", "reason"),
    [
        (0, {}, "no peak was measured"),
        (1, {"world_size": 2, "processes": 2}, "no peak was measured"),
        (1, {"oversubscribed": True}, "what was measured on shared cores"),
        (1, {"concurrent": Concurrent(trainings=2, case="together", number=1, shared=True)}, "shared cores"),
    ],
)
def test_cpus_without_a_measured_peak_have_none(ranks, changes, reason):
    found = figures(start(), *(peak(rank, 90e9) for rank in range(ranks)), trial=examples.trial(**changes))
    assert (found.peak_tflops, found.mfu_percent) == (None, None)
    assert reason in found.peak_source
    assert found.achieved_tflops == pytest.approx(0.3)


@pytest.mark.parametrize(("rate", "mfu"), [(53.3, 99.94), (53.4, None)])
def test_utilisation_above_the_peak_is_withheld(rate, mfu):
    """Utilisation above 100 % is wrong: 147 % was printed for a Xeon whose peak was guessed."""
    found = figures(start(), peak(0, 160e9), throughput=rate)
    assert found.mfu_percent == (mfu and pytest.approx(mfu, abs=0.01))
    assert found.above_peak is (mfu is None)
    assert found.peak_tflops == pytest.approx(0.160)


def test_a_run_without_throughput_keeps_its_flop_count_and_peak():
    found = figures(start(), peak(0, 160e9), throughput=None)
    assert (found.achieved_tflops, found.mfu_percent, found.above_peak) == (None, None, False)
    assert found.peak_tflops == pytest.approx(0.160)


# Names as NVML and CUDA give them, and each entry's TFLOP/s in fp32 and GB/s, read from the datasheets again.
NAMES = {
    "Tesla K20m": (3.52, 208),
    "Tesla K20Xm": (3.95, 250),
    "Tesla K40m": (5.04, 288),
    "Tesla K80": (4.365, 240),
    "Tesla M40": (6.84, 288),
    "Tesla M40 24GB": (6.84, 288),
    "GeForce GTX TITAN X": (6.6, 336.5),
    "NVIDIA GeForce GTX 1080 Ti": (11.34, 484),
    "NVIDIA TITAN X (Pascal)": (10.97, 480),
    "TITAN X (Pascal)": (10.97, 480),
    "NVIDIA TITAN Xp": (12.15, 547.7),
    "Quadro P4000": (5.3, 243),
    "Tesla P100-PCIE-16GB": (9.3, 732),
    "Tesla P100-PCIE-12GB": (9.3, 549),
    "Tesla P100-SXM2-16GB": (10.6, 732),
    "Tesla V100-PCIE-16GB": (14.0, 900),
    "Tesla V100S-PCIE-32GB": (16.4, 1134),
    "Tesla V100-SXM2-32GB": (15.7, 900),
    "Tesla V100-SXM3-32GB": (15.7, 900),
    "Tesla T4": (8.1, 320),
    "NVIDIA GeForce RTX 2080 Ti": (13.4, 616),
    "NVIDIA A10": (31.2, 600),
    "NVIDIA A30": (10.3, 933),
    "NVIDIA A40": (37.4, 696),
    "A100-SXM4-40GB": (19.5, 1555),
    "NVIDIA A100-PCIE-40GB": (19.5, 1555),
    "NVIDIA A100 80GB PCIe": (19.5, 1935),
    "NVIDIA A100-SXM4-80GB": (19.5, 2039),
    "NVIDIA GeForce RTX 3090": (35.6, 936),
    "NVIDIA L4": (30.3, 300),
    "NVIDIA L40S": (91.6, 864),
    "NVIDIA GeForce RTX 4090": (82.6, 1008),
    "NVIDIA RTX 6000 Ada Generation": (91.1, 960),
    "NVIDIA H100 PCIe": (51.2, 2039),
    "NVIDIA H100 80GB HBM3": (66.9, 3352),
    "NVIDIA H100 NVL": (60, 3938),
    "NVIDIA H200": (66.9, 4800),
    "NVIDIA H200 NVL": (60, 4800),
    "NVIDIA B200": (75, 7700),
    "NVIDIA GB200": (80, 8000),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_is_found_by_its_drivers_name(name):
    found = gpu_peak(name)
    assert (found.tflops["fp32"], found.bandwidth_gb_s) == NAMES[name]


def test_every_entry_matches_a_name_and_no_name_matches_two_entries():
    assert {gpu_peak(name).name for name in NAMES} == {gpu.name for gpu in known_gpus()}
    for name in NAMES:
        plain = re.sub(r"^(NVIDIA |Tesla |GeForce )+", "", name)
        assert sum(bool(re.fullmatch(gpu.name, plain, re.IGNORECASE)) for gpu in known_gpus()) == 1


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A10G",  # another clock and slower tensor cores than an A10
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "NVIDIA L40",
        "Quadro T400",
        "",
    ],
)
def test_a_gpu_with_a_similar_name_has_no_peak(name):
    assert gpu_peak(name) is None
    assert gpus_peak([name], "fp32") == f"no peak is known for {name}"


@pytest.mark.parametrize("gpu", known_gpus(), ids=lambda gpu: gpu.name)
def test_peaks_follow_from_cores_and_clock_and_have_the_ratios_of_their_units(gpu):
    """Sparse figures are twice the dense ones and would fail here: tf32 is half of fp16, bf16 equals it, fp64 is at most half of fp32.

    A fused multiply-add is two operations.
    """
    flops = gpu.tflops
    assert bool(gpu.cores and gpu.boost_mhz) == (gpu.name not in {"V100-SXM3-32GB(-H)?", "B200", "GB200"})
    if gpu.cores:
        assert gpu.cores * 2 * gpu.boost_mhz * 1e6 / 1e12 == pytest.approx(flops["fp32"], rel=0.02)
    assert set(gpu.tensor) <= set(flops)
    assert flops["fp64"] <= 0.51 * flops["fp32"]
    if "tf32" in flops:
        assert flops["fp16"] == flops["bf16"] == pytest.approx(2 * flops["tf32"], rel=0.03)
    if "fp16" in gpu.tensor:
        assert 1.9 <= flops["fp16"] / flops["fp32"] <= 32.1


@pytest.mark.parametrize(
    ("name", "tensor_fma_per_sm_and_cycle", "sms"),
    [
        # FMA of fp16 with fp32 accumulation per SM and cycle: V100 8 tensor cores × 64, A100 4 × 256 (their whitepapers).
        ("Tesla V100-SXM2-16GB", 512, 80),
        ("NVIDIA A100-SXM4-40GB", 1024, 108),
    ],
)
def test_the_fp16_peak_follows_from_tensor_cores_and_clock(name, tensor_fma_per_sm_and_cycle, sms):
    gpu = gpu_peak(name)
    by_hand = sms * tensor_fma_per_sm_and_cycle * 2 * gpu.boost_mhz * 1e6 / 1e12
    assert gpu.tflops["fp16"] == pytest.approx(by_hand, rel=0.01)


def test_hopper_peaks_assume_a_lower_clock_for_tensor_cores_than_for_cuda_cores():
    """132 SMs × 2,048 FMA × 2 × 1,830 MHz make 989.4: SXM5 boosts to 1,830 MHz with busy tensor cores."""
    assert gpu_peak("NVIDIA H200").tflops["bf16"] == pytest.approx(132 * 2048 * 2 * 1830e6 / 1e12, rel=0.001)


def test_peaks_of_devices_add_up_and_the_source_lists_them():
    found = gpus_peak(["NVIDIA H200"] * 4, "bf16")
    assert (found.tflops, found.bandwidth_gb_s) == (4 * 989.4, 4 * 4800)
    assert found.source.startswith("4 × NVIDIA H200: 989.4 TFLOP/s in bf16 on tensor cores; NVIDIA H200 datasheet")
    mixed = gpus_peak(["Tesla V100-SXM2-16GB", "NVIDIA H200"], "fp32")
    assert mixed.tflops == pytest.approx(66.9 + 15.7)
    assert "CUDA cores" in mixed.source


@pytest.mark.parametrize(
    ("name", "precision"), [("Tesla K80", "fp16"), ("Tesla V100-SXM2-16GB", "tf32"), ("Tesla T4", "bf16")]
)
def test_a_precision_that_a_gpu_lacks_has_no_peak(name, precision):
    assert gpus_peak([name], precision) == f"{name} has no {precision} arithmetic of its own"
