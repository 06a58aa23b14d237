"""InfiniBand that was silently TCP, bytes counted twice, and a transport claimed for want of another: what the evidence comes to."""

import examples
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wires import DDP, ITERATIONS, ON_GPU, gpu_trial, nccl, net, on_nodes, sent, start, wire

from runner import interconnect
from runner.emulation.link import Link
from runner.interconnect import InterfaceTraffic, gradient_factor
from runner.machine.hostfs import Nic

TWO = {"world_size": 2, "processes": 2, "global_batch": 64}
CPUS = {**DDP, **TWO}
GPUS = {**CPUS, **ON_GPU}
NVLINK = "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
SHM = "h:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"
SOCKET = "h:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0"
ADAPTERS = "h:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.77.0.11<0>"
IB = "h:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [send] via NET/IB/0/GDRDMA"
# A megabyte of gradients, two nodes: each has to send it once in a step.
MEGABYTE = 1_000_000
STEPS = ITERATIONS * MEGABYTE


def nic(name, kind="ethernet"):
    return Nic(name=name, state="up", speed_mbit=None, mtu=1500, kind=kind)


NICS = {node: [nic("lo", "loopback"), nic("eth0"), nic("eth1"), nic("ib0", "infiniband")] for node in ("n1", "n2")}


# ---- within one node


@pytest.mark.parametrize(
    ("lines", "used"),
    [
        ((NVLINK,), "nvlink"),
        ((SHM,), "shm"),
        ((SOCKET,), "ethernet"),
        (("NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>", SOCKET), "loopback"),
        ((IB,), "infiniband"),
        ((NVLINK, SOCKET), "ethernet"),
        ((NVLINK, SHM), "shm"),
        ((NVLINK, "Channel 00 : 0 -> 1 [send] via NET/AWS Libfabric/0"), "unknown"),
        ((), "unknown"),
    ],
)
def test_the_slowest_channel_names_the_transport(lines, used):
    found = interconnect.used(examples.trial(**GPUS), [examples.gpu(0), examples.gpu(1)], [nccl(*lines)])
    assert found.used == used
    assert found.evidence.nccl_lines == lines


def test_peer_to_peer_without_nvlink_is_pcie():
    gpus = [examples.gpu(0, nvlinks=0), examples.gpu(1, nvlinks=0)]
    assert interconnect.used(examples.trial(**GPUS), gpus, [nccl(NVLINK)]).used == "pcie"


@pytest.mark.parametrize(("moved", "used"), [(2_684_450_816, "nvlink"), (0, "pcie")])
def test_links_that_are_counted_decide_what_peer_to_peer_is(moved, used):
    """On two H200, ten all-reduces of 256 MiB moved 2,684,450,816 bytes each way by NVLink's counters, and 0 through shared memory."""
    events = [
        start(parameters=1_000_000),
        nccl(NVLINK),
        *(
            net(where, {"lo": 0}, nvlink={f"GPU-{i}": {"rx_bytes": at, "tx_bytes": at} for i in (0, 1)})
            for where, at in (("start", 5), ("stop", 5 + moved))
        ),
    ]
    found = interconnect.used(examples.trial(**GPUS), [examples.gpu(0), examples.gpu(1)], events)
    assert found.used == used
    assert [(link.gpu, link.tx_bytes) for link in found.evidence.nvlink] == [("GPU-0", moved), ("GPU-1", moved)]


def test_copies_that_a_store_makes_between_gpus_are_seen_by_the_links_alone():
    trial = examples.trial(strategy="kvstore", kvstore="device", world_size=2, processes=1, **ON_GPU)
    assert interconnect.used(trial, [examples.gpu(0)], [start()]).used == "unknown"
    links = [
        net(where, {}, nvlink={"GPU-0": {"rx_bytes": at, "tx_bytes": 0}})
        for where, at in (("start", 0), ("stop", STEPS))
    ]
    assert interconnect.used(trial, [examples.gpu(0)], [start(), *links]).used == "nvlink"


def test_gradients_of_cpu_workers_cross_the_loopback_and_are_counted():
    found = interconnect.used(examples.trial(**CPUS), (), [net("start", {"lo": 1000}), net("stop", {"lo": 51000})])
    assert found.used == "loopback"
    assert found.evidence.traffic == (InterfaceTraffic(rank=0, interface="lo", rx_bytes=50000, tx_bytes=50000),)


