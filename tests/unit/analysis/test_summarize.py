"""Prevents tables that hide what went wrong: repeats averaged instead of pooled, failed runs counted, speedups over nothing."""

import math
from pathlib import Path

import examples
import pytest
from records import but, provenance, record

from runner.analysis.summarize import machine, summarize, version_of
from runner.core.measurement import FlopFigures, StepParts
from runner.core.node import Gpu


def run(run_id, seconds=0.1, *, scale=1, status="valid", failed=False):
    several = {"world_size": scale, "processes": scale, "global_batch": 32 * scale}
    trial = examples.trial(**({"strategy": "kvstore", "kvstore": "dist_sync"} | several if scale > 1 else {}))
    found = record(run_id=run_id, trial=trial, status=status, seconds=seconds)
    if not failed:
        return Path(run_id), found
    outcome = {"status": "failed", "reason": "w0: exit code 1", "exit_codes": {"w0": 1}}
    validity = {"status": "invalid", "reasons": ("the run failed: w0: exit code 1",)}
    return but((Path(run_id), found), outcome=outcome, validity=validity)


def test_repeats_are_pooled_and_speedup_is_the_ratio_of_pooled_rates():
    # One device: 1280 images in 4 s and in 8 s = 213.3/s (the mean of the rates would be 240); two: 2560 in 8 s, twice = 320/s.
    found = summarize([run("a", 0.1), run("b", 0.2), run("c", 0.2, scale=2), run("d", 0.2, scale=2)])
    one, two = found.rows
    assert one.throughput == pytest.approx(2560 / 12)
    assert two.throughput == pytest.approx(320)
    assert two.speedup == pytest.approx(1.5)
    assert two.efficiency == pytest.approx(0.75)
    assert (one.repeats, two.repeats) == (2, 2)
    assert (one.throughput_ci95, two.speedup_ci95, two.efficiency_ci95) == (None, None, None)
    assert one.training_time_s == pytest.approx(6.0)


def test_three_repeats_have_an_interval_and_so_does_their_speedup_over_three():
    """Steps of 0.1 s, times or divided by e^0.02: t(2) × 0.02 ÷ sqrt(3); the same on both sides, t(4) × 0.02 × sqrt(2 ÷ 3)."""
    steps = [0.1 * math.exp(x) for x in (-0.02, 0.0, 0.02)]
    found = summarize([run(f"{scale}-{step}", step, scale=scale) for scale in (1, 2) for step in steps])
    one, two = found.rows
    assert (one.repeats, one.speedup_ci95) == (3, None)
    assert one.throughput_ci95.high / one.throughput == pytest.approx(math.exp(4.30265 * 0.02 / math.sqrt(3)))
    assert two.speedup_ci95.high / two.speedup == pytest.approx(math.exp(2.77645 * 0.02 * math.sqrt(2 / 3)))
    assert two.efficiency_ci95.low == pytest.approx(two.speedup_ci95.low / 2)
    over_one = summarize([run("a"), *(run(f"2-{step}", step, scale=2) for step in steps)]).rows[1]
    assert (over_one.throughput_ci95 is None, over_one.speedup_ci95) == (False, None)


def test_the_number_of_gpus_in_a_machine_does_not_separate_one_gpu_runs():
    """Prevents one GPU's runs split between a machine of one and a machine of two GPUs: the slower group was shown as the best."""
    gpus = [
        Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA H200", memory_mib=143771, compute_capability="9.0", nvlinks=18)
        for n in (0, 1)
    ]
    alone, beside = (
        record(trial=examples.trial(device="gpu")).model_copy(update={"provenance": provenance(gpus=tuple(own))})
        for own in (gpus[:1], gpus)
    )
    assert machine(alone) == machine(beside) == "NVIDIA H200"
    assert machine(record()) == "unknown processor, 2 cores"


def exchanging(run, *, step_s, alone_s=None):
    return but(run, measurement={"step_parts": StepParts(step_s=step_s, exchange_alone_s=alone_s)})


@pytest.mark.parametrize(
    ("step_s", "alone_s", "costly"),
    [
        (0.0500, 0.001, True),
        (0.0494, 0.001, False),  # 1.4 ms: as much as hiding it may cost
        (0.0484, 0.0001, False),  # 0.4 ms of 48: not noticeable
        (0.0500, None, False),
    ],
)
def test_a_step_that_grows_more_than_its_exchange_takes_is_noted(step_s, alone_s, costly):
    two = exchanging(run("b", scale=2), step_s=step_s, alone_s=alone_s)
    notes = summarize([exchanging(run("a"), step_s=0.048), two]).notes
    assert ["2.00 ms longer" in note and "exchange by itself 1.00 ms" in note for note in notes] == [True] * costly


def test_parts_of_repeats_add_up_to_their_step():
    """Medians of each part turned a step of 1,434 ms into 0.002, 950 and 35."""
    one = [(0.1, 0.01, 0.06, 0.01, 0.02), (0.2, 0.02, 0.07, 0.01, 0.10), (0.6, 0.33, 0.08, 0.04, 0.15)]
    names = ("step_s", "input_s", "compute_s", "stragglers_s", "communication_s")
    repeats = []
    for number, values in enumerate(one):
        parts = StepParts(**dict(zip(names, values, strict=True)))
        repeats.append(but(run(str(number), scale=2), measurement={"step_parts": parts}))
    row = summarize(repeats).rows[0]
    assert [getattr(row.parts, name) for name in names] == pytest.approx([0.3, 0.12, 0.07, 0.02, 0.09])


