"""Sixteen GPUs asked and eight given, nodes in another order at each run, one node with more ranks than the others."""

import examples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.errors import RequestError
from runner.core.node import Member
from runner.core.request import Request
from runner.core.wire import NodeWires
from runner.images.catalog import load_images
from runner.plan.placement import nodes_for, scales

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
def test_as_few_nodes_as_will_do_each_with_as_many_devices(scale, expected):
    assert nodes(scale, gpu_members(4, 4, 4, 4)) == expected


@pytest.mark.parametrize(
    ("scale", "members", "nodes_asked", "expected"),
    [
        (4, gpu_members(4, 4), 2, 2),  # all nodes that were asked for are used
        (1, gpu_members(4, 4), 2, 1),
        (3, gpu_members(4, 4), 2, None),
        (4, gpu_members(4, 4, slots=2), None, 2),
        (8, gpu_members(4, 4, slots=2), None, None),
        (8, gpu_members(8, 2), None, 1),  # the smallest node bounds the others
        (10, gpu_members(8, 2), None, None),
    ],
)
def test_nodes_asked_for_slots_and_the_smallest_node_bound_what_is_used(scale, members, nodes_asked, expected):
    assert nodes(scale, members, nodes=nodes_asked) == expected


def test_cpu_workers_fill_the_first_node_unless_nodes_are_asked_for():
    assert nodes(4, cpu_members(4, 4), device="cpu") == 1
    assert nodes(4, cpu_members(4, 4), device="cpu", nodes=2) == 2


@given(st.lists(st.integers(1, 8), min_size=1, max_size=5), st.integers(1, 40))
def test_whatever_is_placed_fits(counts, scale):
    found = nodes(scale, gpu_members(*counts))
    if found:
        assert scale % found == 0
        assert all(scale // found <= count for count in counts[:found])


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"gpus": (16,)}, "GPUS=16 asked, h offers 8 (n1: 4, n2: 4); add nodes or ask for 8"),
        ({"gpus": (7,)}, "GPUS=7 asked, and every node has to give as many GPUs as the others (n1: 4, n2: 4); ask for"),
        ({"nodes": 3}, "NODES=3 asked, h offers 2 (n1, n2); add nodes or ask for NODES=2"),
    ],
)
def test_more_than_there_is_and_an_uneven_share_are_refused_with_what_can_be_asked(asked, says):
    with pytest.raises(RequestError) as caught:
        scales(Request(hosts="h", **asked), GPU_IMAGE, gpu_members(4, 4))
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("asked", [None, (1,), (4,)])
def test_a_first_node_without_gpus_is_named(asked):
    """One device is always the first node's, and ran there without a GPU."""
    without = Member(examples.node(name="n0"), NodeWires())
    with pytest.raises(RequestError, match=r", n0 offers none \(no NVIDIA GPU on the PCI bus\); leave it out of h$"):
        scales(Request(gpus=asked, hosts="h"), GPU_IMAGE, [without, *gpu_members(4)])


def test_defaults_are_one_cpu_worker_a_node_and_powers_of_two_of_gpus():
    assert scales(Request(hosts="h"), CPU_IMAGE, cpu_members(8, 8, 8)) == (1, 3)
    assert scales(Request(hosts="h", nodes=2), CPU_IMAGE, cpu_members(8, 8, 8)) == (1, 2)
    assert scales(Request(hosts="h"), GPU_IMAGE, gpu_members(4, 4, 4)) == (1, 2, 4, 8, 12)
