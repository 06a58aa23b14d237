"""Prevents a job on a wire that was not requested, or on none: a wire that a node lacks is refused before anything starts.

There are machines with one Ethernet, with two, with InfiniBand with and without an address, and with RoCE.

Also prevents: a comparison that leaves out a wire, or compares one with itself; eight GPUs if sixteen were requested, another order of
nodes at each run, one node with more ranks than the others.
"""

import examples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.errors import RequestError
from runner.core.node import Hca, Member, Nic
from runner.core.request import Request
from runner.core.wire import Link, NodeWires
from runner.images.catalog import load_images
from runner.plan.discovery import emulate_for_comparison
from runner.plan.placement import WireRequest, choose_wires, kinds, nodes_for, scales

LO = Nic(name="lo", state="unknown", speed_mbit=None, mtu=65536, kind="loopback", address="127.0.0.1")
DOCKER = Nic(name="docker0", state="up", speed_mbit=None, mtu=1500, kind="virtual", address="172.17.0.1")


def nic(name, address=None, *, kind="ethernet", state="up", speed=None):
    return Nic(name=name, state=state, speed_mbit=speed, mtu=1500, kind=kind, address=address)


def hca(name="mlx5_0", port=1, *, layer="InfiniBand", state="ACTIVE"):
    return Hca(name=name, port=port, state=state, link_layer=layer, rate="100 Gb/sec (4X EDR)")


def node(name="n1", *nics, hcas=()):
    return examples.node(name=name, nics=(LO, DOCKER, *nics), hcas=tuple(hcas))


ETHERNET = node("n1", nic("eth0", "10.1.0.1", speed=1000))
TWO = node("n2", nic("eth0", "10.1.0.2", speed=1000), nic("eth1", "10.2.0.2", speed=25000))
INFINIBAND = node("n3", nic("eth0", "10.1.0.3"), nic("ib0", "10.3.0.3", kind="infiniband"), hcas=[hca()])
VERBS_ONLY = node("n4", nic("eth0", "10.1.0.4"), nic("ib0", kind="infiniband"), hcas=[hca(), hca("mlx5_1", 2)])
ROCE = node(
    "n5", nic("eth0", "10.1.0.5"), nic("eth2", "10.5.0.5", speed=100000), hcas=[hca("mlx5_2", layer="Ethernet")]
)


def choose(*nodes, said=None, **wanted):
    values = {"interconnect": "auto", **wanted}
    return choose_wires([Member(one, said or NodeWires()) for one in nodes], WireRequest(**values))


def told(wire):
    return (wire.kind, wire.iface, wire.address, wire.hcas)


@pytest.mark.parametrize(
    ("nodes", "wanted", "expected"),
    [
        ([ETHERNET], {}, ("ethernet", "eth0", "10.1.0.1", ())),
        ([TWO], {}, ("ethernet", "eth1", "10.2.0.2", ())),  # the faster one
        ([TWO], {"iface": "eth0"}, ("ethernet", "eth0", "10.1.0.2", ())),
        ([INFINIBAND], {}, ("infiniband", "ib0", "10.3.0.3", ("mlx5_0:1",))),
        ([INFINIBAND], {"interconnect": "ethernet"}, ("ethernet", "eth0", "10.1.0.3", ())),
        # RDMA needs no address; the ranks rendezvous over Ethernet.
        ([VERBS_ONLY], {}, ("infiniband", "eth0", "10.1.0.4", ("mlx5_0:1", "mlx5_1:2"))),
        ([VERBS_ONLY], {"hca": "mlx5_1"}, ("infiniband", "eth0", "10.1.0.4", ("mlx5_1:2",))),
        ([VERBS_ONLY], {"hca": "mlx5_1:2"}, ("infiniband", "eth0", "10.1.0.4", ("mlx5_1:2",))),
        (
            [VERBS_ONLY],
            {"interconnect": "infiniband", "iface": "eth0"},
            ("infiniband", "eth0", "10.1.0.4", ("mlx5_0:1", "mlx5_1:2")),
        ),
        ([ROCE], {}, ("roce", "eth2", "10.5.0.5", ("mlx5_2:1",))),
        ([ROCE], {"hca": "mlx5_2"}, ("roce", "eth2", "10.5.0.5", ("mlx5_2:1",))),
        # An interface that is requested by name carries the gradients itself.
        ([INFINIBAND], {"iface": "eth0"}, ("ethernet", "eth0", "10.1.0.3", ())),
        ([INFINIBAND], {"iface": "ib0"}, ("infiniband", "ib0", "10.3.0.3", ("mlx5_0:1",))),
        ([ROCE], {"iface": "eth2"}, ("ethernet", "eth2", "10.5.0.5", ())),
        # IP needs an address and no adapter.
        ([INFINIBAND], {"ip_only": True}, ("infiniband", "ib0", "10.3.0.3", ())),
        ([VERBS_ONLY], {"ip_only": True}, ("ethernet", "eth0", "10.1.0.4", ())),
        ([ROCE], {"ip_only": True}, ("ethernet", "eth2", "10.5.0.5", ())),
        # All nodes get the same kind: the best that all have.
        ([ETHERNET, INFINIBAND], {}, ("ethernet", "eth0", "10.1.0.1", ())),
    ],
)
def test_the_best_wire_that_meets_the_request_is_chosen(nodes, wanted, expected):
    wires = choose(*nodes, **wanted)
    assert told(wires[0]) == expected
    assert len({wire.kind for wire in wires}) == 1


