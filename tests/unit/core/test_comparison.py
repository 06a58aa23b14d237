"""A comparison that leaves out a wire, or compares one with itself."""

import examples
import pytest

from runner.core.errors import RequestError
from runner.core.node import Hca, Member, Nic
from runner.core.request import Request
from runner.core.wire import Link, NodeWires
from runner.plan.discovery import emulate_for_comparison
from runner.plan.placement import kinds

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


def test_a_machine_without_gpus_emulates_two_nodes_at_usual_rates():
    found = emulated(COMPARE, examples.node())
    assert (found.nodes, found.workers) == (2, (2,))
    assert found.links == (Link(rate_mbit=100, emulated=True), Link(rate_mbit=1000, emulated=True), None)


def test_what_was_said_stays():
    assert emulated(Request(compare=True, workers=(4,)), examples.node()).workers == (4,)
    for request in (Request(), Request(compare=True, hosts="a:4,b:4"), Request(compare=True, nodes=3)):
        assert emulated(request, examples.node()) == request


@pytest.mark.parametrize("asked", [{"gpus": (2,)}, {"device": "gpu"}])
def test_gpus_that_are_not_there_do_not_become_cpu_workers(asked):
    request = Request(compare=True, **asked)
    assert emulated(request, examples.node()) == request


def test_what_emulated_nodes_can_not_run_in_is_refused_and_not_ignored():
    with pytest.raises(RequestError, match=r"^ENGINE=venv emulates no nodes "):
        emulated(Request(compare=True, engine="venv"), examples.node())


def test_one_node_without_gpus_has_nothing_to_compare():
    """It was compared over NVLink, which all of its no GPUs have."""
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


def test_hosts_are_compared_over_every_network_that_all_have():
    both = member(name="n1", nics=(ETH, IB), hcas=(HCA,))
    request = Request(compare=True, hosts="h.yaml")
    assert kinds_of(request, [both, both]) == ("infiniband", "ethernet")
    with pytest.raises(RequestError, match=r"^nothing to compare: h.yaml have ethernet in common, and that is all; "):
        kinds_of(request, [both, member(name="n2", nics=(ETH,))])


def test_a_wire_that_the_library_can_not_use_is_left_out():
    """It was planned, and its refusal ended the whole comparison."""
    roce = HCA.model_copy(update={"name": "mlx5_1", "link_layer": "Ethernet"})
    node = member(name="n1", nics=(ETH, IB), hcas=(HCA, roce))
    request = Request(compare=True, hosts="h.yaml")
    assert kinds_of(request, [node, node]) == ("infiniband", "roce", "ethernet")
    assert kinds_of(request, [node, node], ip_only=True) == ("infiniband", "ethernet")


def test_kinds_that_were_asked_for_are_not_chosen():
    asked = Request(compare=True, hosts="h.yaml", interconnect=("ethernet",))
    assert kinds_of(asked, [member(), member()]) == ("ethernet",)
    assert kinds_of(Request(), [member()]) == ("auto",)
