"""The headline of README, held against the records that it is made from.

Prevents: a figure in README that no record gives any more, and a wire that is called by a name for which nothing speaks.
"""

from pathlib import Path

import pytest

from runner.analysis.comparisons.transports import across
from runner.analysis.interconnect.volume import gradient_factor, least_factor
from runner.report import transports
from runner.report.publish import Measured
from runner.results.find import records_under
from runner.results.store import read_record

ROOT = Path(__file__).parents[2]
WIRES = ROOT / "results/h200/wires"
RUNS = list(records_under(WIRES))
SEVERAL = [record for _, record in RUNS if record.trial.world_size > 1]


def test_the_table_that_readme_opens_with_is_what_the_records_give():
    """With the model, the batch and the precision that it is of."""
    (vgg,) = [Measured.across(runs) for name, runs in across(RUNS).items() if "vgg16" in name and "4gpu" in name]
    readme = (ROOT / "README.md").read_text("utf-8")
    assert "\n".join(transports.table(vgg.comparison).markdown()) in readme
    assert vgg.comparison.setting in " ".join(readme.split())


@pytest.mark.parametrize("record", SEVERAL, ids=lambda record: record.run_id)
def test_each_way_between_gpus_is_proved(record):
    """By NCCL's own lines, and by counters that all agree with them."""
    if record.validity.status == "invalid":
        assert record.transport.contradiction
        return
    said = " ".join(record.transport.evidence.nccl_lines)
    used = record.transport.used
    assert {"nvlink": "via P2P/", "shm": "via SHM/", "loopback": "via NET/Socket", "ethernet": "via NET/Socket"}[
        used
    ] in said
    several_a_host = record.trial.processes > record.trial.nodes > 1
    assert ("via P2P/" in said) == (used == "nvlink" or several_a_host)
    moved = sum(traffic.tx_bytes for traffic in record.transport.evidence.traffic if traffic.interface == "eth0")
    assert (moved > 0) == (used == "ethernet")
    links = sum(link.tx_bytes + link.rx_bytes for link in record.transport.evidence.nvlink)
    assert (links > 0) == (used == "nvlink" or several_a_host)
    assert record.transport.own_count.carried


def test_the_picture_that_readme_opens_with_is_the_one_beside_the_records():
    name = next(name for name in across(RUNS) if "vgg16" in name and "4gpu" in name)
    assert (ROOT / "docs/wires.png").read_bytes() == (WIRES / f"{name}.png").read_bytes()


def test_emulated_hosts_send_what_the_algorithm_needs():
    """NCCL takes a ring over all ranks, or a tree between the hosts; with one rank on each both send the same."""
    for record in SEVERAL:
        if record.trial.link:
            gradients = record.transport.gradient_bytes
            sent = sum(record.transport.sent_bytes_per_step.values()) / gradients
            assert least_factor(record.trial) <= sent <= 1.01 * gradient_factor(record.trial)


@pytest.mark.parametrize("path", [path for path, _ in RUNS], ids=lambda path: path.name)
def test_the_suite_that_measured_was_a_commit(path):
    assert read_record(path).provenance.git.dirty is False
