"""Model FLOP utilisation and the place under the roofline, from a run's events, its provenance and its telemetry.

Prevents: utilisation of one device in place of all; a peak of another precision; a core that ranks share, or two threads of one, counted
twice; a clock from before the run where one was measured; a side of the roofline without counted bytes; a figure without its source;
a figure above 100 % that is cut.
"""

from __future__ import annotations

from types import SimpleNamespace

import examples
import pytest
import records

from runner.events import Env, FlopPerSample, Net, RunStart
from runner.flop.figures import METHOD, flop_figures
from runner.machine.processor import Processor
from runner.machine.provenance import NodeUsed

SAID = {"t": 0.0, "received": 1.0, "container": "w0"}
ZEN4 = Processor(
    vendor="AuthenticAMD",
    family=25,
    model=17,
    flags=("sse2", "avx", "fma", "avx2", "avx512f"),
    core_threads=("0,4", "1,5", "2,6", "3,7"),
)
GPU_TRIAL = examples.trial(device="gpu", precision="bf16", world_size=2, processes=2, cpus_per_worker=None)


def start(flop=(1e9, 2e9), rank=0):
    return RunStart(
        event="run_start",
        rank=rank,
        world_size=1,
        batch_per_device=1,
        global_batch=1,
        iterations=1,
        warmup=1,
        image_shape=(3, 32, 32),
        num_classes=10,
        parameters=1,
        seed=1,
        flop_per_sample=FlopPerSample(forward=flop[0], backward=flop[1]) if flop else None,
        **SAID,
    )


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


def net(rank, node):
    return Net(event="net", rank=rank, where="start", interfaces={}, node=node, **SAID)


def host(**changes):
    values = records.HOST | {"cpu_model": "AMD EPYC", "processor": ZEN4, "cpu_current_mhz": 2500.0}
    return records.provenance().host.model_validate(values | changes)


def figures(*events, trial=None, throughput=100.0, telemetry=None, **provenance):
    return flop_figures(
        trial=trial or examples.trial(),
        events=events,
        provenance=records.provenance(**({"host": host()} | provenance)),
        throughput=throughput,
        telemetry=telemetry,
    )


def gpus(*, dram=(50.0, 50.0), name="NVIDIA H200", reason=None):
    """Telemetry of two GPUs; `dram` in per cent, None where there are no counters."""
    found = [
        SimpleNamespace(node="here", index=index, name=name, dram_percent=percent and SimpleNamespace(avg=percent))
        for index, percent in enumerate(dram)
    ]
    return SimpleNamespace(gpus=found, hosts=(), why_missing=lambda *_: reason)


def hosts(**clocks):
    found = [SimpleNamespace(node=name, clock_mhz=mhz and SimpleNamespace(avg=mhz)) for name, mhz in clocks.items()]
    return SimpleNamespace(gpus=(), hosts=found)


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


def test_a_rank_that_named_no_gpu_leaves_the_peak_open():
    found = figures(start(), env(0, ("NVIDIA H200",)), trial=GPU_TRIAL)
    assert found.peak_source == "unavailable: the programs named 1 of 2 GPUs"


def test_a_cpu_worker_by_hand():
    """2 cores × 32 × 2.5 GHz are 160 GFLOP/s; 3 GFLOP × 10 samples/s are 30, or 18.75 %."""
    found = figures(start(), env(), throughput=10.0)
    assert found.peak_tflops == pytest.approx(0.160)
    assert found.mfu_percent == pytest.approx(18.75)
    assert found.peak_source.endswith("× 2500 MHz (clock that the kernel told before the run)")
    assert found.roofline_source == "unavailable: nothing counts the memory traffic of CPUs"


def test_more_than_the_peak_is_kept_and_flagged():
    found = figures(start(), env(), throughput=80.0)
    assert found.mfu_percent == pytest.approx(150)
    assert found.above_peak


def test_a_run_without_a_throughput_keeps_its_count_and_its_peak():
    found = figures(start(), env(), throughput=None)
    assert (found.achieved_tflops, found.mfu_percent) == (None, None)
    assert found.peak_tflops == pytest.approx(0.160)


@pytest.mark.parametrize(
    ("cpus", "threads", "cores"),
    [
        ((0, 1), 2, 2),
        ((0, 4), 2, 1),  # two threads of one core
        ((0, 1, 2, 3), 2, 2),  # more cores than threads
        ((0, 1, 2, 3), 8, 4),  # more threads than cores
        ((0, 1), None, 2),
    ],
)
def test_cores_that_threads_can_keep_busy(cpus, threads, cores):
    found = figures(start(), env(cpus=cpus, threads=threads))
    assert found.peak_tflops == pytest.approx(cores * 0.080)


@pytest.mark.parametrize(("second", "cores"), [((2, 3), 4), ((0, 1), 2), ((1, 2), 3)])
def test_a_core_that_ranks_share_counts_once(second, cores):
    trial = examples.trial(world_size=2, processes=2)
    found = figures(start(), env(0, cpus=(0, 1)), env(1, cpus=second), trial=trial)
    assert found.peak_tflops == pytest.approx(cores * 0.080)


def used(name, **changes):
    values = dict.fromkeys(NodeUsed.model_fields) | {"gpus": (), "nics": (), "hcas": ()}
    return NodeUsed.model_validate(values | {"name": name, "host": host(**changes)})


def test_hosts_add_up_each_with_its_own_clock():
    """The same CPU numbers on two hosts are other cores: 2 × 32 × 2 GHz and 2 × 32 × 3 GHz."""
    trial = examples.trial(world_size=2, processes=2)
    events = (start(), env(0), env(1), net(0, "a"), net(1, "b"))
    nodes = (used("a"), used("b", cpu_current_mhz=1000.0))
    before = figures(*events, trial=trial, nodes=nodes)
    assert before.peak_tflops == pytest.approx(0.160 + 0.064)
    measured = figures(*events, trial=trial, nodes=nodes, telemetry=hosts(a=2000.0, b=3000.0))
    assert measured.peak_tflops == pytest.approx(0.128 + 0.192)
    assert measured.peak_source.count("mean clock while it was measured") == 2
    half = figures(*events, trial=trial, nodes=nodes, telemetry=hosts(a=2000.0, b=None))
    assert half.peak_tflops == pytest.approx(0.128 + 0.064)


def test_the_one_host_of_a_run_has_the_clock_of_the_only_sampler():
    found = figures(start(), env(), net(0, None), telemetry=hosts(here=2000.0))
    assert found.peak_tflops == pytest.approx(0.128)


def test_records_without_a_processor_say_why_there_is_no_peak():
    found = figures(start(), env(), host=host(processor=None))
    assert found.peak_source == "unavailable: the record does not tell what instructions AMD EPYC has"


def test_a_rank_that_did_not_tell_its_cpus_leaves_the_peak_open():
    trial = examples.trial(world_size=2, processes=2)
    assert figures(start(), env(), trial=trial).peak_source == "unavailable: not every rank told its CPUs"
    assert figures(start(), env(cpus=None)).peak_source == "unavailable: not every rank told its CPUs"
