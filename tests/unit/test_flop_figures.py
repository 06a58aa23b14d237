"""Model FLOP utilisation and the place under the roofline, from a run's events, its provenance and its telemetry.

Prevents: utilisation of one device in place of all; a peak of another precision; a peak of CPUs that nobody measured (one that was guessed
from their instructions gave 147 %); that of one rank for all; a side of the roofline without counted bytes; a figure without its source; a
figure above 100 %.
"""

from __future__ import annotations

from types import SimpleNamespace

import examples
import pytest
import wires

from runner.analysis.flop.figures import METHOD, flop_figures
from runner.core.events import CpuPeak, Env, FlopPerSample
from runner.core.trial import Concurrent

SAID = {"t": 0.0, "received": 1.0, "container": "w0"}
GPU_TRIAL = examples.trial(device="gpu", precision="bf16", world_size=2, processes=2, cpus_per_worker=None)


def start(flop=(1e9, 2e9), rank=0):
    counted = FlopPerSample(forward=flop[0], backward=flop[1]) if flop else None
    return wires.start(None, rank=rank, flop_per_sample=counted)


def env(rank=0, names=(), cpus=(0, 1), threads=2):
    return Env(
        event="env",
        rank=rank,
        python="3.11",
        framework="mxnet",
        framework_version="1.9.1",
        device="gpu" if names else "cpu",
        device_names=names,
        threads=threads,
        cpus=cpus,
        **SAID,
    )


def peak(rank, flop_per_s):
    said = {"precision": "fp32", "cores": 2, "library": "torch.mm in fp32"}
    return CpuPeak(event="peak", rank=rank, flop_per_s=flop_per_s, **said, **SAID)


def figures(*events, trial=None, throughput=100.0, telemetry=None):
    trial = trial or examples.trial()
    return flop_figures(trial=trial, events=events, throughput=throughput, telemetry=telemetry)


def gpus(*, dram=(50.0, 50.0), name="NVIDIA H200", reason=None):
    """Telemetry of two GPUs; `dram` in per cent, None where there are no counters."""
    found = [
        SimpleNamespace(node="here", index=index, name=name, dram_percent=percent and SimpleNamespace(avg=percent))
        for index, percent in enumerate(dram)
    ]
    return SimpleNamespace(gpus=found, hosts=(), why_missing=lambda *_: reason)


def test_a_program_that_counts_nothing_has_no_figures():
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
def test_bytes_from_memory_decide_the_side_of_the_roofline(throughput, intensity, side):
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


def test_an_unknown_gpu_has_no_peak_and_the_reason_is_said():
    names = ("Voodoo 2",)
    found = figures(start(), env(0, names), env(1, names), trial=GPU_TRIAL, telemetry=gpus(name="Voodoo 2"))
    assert (found.peak_tflops, found.mfu_percent, found.ridge_flop_per_byte) == (None, None, None)
    assert found.peak_source == "unavailable: no peak is known for Voodoo 2"
    assert found.achieved_tflops == pytest.approx(0.3)
    silent = figures(start(), env(0, ("NVIDIA H200",)), trial=GPU_TRIAL)
    assert silent.peak_source == "unavailable: the programs named 1 of 2 GPUs"


def test_cpu_workers_by_hand():
    """3 GFLOP × 10 samples/s are 30 GFLOP/s, or 18.75 % of the 90 + 70 that the two ranks measured at once."""
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
def test_cpus_whose_peak_was_not_measured_have_none(ranks, changes, reason):
    found = figures(start(), *(peak(rank, 90e9) for rank in range(ranks)), trial=examples.trial(**changes))
    assert (found.peak_tflops, found.mfu_percent) == (None, None)
    assert reason in found.peak_source
    assert found.achieved_tflops == pytest.approx(0.3)


@pytest.mark.parametrize(("rate", "mfu"), [(53.3, 99.94), (53.4, None)])
def test_more_than_the_peak_is_withheld(rate, mfu):
    """What is more than all is wrong: 147 % was printed of a Xeon whose units were guessed."""
    found = figures(start(), peak(0, 160e9), throughput=rate)
    assert found.mfu_percent == (mfu and pytest.approx(mfu, abs=0.01))
    assert found.above_peak is (mfu is None)
    assert found.peak_tflops == pytest.approx(0.160)


def test_a_run_without_a_throughput_keeps_its_count_and_its_peak():
    found = figures(start(), peak(0, 160e9), throughput=None)
    assert (found.achieved_tflops, found.mfu_percent, found.above_peak) == (None, None, False)
    assert found.peak_tflops == pytest.approx(0.160)
