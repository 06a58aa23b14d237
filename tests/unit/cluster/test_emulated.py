"""Emulated nodes as containers. Prevents: a job that can leave its nodes' network, a link that only seems limited to its rate, a dry run
that prints less than what runs, a job with NET_ADMIN; two nodes on the same core or GPU, a core or GPU that belongs to none, nodes that
together have more memory than the machine, and a node that can't be reached or offers an adapter that its namespace lacks.
"""

import shlex

import examples
import pytest
from goldens import expected
from hypothesis import given
from hypothesis import strategies as st
from unit.plan.test_launch import GOLDEN, _words

from runner.cluster.cluster import deal, emulated_nodes
from runner.core.errors import RequestError
from runner.core.node import Hca, Member, Nic
from runner.core.wire import IFACE, Link, NodeWires, Wire
from runner.engines import docker_options, shaper
from runner.engines.base import EngineError, Line
from runner.plan.launch import launch
from runner.plan.placement import WireRequest, choose_wires

GIGABIT = Link(rate_mbit=1000, emulated=True)
NODES = emulated_nodes(examples.node(cores=(0, 1, 2, 3)), 2)
TOOLS = "dlscale/base:bookworm-tools-0123456789ab"


def job(framework="pytorch", link=GIGABIT, **changes):
    trial = examples.trial(
        framework=framework,
        program=f"imagenet_cnn/train_{framework}.py",
        world_size=2,
        processes=2,
        global_batch=64,
        link=link,
        cpus_per_worker=2,
        threads=2,
        **changes,
    )
    wires = [examples.wire(0, address=node.name) for node in NODES]
    return examples.job_on_nodes(trial, NODES, wires=wires, network="emulated", tools=TOOLS)


JOBS = {
    "pytorch-ddp-2-emulated-nodes": job(strategy="ddp"),
    "mxnet-kvstore-2-emulated-nodes": job("mxnet", strategy="kvstore", kvstore="dist_sync"),
    "tensorflow-multiworker-2-emulated-nodes": job("tensorflow", strategy="multiworker"),
}
DDP = JOBS["pytorch-ddp-2-emulated-nodes"]


@pytest.mark.parametrize("name", JOBS)
def test_command_lines_equal_the_golden_files(name):
    commands = [line for spec in launch(JOBS[name]) for line in docker_options.command_line(spec, None).splitlines()]
    lines = "".join(" \\\n  ".join(_words(shlex.split(line))) + "\n\n" for line in commands)
    assert lines == expected(GOLDEN / f"{name}.txt", lines)


@pytest.mark.parametrize("name", JOBS)
def test_a_job_runs_only_in_its_nodes_namespaces(name):
    specs = launch(JOBS[name])
    assert [(spec.name, spec.role, spec.network) for spec in specs[:2]] == [
        ("dlscale-run-1-node1", "daemon", "dlscale-run-1"),
        ("dlscale-run-1-node2", "daemon", "dlscale-run-1"),
    ]
    for spec in specs[2:]:
        assert spec.network == f"container:dlscale-run-1-{spec.node}"
        # Docker refuses a container that joins another's namespace and has its own host name.
        assert spec.hostname is None
        assert docker_options.create_options(spec, None)["networking_config"] is None
        assert spec.link is None
        assert not spec.net_admin
        assert set(spec.cpus) <= set({"node1": (0, 1), "node2": (2, 3)}[spec.node])


def test_a_node_is_reached_by_its_name_and_has_no_capabilities():
    node = launch(DDP)[0]
    options = docker_options.create_options(node, None)
    assert options["networking_config"] == {"EndpointsConfig": {"dlscale-run-1": {"Aliases": ["node1"]}}}
    assert (options["hostname"], options["host"]["network_mode"]) == ("node1", "dlscale-run-1")
    assert "cap_add" not in options["host"]
    assert [mount["Target"] for mount in options["host"]["mounts"]] == ["/dlscale/workloads"]
    line = docker_options.docker_run(node, None)
    assert line[line.index("--network") + 1] == "dlscale-run-1"
    assert line[line.index("--network-alias") + 1] == "node1"


def test_a_delay_needs_one_more_helper_and_no_link_needs_none():
    delayed = launch(job(strategy="ddp", link=Link(rate_mbit=100, delay_ms=1, emulated=True)))[0]
    assert [(helper.name, helper.argv[:8]) for helper in shaper.shapers(delayed)] == [
        ("dlscale-run-1-node1-link0", ("tc", "qdisc", "replace", "dev", "eth0", "root", "handle", "1:")),
        ("dlscale-run-1-node1-link1", ("tc", "qdisc", "replace", "dev", "eth0", "parent", "1:1", "handle")),
    ]
    assert shaper.shapers(launch(job(strategy="ddp", link=None))[0]) == ()
    assert all(shaper.shapers(spec) == () for spec in launch(DDP)[2:])


