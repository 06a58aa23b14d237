"""What results/README.md says of the H200s, held against the records.

Prevents: a ratio in prose that no record gives, and a limit that is named without the figure that shows it.
"""

import statistics
from pathlib import Path

import pytest

from runner.across.ablation import ablations
from runner.across.alike import ratio
from runner.across.networks import networks
from runner.across.strategies import strategies
from runner.on_file import records_under
from runner.overhead.again import from_file
from runner.overhead.raw import read_overhead
from runner.report.block import ABSENT
from runner.report.figures import figure, half_width
from runner.summarize import summarize

ROOT = Path(__file__).parents[2]
H200 = ROOT / "results/h200"
TEXT = " ".join((ROOT / "results/README.md").read_text("utf-8").split())
NETWORKS = ("resnet50", "resnet152", "inception-v3", "googlenet", "vgg16", "alexnet")


def runs(topic, *, techniques=None, **wanted):
    """The runs of a topic that have these facts, and so many techniques where that is said."""
    return [
        (path, record)
        for path, record in records_under(H200 / topic)
        if all(getattr(record.trial, name) == value for name, value in wanted.items())
        and techniques in (None, len(record.trial.techniques))
    ]


def one(topic, **wanted):
    ((_, record),) = runs(topic, **wanted)
    return record


def rate(topic, **wanted):
    return one(topic, **wanted).measurement.throughput.value


@pytest.mark.parametrize("batch", [256, 512, 1024, 2048])
def test_tuned_over_the_eager_channels_last_loop(batch):
    cells = [f"{batch:,}"]
    for topic in ("ablation", "tuned", "ablation-grow"):
        tuned = runs(topic, techniques=7, batch_per_device=batch)
        over, _ = ratio(tuned, runs(topic, techniques=1))
        cells += [f"{summarize(tuned).rows[0].throughput:,.0f}", f"{over:.2f}"] if tuned else [ABSENT, ABSENT]
    assert f"| {' | '.join(cells)} |" in TEXT


def ablated(topic):
    (found,) = ablations(list(records_under(H200 / topic)))
    return {line.label.removeprefix("bf16, "): line.row for line in found.lines}


def test_what_readme_says_of_the_whole_ablation():
    first, *_, last = ablated("ablation-grow").values()
    told = f"[{first.throughput:,.0f} to {last.throughput:,.0f} images/s](results/h200/ablation-grow/"
    assert told in (ROOT / "README.md").read_text("utf-8")


def test_three_rounds_on_another_gpu():
    tuned, eager = (runs("ablation-rounds", techniques=count) for count in (7, 1))
    assert len(tuned) == len(eager) == 3
    rows = [summarize(some).rows[0] for some in (tuned, eager)]
    told = [figure(row.throughput, half_width(row.throughput_ci95)) for row in rows]
    over, ci95 = ratio(tuned, eager)
    assert f"{told[0]} images/s over {told[1]}, which is {figure(over, half_width(ci95))}." in TEXT


def test_the_lines_of_four_ablations():
    found = [ablated(topic) for topic in ("ablation", "ablation-grow", "ablation-rounds", "ablation-to-compile")]
    for label in found[0]:
        rates = [rows[label].throughput if label in rows else None for rows in found]
        known = [rate for rate in rates if rate is not None]
        assert label == "+ compile" or max(known) / min(known) < 1.02
        cells = [*(f"{rate:,.0f}" if rate else ABSENT for rate in rates), f"{max(known) / min(known):.3f}"]
        assert f"| {label} | {' | '.join(cells)} |" in TEXT
    clocks = [rows["+ compile"].telemetry.gpus[0].sm_clock_mhz.avg for rows in found]
    assert "faster: {:,.0f}, {:,.0f}, {:,.0f} and {:,.0f} MHz".format(*clocks) in TEXT
    assert clocks == sorted(clocks)


def test_power_is_what_limits_it():
    (gpu,) = one("ablation", techniques=7, batch_per_device=1024).telemetry.gpus
    assert gpu.slowdown_percent["power cap"] == 100
    assert (
        f"{gpu.energy_j / gpu.measured_s:.0f} of {gpu.power_limit_w:.0f} W, and the driver holds the clock at {gpu.sm_clock_mhz.avg:,.0f}"
        in TEXT
    )


def test_each_line_learns_what_the_plain_program_learns():
    (found,) = ablations(list(records_under(H200 / "losses")))
    assert len(found.lines) == 8
    losses = [line.losses for line in found.lines[1:]]
    assert all(one.within for one in losses)
    near = [one.distance for one in losses]
    assert f"by {min(near):.3f} to {max(near):.3f} (root mean square" in TEXT
    assert f"by at most {max(abs(one.shift) for one in losses):.3f} in the mean" in TEXT
    assert f"by as much as {losses[0].spread:.3f} and {losses[0].sway:.3f} (`losses`)" in TEXT


@pytest.mark.parametrize("model", ["resnet50-imagenet-stem", "resnet152-imagenet-stem", "resnet50"])
def test_tuned_over_eager_on_small_images(model):
    over, active = tuned_over_eager("small", model)
    assert f"| {model} | {over:.2f} | {active:.0f} |" in TEXT


def tuned_over_eager(topic, model):
    """Of the images/s, and percent of the SMs that were active in the eager ones."""
    eager, tuned = (runs(topic, techniques=count, model=model) for count in (2, 7))
    active = statistics.mean(gpu.sm_active_percent.avg for _, record in eager for gpu in record.telemetry.gpus)
    return ratio(tuned, eager)[0], active


