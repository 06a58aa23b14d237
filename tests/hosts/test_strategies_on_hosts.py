"""Every multi-node strategy, on two or four hosts: the losses of one device, and bytes that really crossed the network.

Prevents: nodes that each train their own model, a job whose "network" is the loopback, a speedup from ranks that never communicated, a record
of only one node of two, keys and programs left on the hosts.
"""

from dataclasses import dataclass

import pytest
from commands import call
from numerics import GLOBAL_BATCH, ITERATIONS, TRAINING, check_losses, check_shared_losses, events

from runner.core.container_spec import LABEL_RUN


@dataclass(frozen=True)
class Pair:
    """A framework with a strategy and its settings on `nodes` nodes, one CPU worker each."""

    framework: str
    strategy: str
    settings: tuple[str, ...] = ()
    nodes: int = 2
    synchronous: bool = True

    def __str__(self):
        settings = (word.rpartition("=")[2] for word in self.settings)
        return "-".join((self.framework, self.strategy, *settings, f"{self.nodes}nodes"))


PAIRS = [
    Pair("pytorch", "ddp"),
    Pair("mxnet", "kvstore", ("--kvstore=dist_async",), synchronous=False),
    Pair("mxnet", "kvstore", ("--kvstore=dist_sync",), nodes=4),
    Pair("tensorflow", "multiworker"),
    Pair("mxnet", "horovod", ("--controller=gloo",)),
    Pair("pytorch", "horovod", ("--controller=mpi",)),  # by Gloo in test_wires.py
]


@pytest.fixture(scope="module", params=PAIRS, ids=str)
def pair(request):
    return request.param


@pytest.fixture(scope="module")
def ended(pair, session_rig, one_baseline, tmp_path_factory):
    out = tmp_path_factory.mktemp(str(pair))
    words = (f"--framework={pair.framework}", f"--strategy={pair.strategy}", *pair.settings)
    scale = (f"--hosts={session_rig.hosts(pair.nodes)}", f"--nodes={pair.nodes}", f"--workers={pair.nodes}")
    with one_baseline(pair.framework, pair.strategy == "horovod", pair.nodes, out=out):
        done = call("bench", *words, *scale, *TRAINING, out=out)
        assert done.code == 0, done.stderr
    return done


def test_the_record_has_every_node_and_all_samples(pair, ended, session_rig):
    record = ended.record(pair.nodes)
    names = [node.name for node in session_rig.nodes[: pair.nodes]]
    assert (record.trial.world_size, record.trial.nodes, record.trial.processes) == (pair.nodes,) * 3
    assert [(placed.node, placed.devices) for placed in record.trial.placement] == [(name, 1) for name in names]
    assert record.measurement.samples == ITERATIONS * GLOBAL_BATCH
    assert [node.name for node in record.provenance.nodes] == names
    assert {node.host.boot_id for node in record.provenance.nodes} == {record.provenance.host.boot_id}
    assert len({node.image_id for node in record.provenance.nodes}) == 1
    assert {event["node"] for event in events(ended, pair.nodes, "net")} == set(names)


def test_all_nodes_hold_one_model_and_have_one_devices_losses(pair, ended):
    check_shared_losses(ended.record(pair.nodes), devices=pair.nodes, synchronous=pair.synchronous)
    check_losses(ended.record(1), ended.record(pair.nodes), synchronous=pair.synchronous)


def test_the_gradients_cross_the_intended_interface(pair, ended, session_rig):
    transport = ended.record(pair.nodes).transport
    assert transport.used == "ethernet"
    assert transport.emulated == "emulated: nodes of one machine"
    assert transport.interfaces == {node.name: "eth0" for node in session_rig.nodes[: pair.nodes]}
    addresses = {node.addresses["eth0"] for node in session_rig.nodes[: pair.nodes]}
    talk = {peer.remote for peer in transport.evidence.peers} & addresses
    assert len(talk) > 1, transport.evidence.peers


def test_the_bytes_sent_are_the_gradients_times_the_algorithms_factor(pair, ended):
    transport = ended.record(pair.nodes).transport
    sent = sum(transport.sent_bytes_per_step.values())
    assert sent == pytest.approx(transport.expected_bytes_per_step, rel=0.15)
    assert transport.expected_bytes_per_step == 2 * (pair.nodes - 1) * transport.gradient_bytes


def test_the_probe_sums_correctly(pair, ended):
    probe = ended.record(pair.nodes).measurement.probe
    assert [point.size_bytes for point in probe] == [2**16, 2**20, 2**22]
    assert all(point.wrong == 0 and point.busbw_gb_s > 0 for point in probe)
    parts = ended.record(pair.nodes).measurement.step_parts
    if parts.inseparable is None:  # on shared cores, a pass on its own may take longer than a step
        told = (parts.input_s, parts.compute_s, parts.stragglers_s, parts.communication_s)
        assert min(told) >= 0
        assert sum(told) == pytest.approx(parts.step_s)


def test_a_sampler_observes_every_node_during_the_windows(pair, ended, session_rig):
    record = ended.record(pair.nodes)
    watched, steady = record.telemetry, record.measurement.steady
    assert [host.node for host in watched.hosts] == [node.name for node in session_rig.nodes[: pair.nodes]]
    counted = [window for window in record.measurement.windows if window.index >= steady.first_window]
    assert watched.samples == sum(window.samples for window in counted)
    for host in watched.hosts:
        assert 0 < host.cpu_percent.avg <= 100
        assert host.memory_mib.min > 0
    # Gradients cross every node's interface.
    assert all(host.net_tx_bytes > 0 for host in watched.hosts)
    assert {entry.reason for entry in watched.missing if entry.device == "gpu"} == {"no NVIDIA device"}


def test_nothing_stays_on_the_hosts(pair, ended, session_rig, engine):
    for node in session_rig.nodes[: pair.nodes]:
        client = engine(node)
        assert client.containers.list(all=True) == []
        assert client.volumes.list() == []
        assert not client.networks.list(filters={"label": LABEL_RUN})
