"""Figures by batch that are not due to the batch.

Prevents: a point of another machine, scale, wire or model in a curve; a mean of shares over passes; a curve of a single batch; a point from
an invalid run, or from a pass of a region or of counters; a change of the programs that is not noted; a mean over GPUs some of which are
unknown; a table full of dashes; two sweeps that overwrite each other's reports.

Prevents: a network's efficiency relative to another network's baseline or to other wires, matrices of one training that are not joined, a
table of different trainings, and one that shows invalid figures.
"""

from __future__ import annotations

import csv
import io
import struct

import pytest
from records import but
from scaled import ran
from swept import measured, samples, traced, watched

from runner.analysis.comparisons.sweeps import networks, sweeps
from runner.report import comparisons
from runner.report.comparisons import sweep

pytestmark = pytest.mark.filterwarnings("error")  # a missing glyph is a warning

FOUR = measured(4, 400.0, utilisation=60.0, active=20.0)
SIXTEEN = measured(16, 900.0, utilisation=90.0, active=50.0, power=500.0)
RUNS = (SIXTEEN, FOUR, traced(4, 0.125), traced(16, 0.25, 0.125))


def points(*runs):
    (found,) = sweeps(runs)
    return found.points


def test_points_are_sorted_and_have_the_figures_of_runs_and_passes():
    four, sixteen = points(*RUNS)
    assert [(one.precision, one.batch) for one in (four, sixteen)] == [("fp32", 4), ("fp32", 16)]
    assert (four.throughput, sixteen.throughput) == (pytest.approx(400), pytest.approx(900))
    # 0.125 s and 0.375 s of kernels in 5 steps of 0.1 s.
    assert (four.compute_percent, sixteen.compute_percent) == (pytest.approx(25), pytest.approx(75))
    assert (four.utilisation_percent, four.sm_active_percent) == (60, 20)
    assert (sixteen.fp32_percent, sixteen.tensor_percent, sixteen.power_w) == (25, 10, 500)
    # 900 images a second at 500 W; 24 GFLOP each of a peak of 67 TFLOP/s.
    assert sixteen.samples_per_joule == pytest.approx(1.8)
    assert sixteen.row.mfu_percent == pytest.approx(100 * 900 * 24e9 / 67e12)


def test_seconds_of_passes_are_summed_before_the_division():
    """5 steps with 0.125 s of kernels and 10 with 0.75 s: 0.875 s of 1.5 s; the mean of 25 % and 75 % would be 50 %."""
    long = traced(16, 0.375, run_id="long")
    use = long[1].profile.gpu_total.model_copy(update={"busy_s": 0.75, "elapsed_s": 1.0})
    (_, sixteen) = points(*RUNS[:3], traced(16, 0.125), but(long, profile={"gpu_total": use}))
    assert sixteen.compute_percent == pytest.approx(100 * 0.875 / 1.5)


def test_repeats_of_one_batch_are_pooled():
    # 40 steps of 16 images at 900/s and at 450/s: 1280 images in 0.711 + 1.422 s.
    (_, sixteen) = points(FOUR, SIXTEEN, measured(16, 450.0, run_id="again"))
    assert sixteen.throughput == pytest.approx(600)
    assert sixteen.row.repeats == 2


def test_one_batch_is_no_sweep():
    assert sweeps([SIXTEEN, traced(16, 0.25), measured(16, 450.0, run_id="again")]) == ()
    assert sweeps([FOUR, measured(16, 900.0, precision="bf16")]) == ()
    assert sweeps([]) == ()


def test_threads_separate_cpu_sweeps_but_not_gpu_sweeps():
    on_cpus = [measured(batch, 900.0, device="cpu", threads=number) for batch, number in ((4, 1), (16, 2))]
    assert sweeps(on_cpus) == ()
    assert len(sweeps([FOUR, measured(16, 900.0, threads=2)])) == 1


def test_an_invalid_run_has_a_line_and_no_figure():
    bad = measured(64, 5000.0, status="invalid")
    (found,) = sweeps([FOUR, SIXTEEN, bad])
    assert [point.throughput for point in found.points][2] is None
    assert [point.utilisation_percent for point in found.points][2] is None
    assert "fp32, batch 64 invalid: made up" in found.notes
    assert "| fp32 | 64 | – | – | – | – | – | – | – | – | – | invalid |" in sweep(found).markdown()
    assert sweeps([FOUR, bad]) == ()