def test_a_loopback_that_carried_less_than_the_gradients_did_not_carry_them():
    """Ranks keep in touch over the loopback while their gradients go through shared memory."""
    short = [start(None, 1000), net("start", {"lo": 0}), net("stop", {"lo": ITERATIONS * 1000 * 2 - 1})]
    assert interconnect.used(examples.trial(**CPUS), (), short).used == "unknown"
    over_mpi = examples.trial(
        **{**CPUS, "strategy": "horovod", "horovod": examples.horovod(controller="mpi", operations="mpi")}
    )
    assert interconnect.used(over_mpi, (), short).used == "shm"
    enough = [*short[:2], net("stop", {"lo": ITERATIONS * 1000 * 2})]
    assert interconnect.used(over_mpi, (), enough).used == "loopback"


def test_one_process_that_drives_several_cpu_devices_needs_no_wire():
    trial = examples.trial(strategy="kvstore", kvstore="device", world_size=2, processes=1)
    assert interconnect.used(trial, (), [net("start", {"lo": 0}), net("stop", {"lo": 10**9})]).used == "process"


def test_without_traffic_nothing_is_claimed():
    idle = [net("start", {"lo": 1000}), net("stop", {"lo": 1000})]
    assert interconnect.used(examples.trial(**CPUS), (), idle).used == "unknown"
    assert interconnect.used(examples.trial(**CPUS), (), []).used == "unknown"


def test_one_device_needs_no_wire():
    assert interconnect.used(examples.trial(), (), []).used == "none"


def test_one_node_has_no_figures_between_nodes():
    """Records from before there were several nodes give the same digits again."""
    found = interconnect.used(examples.trial(**CPUS), (), [start(), *sent(None, {"lo": STEPS})])
    told = found.model_dump(exclude={"requested", "used", "evidence"})
    assert not any(told.values())


# ---- how much a step sends


@pytest.mark.parametrize(
    ("trial", "factor"),
    [
        (examples.trial(), 0),
        (examples.trial(**CPUS), 0),
        (on_nodes(2, **DDP), 2),  # two nodes that send 2 * 1/2 each
        (on_nodes(4, **DDP), 6),  # four that send 2 * 3/4
        (on_nodes(2, ranks=8, **DDP), 3.5),  # two edges of the ring leave a node, each with 2 * 7/8
        (
            on_nodes(2, strategy="kvstore", kvstore="dist_sync"),
            2,
        ),  # half of the weights are on the other node, there and back
        (on_nodes(4, strategy="kvstore", kvstore="dist_sync"), 6),  # four times three quarters, there and back
        (on_nodes(2, ranks=4, strategy="kvstore", kvstore="dist_sync"), 4),
    ],
)
def test_the_factor_of_the_algorithm(trial, factor):
    assert gradient_factor(trial) == factor


@given(nodes=st.integers(2, 64), each=st.integers(1, 16))
def test_no_ring_sends_less_than_any_algorithm_has_to(nodes, each):
    ring = gradient_factor(on_nodes(nodes, ranks=nodes * each, **DDP))
    assert 2 * (nodes - 1) <= ring < 2 * nodes


# ---- between nodes


def test_the_interface_that_moved_the_gradients_carried_them():
    said = [start(), *sent("n1", {"lo": 10**12, "eth0": 5000, "eth1": STEPS}), *sent("n2", {"eth1": STEPS}, rank=1)]
    found = interconnect.used(on_nodes(2, **DDP), (), said, nics=NICS)
    assert (found.used, found.interface, found.interfaces) == ("ethernet", "eth1", {"n1": "eth1", "n2": "eth1"})
    assert (found.gradient_bytes, found.expected_bytes_per_step) == (MEGABYTE, 2 * MEGABYTE)
    assert found.sent_bytes_per_step == {"n1": MEGABYTE, "n2": MEGABYTE}
    assert found.emulated is None


def test_ranks_of_one_node_read_one_counter():
    """Each reads it a little later than the other; what counts is from the first start to the last stop, once."""
    said = [start()]
    for rank, late in ((0, 0), (1, 300), (2, 100), (3, 900)):
        node = "n1" if rank < 2 else "n2"
        said += [
            net("start", {"eth0": 7000 + late}, rank=rank, node=node, namespace=1),
            net("stop", {"eth0": 7000 + late + STEPS}, rank=rank, node=node, namespace=1),
        ]
    found = interconnect.used(on_nodes(2, ranks=4, **DDP), (), said, nics=NICS)
    assert found.sent_bytes_per_step == {"n1": (STEPS + 300) / ITERATIONS, "n2": (STEPS + 800) / ITERATIONS}
    assert [entry.tx_bytes for entry in found.evidence.traffic] == [STEPS] * 4
    assert [entry.node for entry in found.evidence.traffic] == ["n1", "n1", "n2", "n2"]


