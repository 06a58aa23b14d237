"""A job that starts on a wire that nobody asked for, or on none: what a node has not is refused before anything starts.

Machines of four kinds: one Ethernet, two of them, InfiniBand with and without an address on it, RoCE.
"""

import examples
import pytest

from runner.core.errors import RequestError
from runner.core.node import Hca, Member, Nic
from runner.core.wire import NodeWires
from runner.plan.placement import Wanted, choose_wires

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
    return choose_wires([Member(one, said or NodeWires()) for one in nodes], Wanted(**values))


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
        # RDMA needs no address; the ranks meet over what has one.
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
        # An interface by name is to carry the gradients itself.
        ([INFINIBAND], {"iface": "eth0"}, ("ethernet", "eth0", "10.1.0.3", ())),
        ([INFINIBAND], {"iface": "ib0"}, ("infiniband", "ib0", "10.3.0.3", ("mlx5_0:1",))),
        ([ROCE], {"iface": "eth2"}, ("ethernet", "eth2", "10.5.0.5", ())),
        # What speaks IP needs the address, and no adapter.
        ([INFINIBAND], {"ip_only": True}, ("infiniband", "ib0", "10.3.0.3", ())),
        ([VERBS_ONLY], {"ip_only": True}, ("ethernet", "eth0", "10.1.0.4", ())),
        ([ROCE], {"ip_only": True}, ("ethernet", "eth2", "10.5.0.5", ())),
        # All nodes get one kind: the best that all have.
        ([ETHERNET, INFINIBAND], {}, ("ethernet", "eth0", "10.1.0.1", ())),
    ],
)
def test_what_is_chosen_on_the_first_node(nodes, wanted, expected):
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
        ([ROCE], {"interconnect": "roce", **BY_IP}, "over RoCE adapters is Ethernet; ask for INTERCONNECT=ethernet"),
        ([TWO], {"interconnect": "nvlink"}, "INTERCONNECT=nvlink asked, but no nvlink leads from one node to another"),
        ([TWO], {"interconnect": "shm"}, "ask for INTERCONNECT=auto, ethernet, roce, infiniband, or for one node"),
        ([ETHERNET, TWO], {"iface": "eth1"}, "IFACE=eth1 asked, n1 has no such interface; it has eth0"),
        ([INFINIBAND], {"iface": "ib0", "interconnect": "ethernet"}, "on n3 it is infiniband and no ethernet"),
        ([INFINIBAND], {"iface": "eth0", "interconnect": "infiniband", **BY_IP}, "it is ethernet and no infiniband"),
        ([VERBS_ONLY], {"hca": "mlx5_7"}, "HCA=mlx5_7 asked, n4 has no such adapter that is active"),
        ([VERBS_ONLY], {"hca": "mlx5_1:1"}, "HCA=mlx5_1:1 asked, n4 has no such adapter"),
        ([VERBS_ONLY], {"hca": "mlx5_0", **BY_IP}, "HCA=mlx5_0 asked, but what carries the gradients speaks IP"),
        ([VERBS_ONLY], {"hca": "mlx5_0", "interconnect": "ethernet"}, "but INTERCONNECT=ethernet uses none"),
        ([DOWN], {"iface": "eth0"}, "IFACE=eth0 asked, which is down on n6"),
        ([DOWN], {}, "(it has docker0 (virtual, up), eth0 (ethernet, down))"),
        ([node("n6", nic("eth0"))], {"iface": "eth0"}, "n6: interface eth0 has no address"),
        ([node("n6")], {}, "n6 has no interface for it"),
    ],
)
def test_what_no_node_has_is_refused_in_one_sentence(nodes, wanted, sentence):
    with pytest.raises(RequestError) as refused:
        choose(*nodes, **wanted)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_bridge_of_an_engine_leads_to_no_other_node():
    """In a virtual machine or a container all interfaces are virtual."""
    inside = node("n7", nic("eth0", "10.77.0.11", kind="virtual"))
    assert choose(inside)[0].iface == "eth0"


def test_the_hosts_file_names_interfaces_by_role_and_addresses_by_name():
    said = NodeWires(roles={"ethernet": "eth0"}, addresses={"eth0": "n2.cluster"})
    assert told(choose(TWO, said=said)[0]) == ("ethernet", "eth0", "n2.cluster", ())
    assert choose(TWO, said=said, iface="eth1")[0].iface == "eth1"


def test_an_adapter_that_the_hosts_file_leaves_out_is_not_used():
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
