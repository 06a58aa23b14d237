"""The picture that README opens with and the records that it is made from.

Prevents: a picture that no record gives any more, and a wire that is called by a name for which nothing speaks.
"""

from pathlib import Path

import pytest

from runner.analysis.interconnect.evidence import gradient_factor, least_factor
from runner.results.find import records_under
from runner.results.store import read_record

WIRES = Path(__file__).parents[3] / "results/h200/wires"
RUNS = list(records_under(WIRES))
SEVERAL = [record for _, record in RUNS if record.trial.world_size > 1]


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
