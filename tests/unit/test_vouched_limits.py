"""What results/README.md says of the H200s, held against the records.

Prevents: a ratio in prose that no record gives, and a limit that is named without the figure that shows it.
"""

import statistics
from pathlib import Path

import pytest

from runner.across.ablation import ablations
from runner.across.networks import networks
from runner.overhead.again import from_file
from runner.overhead.raw import read_overhead
from runner.results import records_under

ROOT = Path(__file__).parents[2]
H200 = ROOT / "results/h200"
TEXT = " ".join((ROOT / "results/README.md").read_text("utf-8").split())
NETWORKS = ("resnet50", "resnet152", "inception-v3", "googlenet", "vgg16", "alexnet")


def runs(topic, **wanted):
    return [
        record
        for _, record in records_under(H200 / topic)
        if all(getattr(record.trial, name) == value for name, value in wanted.items())
    ]


def one(topic, *, techniques=None, **wanted):
    """The only run of a topic that has these facts, and so many techniques where that is said."""
    (record,) = [own for own in runs(topic, **wanted) if techniques in (None, len(own.trial.techniques))]
    return record


def rate(topic, **wanted):
    return one(topic, **wanted).measurement.throughput.value


@pytest.mark.parametrize("batch", [256, 512, 1024])
def test_tuned_over_the_eager_channels_last_loop(batch):
    eager, tuned = rate("ablation", techniques=1), rate("ablation", techniques=7, batch_per_device=batch)
    assert f"| {batch:,} | {tuned:,.0f} | {tuned / eager:.2f} |" in TEXT


def test_what_readme_says_of_the_whole_ablation():
    first, *_, last = ablations(list(records_under(H200 / "ablation")))[0].lines
    told = f"[{first.row.throughput:,.0f} to {last.row.throughput:,.0f} images/s](results/h200/ablation/"
    assert told in (ROOT / "README.md").read_text("utf-8")


def test_power_is_what_limits_it():
    (gpu,) = one("ablation", techniques=7, batch_per_device=1024).telemetry.gpus
    assert gpu.slowdown_percent["power cap"] == 100
    assert (
        f"{gpu.power_w.avg:.0f} of {gpu.power_limit_w:.0f} W, and the driver holds the clock at {gpu.sm_clock_mhz.avg:,.0f}"
        in TEXT
    )


def test_each_line_learns_what_the_plain_program_learns():
    (found,) = ablations(list(records_under(H200 / "losses")))
    assert len(found.lines) == 8
    assert all(line.losses.within for line in found.lines[1:])


@pytest.mark.parametrize("model", ["resnet50-imagenet-stem", "resnet152-imagenet-stem", "resnet50"])
def test_tuned_over_eager_on_small_images(model):
    (gpu,) = one("small", techniques=2, model=model).telemetry.gpus
    eager, tuned = (rate("small", techniques=count, model=model) for count in (2, 7))
    assert f"| {model} | {tuned / eager:.2f} | {gpu.sm_active_percent.avg:.0f} |" in TEXT


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


def test_what_the_suite_costs():
    (path,) = (H200 / "overhead").glob("overhead-*.json")
    found = from_file(read_overhead(path), path.parent)
    outside = statistics.median(each.outside_s for each in found.rounds)
    assert f"{found.telemetry_ratio:.4f} of those without samplers" in TEXT
    assert f"{found.host_ratio:.4f} of those beside the container" in TEXT
    assert f"{outside:.2f} s" in TEXT