def test_parts_that_one_repeat_lacks_are_not_those_of_the_others():
    """The repeats in which the exchange was hidden were left out: the mean of the rest passed for that of all."""
    known = StepParts(step_s=0.3, input_s=0.0, compute_s=0.2, stragglers_s=0.0, communication_s=0.1)
    lost = StepParts(step_s=0.2, inseparable="a step takes 200 ms, a pass 200 ms")
    repeats = [
        but(run(str(n), scale=2), measurement={"step_parts": parts}) for n, parts in enumerate((known, lost, lost))
    ]
    (row,) = summarize(repeats).rows
    assert (row.parts.communication_s, row.parts.step_s) == (None, pytest.approx(0.7 / 3))
    assert row.parts.inseparable == "in 2 of 3 runs, a step takes 200 ms, a pass 200 ms"


def computing(run, peak_tflops):
    flop = FlopFigures(
        forward_flop_per_sample=1e9,
        backward_flop_per_sample=2e9,
        method="by hand",
        achieved_tflops=None,
        peak_tflops=peak_tflops,
        peak_source=f"{peak_tflops} TFLOP/s",
        mfu_percent=None,
        roofline_source="unavailable: no telemetry",
    )
    return but(run, measurement={"flop": flop})


def test_utilisation_uses_the_pooled_rate_and_the_median_peak():
    """1280 images in 4 s and in 8 s are 213.3/s; at 3 GFLOP each 0.64 TFLOP/s, of 1.5 between 1 and 2."""
    found = summarize([computing(run("a", 0.1), 1.0), computing(run("b", 0.2), 2.0), run("c", 0.2, scale=2)])
    assert found.rows[0].mfu_percent == pytest.approx(100 * 0.64 / 1.5)
    assert (found.rows[1].mfu_percent, found.peak) == (None, "1.0 TFLOP/s")
    above = summarize([computing(run("a", 0.1), 0.9)]).rows[0]  # 320 images/s are 0.96 TFLOP/s
    assert (above.mfu_percent, above.above_peak, found.rows[0].above_peak) == (None, True, False)
    unknown = summarize([computing(run("a"), None)])
    assert (unknown.rows[0].mfu_percent, unknown.peak) == (None, None)


def test_a_failed_repeat_is_named_and_left_out_of_the_figures():
    row = summarize([run("a"), run("b", failed=True)]).rows[0]
    assert row.throughput == pytest.approx(320)
    assert (row.status, row.repeats, row.reasons) == ("degraded", 1, ("the run failed: w0: exit code 1",))
    assert row.lost == row.reasons


def test_a_scale_without_a_usable_run_shows_no_figure():
    one, two = summarize([run("a"), run("b", scale=2, failed=True)]).rows
    assert (two.status, two.throughput, two.speedup) == ("failed", None, None)
    assert one.speedup == 1.0
    assert summarize([run("a", status="invalid")]).rows[0].status == "invalid"
    alone = summarize([run("b", scale=2)]).rows[0]  # without a baseline
    assert (alone.throughput, alone.speedup, alone.efficiency) == (pytest.approx(640), None, None)


def test_a_degraded_baseline_degrades_the_speedup():
    found = summarize([run("a", status="degraded"), run("b", scale=2)])
    one, two = found.rows
    assert (one.status, two.status) == ("degraded", "degraded")
    assert two.reasons == ("speedup and efficiency are over a baseline that is degraded",)
    assert two.speedup is not None


def test_the_setting_names_the_strategy_and_the_kind_of_batch():
    one = record(trial=examples.trial(scaling="strong", batch_per_device=64, global_batch=64))
    stores = {"strategy": "kvstore", "kvstore": "dist_sync", "world_size": 2, "processes": 2}
    two = record(trial=examples.trial(scaling="strong", **stores, global_batch=64), run_id="two")
    found = summarize([(Path("one"), one), (Path("two"), two)]).setting
    assert found == "resnet18 32×32, batch 64 in all, fp32, strong scaling, kvstore dist_sync"
    assert summarize([(Path("one"), record())]).setting == "resnet18 32×32, batch 32 per device, fp32, weak scaling"


@pytest.mark.parametrize(
    ("asked", "reference", "told", "named"),
    [
        ("2.6.0", "dlscale/pytorch:2.6.0", "2.6.0+cu126", "2.6.0"),
        ("2.13.0-cpu", "dlscale/pytorch:2.13.0-cpu", "2.13.0+cpu", "2.13.0-cpu"),
        ("2.15.0", "pytorch 2.11.0+cu130 (the machine's own)", "2.11.0+cu130", "2.11.0+cu130"),
        ("hostroot:1", "hostroot:1", "2.11.0+cu130", "2.11.0+cu130"),
        ("hostroot:1", "hostroot:1", None, "hostroot:1"),
    ],
)
def test_the_version_is_the_one_that_the_program_reports(asked, reference, told, named):
    """The planned version may differ from that of a machine's own environment: a report named a version that did not run."""
    found = record(trial=examples.trial(version=asked))
    _, found = but((Path("a"), found), image={"reference": reference}, provenance={"framework_version": told})
    assert version_of(found) == named


def test_a_baseline_of_another_driver_or_host_is_told():
    """A run on one GPU under another driver, on another host, gave a speedup without a word."""
    one, two = run("a"), run("b", 0.2, scale=2)
    host = one[1].provenance.host.model_copy(update={"hostname": "there"})
    other = but(one, provenance={"driver": "470.0", "host": host})
    assert summarize([one, two]).notes == ()
    (note,) = summarize([other, two]).notes
    assert note.endswith("the runs on one device had another host and driver")


def test_training_in_the_warm_up_of_a_convergence_is_told():
    """20 iterations before epochs of 62 are a third of an epoch more training than the table says."""
    trial = examples.trial(mode="converge", epoch_iterations=8)
    (note,) = summarize([(Path("a"), record(run_id="a", trial=trial))]).notes
    assert f"its {trial.warmup} iterations before the first epoch, of 8," in note