DOWN = node("n6", nic("eth0", "10.1.0.6", state="down"))
BY_IP = {"ip_only": True}


@pytest.mark.parametrize(
    ("nodes", "wanted", "sentence"),
    [
        ([ETHERNET], {"interconnect": "infiniband"}, "n1 has no active adapter for it (adapters: none)"),
        ([ETHERNET], {"interconnect": "infiniband", **BY_IP}, "n1 has no active adapter for it (adapters: none)"),
        ([INFINIBAND], {"interconnect": "roce"}, "(adapters: mlx5_0:1 InfiniBand ACTIVE)"),
        ([INFINIBAND, TWO], {"interconnect": "infiniband"}, "n2 has no active adapter for it"),
        ([node("n6", hcas=[hca(state="DOWN")])], {"interconnect": "infiniband"}, "mlx5_0:1 InfiniBand DOWN"),
        ([VERBS_ONLY], {"interconnect": "infiniband", **BY_IP}, "n4 has no interface for it that is up"),
        ([ROCE], {"interconnect": "roce", **BY_IP}, "is Ethernet on RoCE adapters; ask for INTERCONNECT=ethernet"),
        ([TWO], {"interconnect": "nvlink"}, "INTERCONNECT=nvlink asked, but no nvlink leads from one node to another"),
        ([TWO], {"interconnect": "shm"}, "ask for INTERCONNECT=auto, ethernet, roce, infiniband, or for one node"),
        ([ETHERNET, TWO], {"iface": "eth1"}, "IFACE=eth1 asked, n1 has no such interface; it has eth0"),
        ([INFINIBAND], {"iface": "ib0", "interconnect": "ethernet"}, "on n3 it is infiniband, not ethernet"),
        ([INFINIBAND], {"iface": "eth0", "interconnect": "infiniband", **BY_IP}, "it is ethernet, not infiniband"),
        ([VERBS_ONLY], {"hca": "mlx5_7"}, "HCA=mlx5_7 asked, n4 has no such active adapter"),
        ([VERBS_ONLY], {"hca": "mlx5_1:1"}, "HCA=mlx5_1:1 asked, n4 has no such active adapter"),
        ([VERBS_ONLY], {"hca": "mlx5_0", **BY_IP}, "HCA=mlx5_0 asked, but gradients travel by IP"),
        ([VERBS_ONLY], {"hca": "mlx5_0", "interconnect": "ethernet"}, "but INTERCONNECT=ethernet uses none"),
        ([DOWN], {"iface": "eth0"}, "IFACE=eth0 asked, which is down on n6"),
        ([DOWN], {}, "(it has docker0 (virtual, up), eth0 (ethernet, down))"),
        ([node("n6", nic("eth0"))], {"iface": "eth0"}, "n6: interface eth0 has no address"),
        ([node("n6")], {}, "n6 has no interface for it"),
    ],
)
def test_a_wire_that_a_node_lacks_is_refused_in_one_sentence(nodes, wanted, sentence):
    with pytest.raises(RequestError) as refused:
        choose(*nodes, **wanted)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_engines_bridge_is_not_chosen():
    """In a virtual machine or a container all interfaces are virtual."""
    inside = node("n7", nic("eth0", "10.77.0.11", kind="virtual"))
    assert choose(inside)[0].iface == "eth0"


def test_the_hosts_file_sets_interfaces_by_role_and_addresses_by_interface():
    said = NodeWires(roles={"ethernet": "eth0"}, addresses={"eth0": "n2.cluster"})
    assert told(choose(TWO, said=said)[0]) == ("ethernet", "eth0", "n2.cluster", ())
    assert choose(TWO, said=said, iface="eth1")[0].iface == "eth1"