def test_containers_with_a_network_of_their_own_count_their_own():
    said = [start()]
    for rank, node, namespace in ((0, "n1", 1), (1, "n1", 2), (2, "n2", 1)):
        ends = (("start", 100), ("stop", 100 + STEPS // 2 * (2 if node == "n2" else 1)))
        said += [net(where, {"eth0": at}, rank=rank, node=node, namespace=namespace) for where, at in ends]
    found = interconnect.used(on_nodes(2, ranks=4, **DDP), (), said, nics=NICS)
    assert found.sent_bytes_per_step == {"n1": MEGABYTE, "n2": MEGABYTE}


def test_interfaces_that_sent_too_little_carried_nothing():
    """Half of what has to cross at the least is asked for: a card's own counters may lag."""
    almost = STEPS // 2 - 1
    said = [start(), *sent("n1", {"eth0": almost}), *sent("n2", {"eth0": almost}, rank=1)]
    found = interconnect.used(on_nodes(2, **DDP), (), said, nics=NICS)
    assert (found.used, found.interfaces, found.sent_bytes_per_step) == ("unknown", {}, {})
    said = [start(), *sent("n1", {"eth0": almost + 1}), *sent("n2", {"eth0": almost + 1}, rank=1)]
    assert interconnect.used(on_nodes(2, **DDP), (), said, nics=NICS).used == "ethernet"


def test_a_node_that_tells_nothing_proves_nothing():
    said = [start(), *sent("n1", {"eth0": 10 * STEPS})]
    assert interconnect.used(on_nodes(2, **DDP), (), said, nics=NICS).used == "unknown"


def test_a_bond_counts_what_its_card_counts_and_the_chosen_one_is_named():
    trial = on_nodes(2, wires=[wire(1, iface="bond0"), wire(2, iface="bond0")], **DDP)
    both = {"bond0": STEPS, "eth0": STEPS + 100, "eth1": 0}
    found = interconnect.used(trial, (), [start(), *sent("n1", both), *sent("n2", both, rank=1)])
    assert (found.used, found.interface) == ("ethernet", "bond0")


def test_ip_over_infiniband_is_not_verbs():
    trial = on_nodes(
        2, wires=[wire(n, iface="ib0", kind="infiniband") for n in (1, 2)], interconnect="infiniband", **DDP
    )
    said = [start(), *sent("n1", {"ib0": STEPS}), *sent("n2", {"ib0": STEPS}, rank=1)]
    assert interconnect.used(trial, (), said, nics=NICS).used == "ipoib"
    assert (
        interconnect.used(trial, (), said).used == "ipoib"
    )  # as it was chosen, where the nodes' own words are missing


def test_where_nodes_differ_the_weaker_end_names_the_link():
    trial = on_nodes(2, wires=[wire(1, iface="ib0", kind="infiniband"), wire(2)], **DDP)
    said = [start(), *sent("n1", {"ib0": STEPS}), *sent("n2", {"eth0": STEPS}, rank=1)]
    found = interconnect.used(trial, (), said, nics=NICS)
    assert (found.used, found.interface) == ("ethernet", "ib0, eth0")


def test_an_interface_that_nobody_knows_is_named_and_not_classified():
    said = [start(), *sent("n1", {"eth9": STEPS}), *sent("n2", {"eth9": STEPS}, rank=1)]
    found = interconnect.used(on_nodes(2, **DDP), (), said)
    assert (found.used, found.interface) == ("unknown", "eth9")


HCAS = {"kind": "infiniband", "iface": "eth0", "hcas": ("mlx5_0:1", "mlx5_1:1")}


def verbs_trial(**changes):
    return gpu_trial(wires=[wire(n, **HCAS) for n in (1, 2)], interconnect="infiniband", **changes)


def test_verbs_are_what_nccl_says_and_the_ports_count():
    said = [
        start(),
        nccl(ADAPTERS, IB),
        nccl(ADAPTERS, IB, rank=1),
        *sent("n1", {"eth0": 3000}, ports={"mlx5_0:1": STEPS, "mlx5_1:1": 77}),
        *sent("n2", {"eth0": 3000}, ports={"mlx5_0:1": STEPS, "mlx5_1:1": 77}, rank=1),
    ]
    found = interconnect.used(verbs_trial(), (), said, nics=NICS)
    assert (found.used, found.hcas, found.interfaces) == ("infiniband", ("mlx5_0:1",), {})
    assert found.sent_bytes_per_step == {"n1": MEGABYTE, "n2": MEGABYTE}
    assert [(p.node, p.port, p.link_layer, p.tx_bytes) for p in found.evidence.ports] == [
        ("n1", "mlx5_0:1", "InfiniBand", STEPS),
        ("n1", "mlx5_1:1", "InfiniBand", 77),
        ("n2", "mlx5_0:1", "InfiniBand", STEPS),
        ("n2", "mlx5_1:1", "InfiniBand", 77),
    ]


def test_verbs_over_ethernet_are_roce():
    said = [
        start(),
        nccl(ADAPTERS.replace(":1/IB", ":1/RoCE"), IB),
        *sent("n1", {"eth0": 9}),
        *sent("n2", {"eth0": 9}, rank=1),
    ]
    assert interconnect.used(verbs_trial(), (), said, nics=NICS).used == "roce"


def test_verbs_asked_and_sockets_used_is_what_was_used():
    said = [
        start(),
        nccl("NCCL INFO NET/IB : No device found.", SOCKET, NVLINK),
        *sent("n1", {"eth0": STEPS}, ports={"mlx5_0:1": 0}),
        *sent("n2", {"eth0": STEPS}, ports={"mlx5_0:1": 0}, rank=1),
    ]
    found = interconnect.used(verbs_trial(), (), said, nics=NICS)
    assert (found.used, found.interface, found.hcas) == ("ethernet", "eth0", ())


def test_nodes_that_nccl_took_for_one_have_no_wire_between_them():
    """Two nodes of one machine without host ids of their own: their GPUs talk directly, and the wire stays idle."""
    said = [start(), nccl(NVLINK), *sent("n1", {"eth0": 500}), *sent("n2", {"eth0": 500}, rank=1)]
    assert interconnect.used(gpu_trial(), (), said, nics=NICS).used == "unknown"


def test_mpi_over_verbs_is_seen_by_the_ports():
    mpi = {"strategy": "horovod", "horovod": examples.horovod(controller="mpi", operations="mpi")}
    trial = on_nodes(2, wires=[wire(n, **HCAS) for n in (1, 2)], interconnect="infiniband", **mpi)
    said = [
        start(),
        *sent("n1", {"eth0": 9}, ports={"mlx5_0:1": STEPS}),
        *sent("n2", {"eth0": 9}, ports={"mlx5_0:1": STEPS}, rank=1),
    ]
    assert interconnect.used(trial, (), said, nics=NICS).used == "infiniband"
    over_tcp = [start(), *sent("n1", {"eth0": STEPS}, ports={"mlx5_0:1": 0}), *sent("n2", {"eth0": STEPS}, rank=1)]
    assert interconnect.used(trial, (), over_tcp, nics=NICS).used == "ethernet"


def test_sockets_are_sockets_however_busy_an_adapter_was():
    """Another job's RDMA counts on the same ports."""
    said = [start(), *sent("n1", {"eth0": STEPS}, ports={"mlx5_0:1": 10**12}), *sent("n2", {"eth0": STEPS}, rank=1)]
    assert interconnect.used(on_nodes(2, **DDP), (), said, nics=NICS).used == "ethernet"


@pytest.mark.parametrize(
    ("link", "one_machine", "label"),
    [
        (None, False, "ethernet"),
        (None, True, "ethernet (emulated: nodes of one machine)"),
        (Link(rate_mbit=1000, emulated=True), True, "ethernet (emulated 1gbit)"),
        (Link(rate_mbit=1000, emulated=False), False, "ethernet"),
    ],
)
def test_what_is_no_real_wire_says_so(link, one_machine, label):
    said = [start(), *sent("n1", {"eth0": STEPS}), *sent("n2", {"eth0": STEPS}, rank=1)]
    found = interconnect.used(on_nodes(2, link=link, **DDP), (), said, nics=NICS, one_machine=one_machine)
    assert found.label == label


def test_peers_are_kept_with_their_node():
    peers = [{"local": "10.77.0.11", "remote": "10.77.0.12", "port": 4000, "connections": 2}]
    found = interconnect.used(on_nodes(2, **DDP), (), [start(), *sent("n1", {"eth0": 1}, peers=peers)])
    assert [(p.rank, p.node, p.remote, p.connections) for p in found.evidence.peers] == [(0, "n1", "10.77.0.12", 2)]
