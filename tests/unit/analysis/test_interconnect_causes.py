"""Prevents: a run passing for one over the requested transport, or declared invalid without a reason."""

import examples
import pytest
from wires import DDP, ITERATIONS, ON_GPU, gpu_trial, nccl, on_nodes, sent, start, wire

from runner.analysis.interconnect import transport as transport_module
from runner.analysis.interconnect.causes import mismatch
from runner.core.transport import Evidence, PortTraffic, Transport

GOLDEN = examples.ROOT / "tests" / "golden" / "nccl"
STEPS = ITERATIONS * 1_000_000
TAIL = "; the record's transport.evidence shows by what"
HCAS = {"kind": "infiniband", "iface": "eth0", "hcas": ("mlx5_0:1",)}
VERBS = {"wires": [wire(n, **HCAS) for n in (1, 2)], "interconnect": "infiniband"}


MPI = {"strategy": "horovod", "horovod": examples.horovod(controller="mpi", operations="mpi")}


def lines(*names):
    return tuple(line for name in names for line in (GOLDEN / f"{name}.log").read_text(encoding="utf-8").splitlines())


def transport(requested, used, *, said=(), ports=(), **changes):
    evidence = Evidence(traffic=(), nccl_lines=said, ports=ports)
    return Transport(requested=requested, used=used, evidence=evidence, **changes)


def port(name):
    return PortTraffic(node="n1", port=name, link_layer="InfiniBand", rx_bytes=0, tx_bytes=0)


NCCL = {**DDP, **ON_GPU}
STORE = {"strategy": "kvstore", "kvstore": "dist_sync"}


@pytest.mark.parametrize(
    ("requested", "used", "settings", "satisfied"),
    [
        ("auto", "ethernet", DDP, True),
        ("ethernet", "ethernet", DDP, True),
        ("infiniband", "infiniband", NCCL, True),
        *(("infiniband", "ipoib", ip_alone, True) for ip_alone in (DDP, STORE, {"strategy": "multiworker"})),
        *(("infiniband", "ipoib", can_do_better, False) for can_do_better in (NCCL, MPI)),
        ("roce", "roce", NCCL, True),
        ("infiniband", "ethernet", DDP, False),
        ("infiniband", "ethernet", NCCL, False),
        ("ethernet", "infiniband", NCCL, False),
        ("ethernet", "ipoib", DDP, False),
        ("infiniband", "roce", NCCL, False),
        ("ethernet", "unknown", DDP, False),
    ],
)
def test_a_transport_other_than_the_requested_one_is_reported_with_both_names(requested, used, settings, satisfied):
    interfaces = {"n1": "eth0", "n2": "eth0"} if satisfied and used in ("ethernet", "ipoib") else {}
    said = mismatch(transport(requested, used, interfaces=interfaces), on_nodes(2, interconnect=requested, **settings))
    assert said == (None if satisfied else f"INTERCONNECT={requested} asked, {used} used{TAIL}")


@pytest.mark.parametrize(
    ("requested", "used", "said", "cause"),
    [
        ("infiniband", "ethernet", lines("no-libibverbs"), "the image has no libibverbs"),
        ("roce", "ethernet", lines("no-device-in-container"), "the container has no /dev/infiniband"),
        ("infiniband", "ethernet", lines("ibv-warnings")[:1], "IPC_LOCK and an unlimited memlock"),
        ("infiniband", "ethernet", lines("ibv-warnings")[1:2], "IPC_LOCK and an unlimited memlock"),
        ("roce", "ethernet", lines("2.7-roce"), "IPC_LOCK and an unlimited memlock"),
        ("roce", "ethernet", lines("ibv-warnings")[2:], "GID"),
        ("infiniband", "ipoib", ("NCCL INFO NCCL_IB_DISABLE set by environment to 1.",), "NCCL_IB_DISABLE"),
        ("ethernet", "unknown", lines("libfabric-plugin"), "a plugin of the image brought another network"),
        ("infiniband", "ethernet", lines("2.28-socket-no-adapter"), "the kernel of the node shows none"),
    ],
)
def test_the_cause_between_nodes(requested, used, said, cause):
    found = mismatch(transport(requested, used, said=said), gpu_trial(interconnect=requested))
    assert found.startswith(f"INTERCONNECT={requested} asked, {used} used: ")
    assert cause in found
    assert found.endswith(TAIL)
    assert "\n" not in found


@pytest.mark.parametrize(
    ("ports", "cause"),
    [
        ((), "NCCL found no adapter, and the kernel of the node shows none"),
        (("mlx5_0:1",), "NCCL found no adapter: the container has no /dev/infiniband, or may not use it"),
        (("mlx5_4:1", "mlx4_0:2"), "NCCL found no adapter of the name mlx5_0:1; the node has mlx4_0:2, mlx5_4:1"),
    ],
)
def test_the_reason_why_no_adapter_was_found(ports, cause):
    """Every container sees the host's adapters in /sys, but in /dev/infiniband only those passed in."""
    said = lines("2.28-socket-no-adapter")
    found = transport("infiniband", "ethernet", said=said, ports=tuple(map(port, ports)), interfaces={"n1": "eth0"})
    assert mismatch(found, gpu_trial(**VERBS)) == f"INTERCONNECT=infiniband asked, ethernet (eth0) used: {cause}{TAIL}"