class Ended:
    """A container that writes something and exits."""

    def __init__(self, code, *said):
        self.code, self.said, self.removed = code, said, False

    def lines(self):
        return iter([Line(stream="stderr", text=text) for text in self.said])

    def wait(self):
        return self.code

    def remove(self):
        self.removed = True


class Engine:
    """Starts containers that end as `end` decides."""

    name = "docker"

    def __init__(self, end):
        self.end, self.started = end, []

    def start(self, spec):
        self.started.append(spec)
        container = self.end(spec)
        if isinstance(container, Exception):
            raise container
        return container


def refusing(kind):
    """A kernel without a kind of qdisc; the message is tc's own."""

    def end(spec):
        return Ended(2, "Error: Specified qdisc kind is unknown.", "") if kind in spec.argv else Ended(0)

    return end


def test_a_link_that_tc_refuses_is_reported_in_tcs_words():
    ended = []

    def end(spec):
        ended.append(refusing("tbf")(spec))
        return ended[-1]

    with pytest.raises(EngineError, match=r"emulated 1gbit \(Error: Specified qdisc kind is unknown\.\)"):
        shaper.shape(Engine(end), launch(DDP)[0])
    assert [container.removed for container in ended] == [True]


def test_an_unsupported_link_is_refused_before_anything_starts():
    link = Link(rate_mbit=1000, delay_ms=0.2, emulated=True)
    engine = Engine(refusing("netem"))
    with pytest.raises(
        RequestError, match=r"^LINK_DELAY=200us asked, .*\(netem: Error: .*; load its module sch_netem, or"
    ):
        shaper.check(engine, image=TOOLS, links=[GIGABIT, link])
    # In a namespace of its own, which has only a loopback.
    assert {(spec.network, spec.argv[4]) for spec in engine.started} == {("none", "lo")}


def test_an_engine_without_the_tools_image_is_refused():
    with pytest.raises(RequestError, match=r"LINK_RATE=1gbit asked, but docker can't start the tc container \(no such"):
        shaper.check(Engine(lambda _: EngineError("no such image")), image=TOOLS, links=[GIGABIT])


def test_a_supported_link_takes_one_check():
    engine = Engine(lambda _: Ended(0))
    shaper.check(engine, image=TOOLS, links=[GIGABIT])
    assert [spec.argv[5:] for spec in engine.started] == [
        ("root", "handle", "1:", "tbf", "rate", "1gbit", "burst", "125000b", "limit", "25125000b")
    ]


def test_a_machine_is_divided_into_neighbouring_cores():
    nodes = emulated_nodes(examples.node(cores=(0, 1, 2, 4, 5), memory_mib=8192, cpu_quota=5.0), 2)
    assert [(n.name, n.cores, n.memory_mib, n.cpu_quota) for n in nodes] == [
        ("node1", (0, 1, 2), 4096, 2.5),
        ("node2", (4, 5), 4096, 2.5),
    ]
    with pytest.raises(RequestError, match="NODES=3 asked, here has 2 cores"):
        emulated_nodes(examples.node(cores=(0, 1)), 3)


def test_gpus_are_divided_and_a_node_without_one_has_the_reason():
    two = emulated_nodes(examples.gpu_node(4), 2)
    assert [[gpu.index for gpu in n.gpus] for n in two] == [[0, 1], [2, 3]]
    assert {n.gpu_reason for n in two} == {None}
    three = emulated_nodes(examples.gpu_node(2), 3)
    assert [len(n.gpus) for n in three] == [1, 1, 0]
    assert three[2].gpu_reason == "here has 2 for 3 nodes"
    assert emulated_nodes(examples.node(), 2)[0].gpu_reason == "no NVIDIA GPU on the PCI bus"


@given(st.integers(1, 64), st.integers(0, 200))
def test_deal_assigns_everything_exactly_once_and_evenly(count, things):
    pieces = deal(tuple(range(things)), count)
    assert len(pieces) == count
    assert [thing for piece in pieces for thing in piece] == list(range(things))
    sizes = [len(piece) for piece in pieces]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_an_emulated_node_has_its_name_as_address_and_no_adapter():
    real = examples.node(
        nics=(Nic(name="ib0", state="up", speed_mbit=100_000, mtu=2044, kind="infiniband", address="10.2.0.1"),),
        hcas=(Hca(name="mlx5_0", port=1, state="ACTIVE", rate="100 Gb/sec", link_layer="InfiniBand"),),
    )
    nodes = emulated_nodes(real, 2)
    assert choose_wires([Member(n, NodeWires()) for n in nodes], WireRequest("auto")) == (
        Wire(kind="ethernet", iface=IFACE, address="node1"),
        Wire(kind="ethernet", iface=IFACE, address="node2"),
    )
    with pytest.raises(RequestError, match="INTERCONNECT=infiniband asked, node1 has no active adapter"):
        choose_wires([Member(n, NodeWires()) for n in nodes], WireRequest("infiniband"))