def test_partial_counting_or_invalid_passes_have_no_compute_utilisation():
    of_region = but(traced(16, 0.25), profile={"region": "forward"})
    invalid = but(traced(16, 0.25), validity={"status": "invalid"})
    for one in (of_region, invalid, traced(16, 0.25, kind="metrics")):
        (_, sixteen) = points(FOUR, SIXTEEN, one)
        assert sixteen.compute_percent is None


def test_a_degraded_run_does_not_degrade_its_pass():
    (_, sixteen) = points(FOUR, measured(16, 900.0, status="degraded"), traced(4, 0.125), traced(16, 0.25))
    assert (sixteen.status, sixteen.compute_status) == ("degraded", "valid")
    reasons = {"status": "degraded", "reasons": ("the rate had not settled when the profiler began",)}
    (found,) = sweeps([FOUR, SIXTEEN, but(traced(16, 0.25), validity=reasons)])
    assert (found.points[1].status, found.points[1].compute_status) == ("valid", "degraded")
    assert found.notes == (
        "fp32, batch 16, pass under a profiler degraded: the rate had not settled when the profiler began",
    )


def test_a_batch_with_only_a_memory_pass_has_no_line():
    found = points(FOUR, SIXTEEN, traced(64, kind="memory"))
    assert [point.batch for point in found] == [4, 16]


def test_a_mean_over_gpus_needs_all_of_them():
    one, two = samples(active=40.0, devices=2), samples(active=40.0, devices=2)
    two.loc[two["device"] == "gpu1", "sm_active_percent"] = None
    path, run = SIXTEEN
    known, partly = (run.model_copy(update={"telemetry": watched(t, trained=3600, devices=2)}) for t in (one, two))
    assert points(FOUR, (path, known))[1].sm_active_percent == pytest.approx(40)
    assert points(FOUR, (path, partly))[1].sm_active_percent is None


def test_changed_programs_between_batches_are_noted():
    (found,) = sweeps([FOUR, but(SIXTEEN, provenance={"workloads_sha256": "d" * 64})])
    assert found.notes == ("2 versions of the training programs were run: not the batch alone differs",)
    assert sweeps([FOUR, SIXTEEN])[0].notes == ()


def test_two_sweeps_of_the_same_name_do_not_overwrite_each_other():
    on_shm = [measured(batch, 100.0, interconnect="shm") for batch in (4, 16)]
    first, second = sweeps([FOUR, SIXTEEN, *on_shm])
    assert first.name == "sweep-pytorch-2.15.0-resnet50-224px-1gpu"
    assert second.name == f"{first.name}-2"


class TestReports:
    def test_the_table(self):
        lines = sweep(sweeps(RUNS)[0]).markdown().splitlines()
        assert lines[0] == "### pytorch 2.15.0: resnet50 train: sweep over the batch"
        assert lines[2].strip() == "resnet50 224×224, 1 GPU, synthetic data"
        # Of 600 W; 400 × 24 GFLOP of 67 TFLOP/s.
        assert lines[7] == (
            "| fp32 | 4 | 1 | 400.0 | 60.0 | 20.0 | 10.0 | 4.0 | 25.0 | 600.0 | 0.667 | 14.33 | valid |"
        )
        only_passes = sweep(sweeps([traced(4, 0.125), traced(16, 0.25)])[0]).markdown()
        assert "| precision | batch | compute (%) |" in only_passes  # an unknown figure has no column
        runs = [measured(batch, 100.0, device="cpu", cpus_per_worker=1) for batch in (4, 16)]
        on_cpus = sweep(sweeps([but(run, telemetry={"device": "cpu"}) for run in runs])[0]).markdown()
        assert "| CPUs (%) |" in on_cpus
        assert "NVML" not in on_cpus

    def test_each_figure_of_two_batches_has_a_plot(self):
        (found,) = sweeps(RUNS[:3])
        names = [name.removeprefix(found.name) for name, content in sweep(found).files().items() if content]
        assert names == [".md", "-throughput.png", "-utilisation.png", "-sm-active.png"]  # a single pass is no curve
        for name, content in sweep(sweeps(RUNS)[0]).files().items():
            if name.endswith(".png"):
                assert struct.unpack(">I", content[16:20])[0] == 1280