@pytest.mark.parametrize(
    ("requested", "used", "said", "cause"),
    [
        ("nvlink", "shm", lines("p2p-disabled"), "NCCL turned access from one GPU to the other off"),
        ("nvlink", "shm", lines("2.28-shm"), "NCCL was told so (NCCL_P2P_DISABLE"),
        ("nvlink", "shm", (), "no NVLink leads from each of these GPUs to the next"),
        ("nvlink", "pcie", (), "no NVLink leads from each of these GPUs to the next"),
        ("pcie", "nvlink", (), "NCCL takes NVLink wherever there is one"),
    ],
)
def test_the_cause_within_a_node(requested, used, said, cause):
    trial = examples.trial(**{**DDP, **ON_GPU, "world_size": 2, "processes": 2, "interconnect": requested})
    found = mismatch(transport(requested, used, said=said), trial)
    assert found.startswith(f"INTERCONNECT={requested} asked, {used} used: {cause}")
    assert mismatch(transport(requested, "none"), examples.trial(interconnect=requested)) is None  # one device


# ---- the interface


def peer(local, remote):
    return {"local": local, "remote": remote, "port": 4000, "connections": 1}


def ran(trial, interface, *, peers=None):
    """The transport of a job of this trial whose gradients crossed `interface`."""
    bytes_sent = {"eth0": 2000, "eth1": 2000, interface: STEPS}
    events = [start(), *sent("n1", bytes_sent, peers=peers), *sent("n2", bytes_sent, rank=1)]
    return transport_module.judge(trial, (), events)


def on_eth1(**changes):
    wires = [wire(number, iface="eth1", address=f"10.77.0.2{number}") for number in (1, 2)]
    return on_nodes(2, wires=wires, **{**DDP, "iface": "eth1", **changes})


def test_traffic_on_another_interface_than_the_requested_one_is_reported():
    assert mismatch(ran(on_eth1(), "eth1"), on_eth1()) is None
    assert mismatch(ran(on_eth1(iface=None), "eth0"), on_eth1(iface=None)) is None  # none was requested
    assert mismatch(ran(on_eth1(), "eth0"), on_eth1()) == f"IFACE=eth1 asked, eth0 used on n1{TAIL}"


def test_a_requested_kind_means_the_interface_chosen_for_it():
    """Two Ethernet networks, one of them for storage."""
    trial = on_eth1(iface=None, interconnect="ethernet")
    transport_used = ran(trial, "eth0").model_copy(update={"used": "ethernet"})
    assert mismatch(transport_used, trial).startswith("INTERCONNECT=ethernet (eth1) asked, eth0 used on n1")


@pytest.mark.parametrize(
    ("peers", "cause"),
    [
        ([peer("10.77.0.11", "10.77.0.22")], "the kernel sends by route"),
        ([peer("10.77.0.21", "10.77.0.12")], "the kernel sends by route"),
        ([peer("10.77.0.11", "10.77.0.12")], "its ranks reached the others at 10.77.0.12, so that the library"),
    ],
)
def test_the_reason_why_bytes_left_by_another_interface(peers, cause):
    """The addresses that ranks used distinguish a kernel's route from a library that ignored the interface."""
    assert cause in mismatch(ran(on_eth1(), "eth0", peers=peers), on_eth1())


def test_a_requested_interface_must_be_proved():
    said = mismatch(transport("auto", "unknown"), on_eth1())
    assert said == f"IFACE=eth1 asked, and no interface of n1 sent as many bytes as the gradients{TAIL}"


def test_verbs_bypass_the_interface():
    """With verbs, IFACE says where the ranks meet; the gradients never touch it."""
    trial = gpu_trial(**VERBS, iface="eth0")
    said = ("NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:1<0>", "Channel 00 : 0 -> 1 [send] via NET/IB/0")
    moved = {"ports": {"mlx5_0:1": STEPS}}
    both = [*sent("n1", {"eth1": 5}, **moved), *sent("n2", {"eth1": 5}, rank=1, **moved)]
    found = transport_module.judge(trial, (), [start(), nccl(*said), *both])
    assert found.used == "infiniband"
    assert mismatch(found, trial) is None


@pytest.mark.parametrize(
    ("asked", "used", "hcas", "said"),
    [
        ("mlx5_0", "infiniband", ("mlx5_0:1",), None),
        ("mlx5_0:1", "roce", ("mlx5_0:1",), None),
        ("mlx5_0", "ethernet", (), "HCA=mlx5_0 asked, ethernet used"),
        ("mlx5_0", "ipoib", (), "HCA=mlx5_0 asked, ipoib used"),
        ("mlx5_0", "infiniband", ("mlx5_0:1", "mlx5_1:1"), "HCA=mlx5_0 asked, mlx5_1:1 used"),
        ("mlx5_1", "infiniband", ("mlx5_10:1",), "HCA=mlx5_1 asked, mlx5_10:1 used"),
        ("mlx5_0:2", "infiniband", ("mlx5_0:1",), "HCA=mlx5_0:2 asked, mlx5_0:1 used"),
        ("mlx5_0", "infiniband", (), "HCA=mlx5_0 asked, an unnamed adapter used"),
    ],
)
def test_a_requested_adapter_is_compared_with_those_that_carried_the_gradients(asked, used, hcas, said):
    trial = gpu_trial(**{**VERBS, "interconnect": "auto"}).model_copy(update={"hca": asked})
    found = mismatch(transport("auto", used, hcas=hcas), trial)
    assert found == (said and said + TAIL)