def test_adapters_that_the_hosts_file_omits_are_not_used():
    said = NodeWires(hcas=("mlx5_1",))
    assert choose(VERBS_ONLY, said=said)[0].hcas == ("mlx5_1:2",)
    assert choose(VERBS_ONLY, said=NodeWires(hcas=("mlx5_0:1",)))[0].hcas == ("mlx5_0:1",)
    assert choose(VERBS_ONLY, said=said, hca="mlx5_0")[0].hcas == ("mlx5_0:1",)


@pytest.mark.parametrize(
    ("name", "says"),
    [("eno1", "the hosts file names eno1 for ethernet, n2 has no such"), ("docker9", "it has docker0")],
)
def test_a_wrong_name_in_the_hosts_file_is_refused(name, says):
    with pytest.raises(RequestError, match=says):
        choose(TWO, said=NodeWires(roles={"ethernet": name}), interconnect="ethernet")


COMPARE = Request(compare=True)
ETH = Nic(name="eth0", state="up", speed_mbit=1000, mtu=1500, kind="ethernet", address="10.0.0.1")
IB = Nic(name="ib0", state="up", speed_mbit=None, mtu=2044, kind="infiniband", address="10.1.0.1")
HCA = Hca(name="mlx5_0", port=1, state="ACTIVE", link_layer="InfiniBand", rate="100 Gb/sec (4X EDR)")


def member(**changes):
    return Member(examples.node(**changes), NodeWires())


def kinds_of(request, members, *, device="cpu", ip_only=False):
    return kinds(request, members, device=device, ip_only=ip_only)


def emulated(request, node):
    return emulate_for_comparison(request, lambda: node)


def test_a_machine_without_gpus_emulates_two_nodes_at_default_rates():
    found = emulated(COMPARE, examples.node())
    assert (found.nodes, found.workers) == (2, (2,))
    assert found.links == (Link(rate_mbit=100, emulated=True), Link(rate_mbit=1000, emulated=True), None)


def test_requested_values_are_kept():
    assert emulated(Request(compare=True, workers=(4,)), examples.node()).workers == (4,)
    for request in (Request(), Request(compare=True, hosts="a:4,b:4"), Request(compare=True, nodes=3)):
        assert emulated(request, examples.node()) == request


@pytest.mark.parametrize("asked", [{"gpus": (2,)}, {"device": "gpu"}])
def test_missing_gpus_do_not_become_cpu_workers(asked):
    request = Request(compare=True, **asked)
    assert emulated(request, examples.node()) == request


def test_an_engine_that_cannot_emulate_nodes_is_refused():
    with pytest.raises(RequestError, match=r"^ENGINE=venv emulates no nodes "):
        emulated(Request(compare=True, engine="venv"), examples.node())


def test_one_node_without_gpus_has_nothing_to_compare():
    """Otherwise it is compared over NVLink, because all of its zero GPUs have it."""
    with pytest.raises(RequestError, match=r"^nothing to compare: here is one node without two GPUs to train on; "):
        kinds_of(Request(compare=True, hosts="h.yaml"), [member()])
    with pytest.raises(RequestError, match=r"^nothing to compare: "):
        kinds_of(Request(compare=True, hosts="h.yaml"), [Member(examples.gpu_node(2), NodeWires())])


def test_gpus_of_one_machine_are_compared_over_their_own_link_shared_memory_and_sockets():
    node = examples.gpu_node(2)
    assert emulated(COMPARE, node) == COMPARE
    assert kinds_of(COMPARE, [Member(node, NodeWires())], device="gpu") == ("nvlink", "shm", "loopback")
    pcie = examples.node(gpus=tuple(examples.gpu(index, nvlinks=0) for index in range(2)))
    assert kinds_of(COMPARE, [Member(pcie, NodeWires())], device="gpu") == ("pcie", "shm", "loopback")
    assert emulated(Request(compare=True, device="cpu"), node).nodes == 2


def test_hosts_are_compared_over_all_common_networks():
    both = member(name="n1", nics=(ETH, IB), hcas=(HCA,))
    request = Request(compare=True, hosts="h.yaml")
    assert kinds_of(request, [both, both]) == ("infiniband", "ethernet")
    with pytest.raises(RequestError, match=r"^nothing to compare: h.yaml have only ethernet in common; "):
        kinds_of(request, [both, member(name="n2", nics=(ETH,))])


