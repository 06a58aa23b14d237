"""What docs/results-h200.md says of the H200s beside its generated tables, held against the records.

Prevents: a ratio in prose that no record gives.
"""

from pathlib import Path

from runner.analysis.comparisons.ablation import ablations
from runner.analysis.summarize import summarize
from runner.core.units import figure, half_width
from runner.results.find import records_under

ROOT = Path(__file__).parents[3]
H200 = ROOT / "results/h200"
RESULTS = " ".join((ROOT / "docs/results-h200.md").read_text("utf-8").split())


def rate(topic, **wanted):
    found = [
        (path, record)
        for path, record in records_under(H200 / topic)
        if all(getattr(record.trial, name) == value for name, value in wanted.items())
    ]
    (row,) = summarize(found).rows
    return row.throughput


def test_what_all_techniques_are_worth():
    (found,) = ablations(list(records_under(H200 / "ablation-rounds")))
    first, last = found.rows[0], found.rows[-1]
    assert (first.row.repeats, last.row.repeats) == (3, 3)
    ratio = figure(last.ratio, half_width(last.ratio_ci95))
    told = figure(last.row.throughput, half_width(last.row.throughput_ci95))
    assert f"at batch 256 {ratio} times as fast as the plain program, {told} images/s." in RESULTS


def test_plain_ddp_on_four_gpus_is_not_left_out():
    """A table of four GPUs left the faster variant out."""
    of = {"model": "resnet50", "world_size": 4, "interconnect": "nvlink", "batch_per_device": 256}
    plain, bf16 = rate("wires", **of), rate("scaling", **of)
    assert plain > bf16
    assert f"{plain:,.0f} against {bf16:,.0f} images/s, one run each." in RESULTS


def test_inference_with_a_busy_gpu_and_one_batch_at_a_time():
    """Throughput was the host's: 7,464 images/s with the GPU half idle, less than training."""
    now, before = (
        summarize(
            [(path, record) for path, record in records_under(H200 / topic) if record.trial.batch_per_device == 256]
        )
        for topic in ("inference-in-flight", "inference")
    )
    (now,), (before,) = now.rows, before.rows
    assert (now.repeats, before.repeats) == (3, 1)
    assert now.telemetry.utilisation_percent > 95
    told = f"{figure(now.throughput, half_width(now.throughput_ci95))} images/s of ResNet-50 in bf16 at batch 256, the GPU "
    told += f"{now.telemetry.utilisation_percent:.0f} % busy"
    assert told in RESULTS
    assert f"it was {before.throughput:,.0f} with the GPU {before.telemetry.utilisation_percent:.0f} % busy" in RESULTS