# lenet: 100, 180 and 320 images/s on 1, 2 and 4 devices; alexnet: 50 on one, 45 each on two.
LENET = (ran("lenet", 1, 100), ran("lenet", 4, 320), ran("lenet", 2, 180, matrix="later"))
ALEXNET = (ran("alexnet", 1, 50), ran("alexnet", 2, 90))


def test_efficiency_is_relative_to_the_networks_own_baseline_in_any_matrix():
    (found,) = networks((*LENET, *ALEXNET))
    assert [network.label for network in found.networks] == ["alexnet 32×32", "lenet 32×32"]
    alexnet, lenet = found.networks
    assert [row.scale for row in lenet.rows] == [1, 2, 4]
    assert [row.efficiency for row in lenet.rows] == pytest.approx([1, 0.9, 0.8])
    assert [row.speedup for row in lenet.rows] == pytest.approx([1, 1.8, 3.2])
    assert [row.efficiency for row in alexnet.rows] == pytest.approx([1, 0.9])
    assert lenet.runs == (("m-lenet-1-0",), ("later-lenet-2-0",), ("m-lenet-4-0",))
    assert found.name == "networks-pytorch-1.9.1-fp32-shm-cpu"
    assert found.setting == "fp32, weak scaling, ddp over shm, synthetic data"


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "bf16"},
        {"interconnect": "loopback"},
        {"scaling": "strong"},
        {"techniques": ("one-message",)},
        {"mode": "converge"},
        {"strategy": "horovod"},
    ],
)
def test_networks_trained_differently_are_in_another_table(changes):
    other = tuple(ran("alexnet", devices, rate, **changes) for devices, rate in ((1, 50), (2, 90)))
    assert networks((*LENET, *other)) == ()
    assert len(networks((*LENET, *ALEXNET, *other))) == 1


def test_two_networks_need_three_scales_and_a_single_network_is_no_comparison():
    vgg = (ran("vgg16", 1, 20), ran("vgg16", 2, 30))
    assert networks((*LENET[:2], *ALEXNET)) == ()
    (found,) = networks((*LENET[:2], *ALEXNET, *vgg))
    assert [network.rows[-1].efficiency for network in found.networks] == pytest.approx([0.9, 0.8, 0.75])
    larger = (ran("lenet", 1, 20, key="larger"), ran("lenet", 2, 30, key="larger"))
    assert networks((*LENET[:2], *ALEXNET, *larger)) == ()
    assert networks(LENET) == ()
    assert networks((*LENET, ALEXNET[1])) == ()  # no baseline


def test_an_invalid_run_has_a_reason_and_no_figure():
    lost = ran("alexnet", 2, 90, status="invalid")
    (found,) = networks((*LENET, ALEXNET[0], lost))
    assert [row.efficiency for row in found.networks[0].rows] == [pytest.approx(1), None]
    assert found.notes == (f"alexnet 32×32, 2 workers × 1 core invalid: {lost[1].validity.reasons[0]}",)
    (drawn,) = comparisons.networks(found).figures
    assert [series.name for series in drawn.series] == ["lenet 32×32, batch 32"]


def test_every_output_format_has_the_same_figures():
    (found,) = networks((*LENET, *ALEXNET))
    table = comparisons.networks(found).tables[0]
    column = table.columns.index("efficiency (%) ±")
    assert [row[column].partition(" ")[0] for row in table.rows] == ["100.0", "90.00", "100.0", "90.00", "80.00"]
    assert f"| {' | '.join(table.rows[-1])} |" in comparisons.networks(found).markdown()
    lines = list(csv.DictReader(io.StringIO(comparisons.networks(found).files()[f"{found.name}.csv"])))
    assert [float(line["efficiency"]) for line in lines] == pytest.approx([1, 0.9, 1, 0.9, 0.8])
    assert lines[-1]["runs"] == "m-lenet-4-0"
    (figure,) = comparisons.networks(found).page_block().figures
    assert [series.y for series in figure.series] == [pytest.approx((100, 90)), pytest.approx((100, 90, 80))]
    assert (
        comparisons.networks(found).page_block().lead
        == "alexnet 32×32: 90.00 % on 2 workers × 1 core; lenet 32×32: 80.00 % on 4 workers × 1 core"
    )