def test_small_images_in_three_rounds():
    over, active = tuned_over_eager("small-rounds", "resnet50-imagenet-stem")
    assert f"| resnet50-imagenet-stem, three rounds | {over:.2f} | {active:.0f} |" in TEXT
    eager = [record for topic in ("small", "small-rounds") for _, record in runs(topic, techniques=2)]
    launched = [record.validity.status for record in eager if record.trial.model.endswith("stem")]
    assert (launched.count("degraded"), len(launched)) == (6, 10)


@pytest.mark.parametrize("model", NETWORKS)
def test_efficiency_of_one_message_and_of_ddp(model):
    cells = [model]
    for topic, scales in (("scaling-tuned", (2,)), ("scaling", (2, 4))):
        alone = one(topic, model=model, world_size=1)
        cells.append(f"{alone.trial.batch_per_device:,}")
        for scale in scales:
            clean = {alone.validity.status, one(topic, model=model, world_size=scale).validity.status} == {"valid"}
            cells.append(f"{efficiency(topic, model, scale):.3f}{'' if clean else ', degraded'}")
    assert f"| {' | '.join(cells)} |" in TEXT


def test_what_ran_on_several_gpus_ran_with_what_the_text_says():
    for topic in ("scaling-tuned", "scaling"):
        for _, record in records_under(H200 / topic):
            between = {
                name
                for name in record.trial.techniques
                if name in ("local-statistics", "one-message", "bf16-gradients")
            }
            one_message = {"one-message"} if topic == "scaling-tuned" else set()
            assert between == (
                {"local-statistics", "bf16-gradients"} | one_message if record.trial.world_size > 1 else set()
            )
    drift = one("scaling", model="resnet152", world_size=1).measurement.steady.drift
    assert f"(later windows were {drift:.0%} faster)".replace("%", " %") in TEXT


def efficiency(topic, model, scale):
    alone, several = (rate(topic, model=model, world_size=size) for size in (1, scale))
    return several / alone / scale


def test_what_ddp_costs_beside_what_its_exchange_takes():
    (found,) = networks(list(records_under(H200 / "scaling")))
    (resnet50,) = (network for network in found.networks if network.label.startswith("resnet50 "))
    alone, four = (row.parts for row in resnet50.rows if row.scale in (1, 4))
    assert f"takes {1e3 * (four.step_s - alone.step_s):.2f} ms more than on one" in TEXT
    assert f"exchanged in {1e3 * four.exchange_alone_s:.2f} ms" in TEXT


def test_clocks_fall_with_vgg16():
    alone, slower = (
        min(gpu.sm_clock_mhz.avg for gpu in one("scaling-tuned", model="vgg16", world_size=size).telemetry.gpus)
        for size in (1, 2)
    )
    assert f"to {slower:,.0f} MHz, from {alone:,.0f} on one" in TEXT


def test_horovod_beside_ddp():
    (found,) = strategies(list(records_under(H200 / "horovod")))
    assert [way.label.split()[0] for way in found.ways] == ["ddp", "horovod"]
    for way in found.ways:
        parts = way.row.parts
        seconds = f"{1e3 * parts.exchange_alone_s:.2f} | {1e3 * parts.rest_s:.2f}"
        assert f"| {way.label} | {way.row.throughput:,.0f} | {way.row.efficiency:.3f} | {seconds} |" in TEXT


def overhead(path):
    return from_file(read_overhead(path), path.parent)


@pytest.mark.parametrize("path", sorted((H200 / "overhead").glob("overhead-*.json")), ids=lambda path: path.stem)
def test_what_the_suite_costs(path):
    found = overhead(path)
    bare = found.ratios_to("bare")
    outside = statistics.median(each.outside_s for each in found.rounds)
    cells = [f"{found.telemetry_ratio:.4f}", f"{found.host_ratio:.4f}"]
    cells += [f"{statistics.median(bare):.4f}" if bare else ABSENT, f"{outside:.2f}"]
    assert f"| {path.stem.split('-')[1]} | {' | '.join(cells)} |" in TEXT


def test_where_the_gpu_waits_for_launches_costs_can_not_be_told():
    (path,) = (H200 / "overhead-small").glob("overhead-*.json")
    rounds = overhead(path).ratios_to("bare")
    assert len(rounds) == 3
    assert f"the suite had {min(rounds):.3f} to {max(rounds):.3f} of the bare loop's images/s" in TEXT


UNEVEN = ("ablation-grow", "ablation-rounds", "small-rounds")


def test_power_over_time_against_the_energy_counter():
    told = {"uneven": [], "even": [], "mean of a second": []}
    for topic in H200.iterdir():
        for _, record in records_under(topic) if topic.is_dir() else ():
            for gpu in record.telemetry.gpus if record.telemetry else ():
                if gpu.energy_method == "energy counter" and gpu.integrated_power_j:
                    beat = "uneven" if topic.name in UNEVEN else "even"
                    reading = beat if gpu.power_reading == "instant" else "mean of a second"
                    told[reading].append((100 * abs(gpu.integrated_power_j / gpu.energy_j - 1), gpu.measured_s))
    for beat, words in (
        ("uneven", "within {:.1f} % in {} runs at an uneven beat (root mean square {:.1f} %: `ablation-grow`"),
        ("even", "within {:.1f} % in {} at an even one ({:.1f} %)"),
    ):
        off = [percent for percent, _ in told[beat]]
        assert words.format(max(off), len(off), statistics.fmean(percent**2 for percent in off) ** 0.5) in TEXT
    off = max(off for off, seconds in told["mean of a second"] if seconds >= 2)
    assert f"as much as {off:.0f} % in spans of two seconds" in TEXT
