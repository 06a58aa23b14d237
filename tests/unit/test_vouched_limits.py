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
from runner.overhead.again import from_file
from runner.overhead.raw import read_overhead
from runner.report.block import ABSENT
from runner.results import records_under
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


def test_the_lines_of_three_ablations():
    found = [ablated(topic) for topic in ("ablation", "ablation-grow", "ablation-to-compile")]
    for label in found[0]:
        rates = [rows[label].throughput if label in rows else None for rows in found]
        known = [rate for rate in rates if rate is not None]
        assert label == "+ compile" or max(known) / min(known) < 1.02
        cells = [*(f"{rate:,.0f}" if rate else ABSENT for rate in rates), f"{max(known) / min(known):.3f}"]
        assert f"| {label} | {' | '.join(cells)} |" in TEXT
    clocks = [rows["+ compile"].telemetry.gpus[0].sm_clock_mhz.avg for rows in found]
    assert "faster: {:,.0f}, {:,.0f} and {:,.0f} MHz".format(*clocks) in TEXT
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
    assert all(line.losses.within for line in found.lines[1:])


@pytest.mark.parametrize("model", ["resnet50-imagenet-stem", "resnet152-imagenet-stem", "resnet50"])
def test_tuned_over_eager_on_small_images(model):
    eager, tuned = (runs("small", techniques=count, model=model) for count in (2, 7))
    active = statistics.mean(gpu.sm_active_percent.avg for _, record in eager for gpu in record.telemetry.gpus)
    assert f"| {model} | {ratio(tuned, eager)[0]:.2f} | {active:.0f} |" in TEXT


@pytest.mark.parametrize("model", NETWORKS)
def test_efficiency_of_one_message_and_of_ddp(model):
    found = [efficiency("scaling-tuned", model, 2), efficiency("scaling", model, 2), efficiency("scaling", model, 4)]
    assert f"| {model} | {' | '.join(f'{share:.3f}' for share in found)} |" in TEXT


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


def test_power_over_time_against_the_energy_counter():
    told = {"uneven": [], "even": [], "mean of a second": []}
    for topic in H200.iterdir():
        for _, record in records_under(topic) if topic.is_dir() else ():
            for gpu in record.telemetry.gpus if record.telemetry else ():
                if gpu.energy_method == "energy counter" and gpu.integrated_power_j:
                    beat = "uneven" if topic.name == "ablation-grow" else "even"
                    reading = beat if gpu.power_reading == "instant" else "mean of a second"
                    told[reading].append((100 * abs(gpu.integrated_power_j / gpu.energy_j - 1), gpu.measured_s))
    assert f"what the energy counter gives within {max(told['uneven'])[0]:.1f} % (`ablation-grow`)" in TEXT
    assert f"all others were sampled, within {max(told['even'])[0]:.1f} %" in TEXT
    off = max(off for off, seconds in told["mean of a second"] if seconds >= 2)
    assert f"as much as {off:.0f} % in spans of two seconds" in TEXT
