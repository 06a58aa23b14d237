"""Prevents: two emulated nodes on the same core or GPU, a core or GPU that belongs to none, nodes that together take more memory than
the machine has, and one that can't be reached or offers an adapter that its network namespace has not.
"""

import examples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.cluster.cluster import deal, emulated_nodes
from runner.core.errors import RequestError
from runner.core.node import Hca, Member, Nic
from runner.core.wire import IFACE, NodeWires, Wire
from runner.plan.wire import Wanted, choose_wires


def test_a_machine_is_dealt_out_in_neighbouring_parts():
    nodes = emulated_nodes(examples.node(cores=(0, 1, 2, 4, 5), memory_mib=8192, cpu_quota=5.0), 2)
    assert [(n.name, n.cores, n.memory_mib, n.cpu_quota) for n in nodes] == [
        ("node1", (0, 1, 2), 4096, 2.5),
        ("node2", (4, 5), 4096, 2.5),
    ]
    with pytest.raises(RequestError, match="NODES=3 asked, here has 2 cores"):
        emulated_nodes(examples.node(cores=(0, 1)), 3)


def test_gpus_are_dealt_out_too_and_a_node_without_says_why():
    two = emulated_nodes(examples.gpu_node(4), 2)
    assert [[gpu.index for gpu in n.gpus] for n in two] == [[0, 1], [2, 3]]
    assert {n.gpu_reason for n in two} == {None}
    three = emulated_nodes(examples.gpu_node(2), 3)
    assert [len(n.gpus) for n in three] == [1, 1, 0]
    assert three[2].gpu_reason == "here has 2 for 3 nodes"
    assert emulated_nodes(examples.node(), 2)[0].gpu_reason == "no NVIDIA GPU on the PCI bus"


@given(st.integers(1, 64), st.integers(0, 200))
def test_everything_is_dealt_exactly_once_and_evenly(count, things):
    pieces = deal(tuple(range(things)), count)
    assert len(pieces) == count
    assert [thing for piece in pieces for thing in piece] == list(range(things))
    sizes = [len(piece) for piece in pieces]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_each_is_reached_by_its_name_and_by_no_adapter_of_the_machine():
    real = examples.node(
        nics=(Nic(name="ib0", state="up", speed_mbit=100_000, mtu=2044, kind="infiniband", address="10.2.0.1"),),
        hcas=(Hca(name="mlx5_0", port=1, state="ACTIVE", rate="100 Gb/sec", link_layer="InfiniBand"),),
    )
    nodes = emulated_nodes(real, 2)
    assert choose_wires([Member(n, NodeWires()) for n in nodes], Wanted("auto")) == (
        Wire(kind="ethernet", iface=IFACE, address="node1"),
        Wire(kind="ethernet", iface=IFACE, address="node2"),
    )
    with pytest.raises(RequestError, match="INTERCONNECT=infiniband asked, node1 has no active adapter"):
        choose_wires([Member(n, NodeWires()) for n in nodes], Wanted("infiniband"))