def test_a_wire_that_the_library_cannot_use_is_left_out():
    """Otherwise it is planned, and its refusal ends the whole comparison."""
    roce = HCA.model_copy(update={"name": "mlx5_1", "link_layer": "Ethernet"})
    node = member(name="n1", nics=(ETH, IB), hcas=(HCA, roce))
    request = Request(compare=True, hosts="h.yaml")
    assert kinds_of(request, [node, node]) == ("infiniband", "roce", "ethernet")
    assert kinds_of(request, [node, node], ip_only=True) == ("infiniband", "ethernet")


def test_requested_kinds_are_kept():
    asked = Request(compare=True, hosts="h.yaml", interconnect=("ethernet",))
    assert kinds_of(asked, [member(), member()]) == ("ethernet",)
    assert kinds_of(Request(), [member()]) == ("auto",)


CATALOG = load_images(examples.ROOT)
GPU_IMAGE = CATALOG.find("pytorch", None, "gpu")
CPU_IMAGE = CATALOG.find("mxnet", None, "cpu")


def gpu_members(*counts, slots=None):
    return [Member(examples.gpu_node(count, name=f"n{i}"), NodeWires(), slots) for i, count in enumerate(counts, 1)]


def cpu_members(*counts):
    return [Member(examples.node(cores=tuple(range(n)), name=f"n{i}"), NodeWires()) for i, n in enumerate(counts, 1)]


def nodes(scale, members, device="gpu", **request):
    return nodes_for(scale, members, request=Request(**request), device=device)


@pytest.mark.parametrize(
    ("scale", "expected"), [(1, 1), (2, 1), (4, 1), (8, 2), (12, 3), (16, 4), (6, 2), (5, None), (32, None)]
)
def test_as_few_nodes_as_possible_each_with_equal_devices(scale, expected):
    assert nodes(scale, gpu_members(4, 4, 4, 4)) == expected


@pytest.mark.parametrize(
    ("scale", "members", "nodes_asked", "expected"),
    [
        (4, gpu_members(4, 4), 2, 2),  # all requested nodes are used
        (1, gpu_members(4, 4), 2, 1),
        (3, gpu_members(4, 4), 2, None),
        (4, gpu_members(4, 4, slots=2), None, 2),
        (8, gpu_members(4, 4, slots=2), None, None),
        (8, gpu_members(8, 2), None, 1),  # the smallest node limits the others
        (10, gpu_members(8, 2), None, None),
    ],
)
def test_requested_nodes_slots_and_the_smallest_node_limit_the_devices(scale, members, nodes_asked, expected):
    assert nodes(scale, members, nodes=nodes_asked) == expected


def test_cpu_workers_fill_the_first_node_unless_nodes_are_requested():
    assert nodes(4, cpu_members(4, 4), device="cpu") == 1
    assert nodes(4, cpu_members(4, 4), device="cpu", nodes=2) == 2


@given(st.lists(st.integers(1, 8), min_size=1, max_size=5), st.integers(1, 40))
def test_every_placement_fits_its_nodes(counts, scale):
    found = nodes(scale, gpu_members(*counts))
    if found:
        assert scale % found == 0
        assert all(scale // found <= count for count in counts[:found])


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"gpus": (16,)}, "GPUS=16 asked, h offers 8 (n1: 4, n2: 4); add nodes or ask for 8"),
        ({"gpus": (7,)}, "GPUS=7 asked, but all nodes must provide the same number of GPUs (n1: 4, n2: 4); ask for"),
        ({"nodes": 3}, "NODES=3 asked, h offers 2 (n1, n2); add nodes or ask for NODES=2"),
    ],
)
def test_too_many_devices_and_uneven_shares_are_refused_with_alternatives(asked, says):
    with pytest.raises(RequestError) as caught:
        scales(Request(hosts="h", **asked), GPU_IMAGE, gpu_members(4, 4))
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("asked", [None, (1,), (4,)])
def test_a_first_node_without_gpus_is_named(asked):
    """A single device is always on the first node; it would run there without a GPU."""
    without = Member(examples.node(name="n0"), NodeWires())
    with pytest.raises(RequestError, match=r", n0 offers none \(no NVIDIA GPU on the PCI bus\); leave it out of h$"):
        scales(Request(gpus=asked, hosts="h"), GPU_IMAGE, [without, *gpu_members(4)])


def test_defaults_are_one_cpu_worker_per_node_and_powers_of_two_of_gpus():
    assert scales(Request(hosts="h"), CPU_IMAGE, cpu_members(8, 8, 8)) == (1, 3)
    assert scales(Request(hosts="h", nodes=2), CPU_IMAGE, cpu_members(8, 8, 8)) == (1, 2)
    assert scales(Request(hosts="h"), GPU_IMAGE, gpu_members(4, 4, 4)) == (1, 2, 4, 8, 12)
