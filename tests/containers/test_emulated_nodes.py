"""Nodes emulated on this machine, with real containers and real shaped links.

Prevents: a link that exceeds its rate, or whose traffic bypasses it; a job that can reach the host or beyond; a host's own
interface that is shaped; a container or a network that outlives its run; a strategy that needs more than emulated nodes offer.
"""

import json
import signal
import subprocess
import sys
import textwrap
import uuid
from socket import AddressFamily

import examples
import psutil
import pytest
from commands import ROOT, of_run
from waiting import wait_until

from runner.cluster.cleanup import Place, remove_left
from runner.cluster.cluster import emulated_nodes
from runner.cluster.machine.local_node import inspect_local
from runner.core.cache import cache_dir
from runner.core.errors import RequestError
from runner.core.wire import Link
from runner.engines import shaper
from runner.engines.docker import DockerEngine
from runner.engines.leftovers import InDocker
from runner.images.base import ensure_tools
from runner.plan.launch import launch
from runner.plan.launch.job import node_containers, spec
from runner.run.execute import Limits, execute

RATE = Link(rate_mbit=100, emulated=True)
LIMITS = Limits(wall_s=240, silence_s=120)
SENT = 4 * 2**20

PROBE = """
import json, pathlib, socket, subprocess, sys, threading, time
def qdiscs():
    return json.loads(subprocess.run(["tc", "-s", "-j", "qdisc", "show", "dev", "eth0"], capture_output=True, check=True).stdout)
def can(action):
    try:
        action()
    except OSError as error:
        return str(error)
    return True
me, other, size, host = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
server = socket.create_server(("", 4567))
addresses = {name: socket.gethostbyname(name) for name in (me, other)}
deadline = time.monotonic() + 30
while True:
    try:
        out = socket.create_connection((other, 4567), timeout=2)
        break
    except OSError:
        assert time.monotonic() < deadline
        time.sleep(0.1)
back, (heard_from, _) = server.accept()
before = qdiscs()
out.settimeout(60)
threading.Thread(target=lambda: (out.sendall(bytes(size)), out.shutdown(socket.SHUT_WR))).start()
while back.recv(2**20):
    pass
back.sendall(b"k")
out.recv(1)  # the other has had all of it, so it is in the counters
print(json.dumps({
    "hostname": socket.gethostname(),
    "addresses": addresses,
    "heard_from": heard_from,
    "before": before,
    "after": qdiscs(),
    "interfaces": sorted(name for _, name in socket.if_nameindex() if pathlib.Path(f"/sys/class/net/{name}/address").read_text().strip("0:\\n")),
    "reach_host": can(lambda: socket.create_connection((host, 1), timeout=5).getpeername()),
    "reach_out": can(lambda: socket.create_connection(("192.0.2.1", 80), timeout=5).getpeername()),
    "look_up": can(lambda: socket.gethostbyname("example.org")),
    "shape": subprocess.run(["tc", "qdisc", "delete", "dev", "eth0", "root"], capture_output=True, text=True).stderr.strip(),
}))
"""


class MemoryWriter:
    """A writer that keeps everything in memory, and checks the host's links while the job runs."""

    def __init__(self):
        self.logs, self.events, self.shaped = {}, [], []

    def log(self, container, text):
        self.logs.setdefault(container, []).append(text)
        self.shaped.append(shaped_links_of_the_host())

    def event(self, event):
        self.events.append(event)

    def check(self):
        """Do nothing: memory has room."""


def shaped_links_of_the_host():
    """(interface, kind) of every qdisc in this network namespace that slows a link."""
    said = subprocess.run(["tc", "-j", "qdisc", "show"], capture_output=True, text=True, check=True).stdout
    return sorted((q["dev"], q["kind"]) for q in json.loads(said or "[]") if q["kind"] in ("tbf", "netem", "htb"))


@pytest.fixture(scope="module")
def tools(client):
    return ensure_tools(client, cache=cache_dir(), report=print)


@pytest.fixture(scope="module")
def engine(client):
    return DockerEngine(client, ROOT / "workloads")


@pytest.fixture(scope="module")
def nodes():
    here = inspect_local()
    # A machine with a single core lends it to both nodes.
    return emulated_nodes(here.model_copy(update={"cores": here.cores * 2 if len(here.cores) < 2 else here.cores}), 2)


def job(engine, nodes, tools, *, link=RATE, **changes):
    """Two emulated nodes with one worker each, and a unique run id; in the tools image unless a version is given."""
    image = {} if "version" in changes else {"image": tools}
    trial = examples.trial(
        **{
            "framework": "pytorch",
            "program": "imagenet_cnn/train_pytorch.py",
            "strategy": "ddp",
            "model": "lenet",
            "world_size": 2,
            "processes": 2,
            "batch_per_device": 4,
            "global_batch": 8,
            "iterations": 8,
            "warmup": 2,
            "window": 4,
            "link": link,
            **changes,
        }
    )
    wires = [examples.wire(0, address=node.name) for node in nodes]
    return examples.job_on_nodes(
        trial,
        nodes,
        wires=wires,
        network="emulated",
        tools=tools,
        run_id=f"emulated-{uuid.uuid4().hex[:8]}",
        mounts=engine.mounts(None),
        user=engine.user(),
        **image,
    )


def run(engine, specs, writer=None):
    writer = writer or MemoryWriter()
    outcome = execute(
        engines=dict.fromkeys({s.node for s in specs}, engine),
        specs=specs,
        writer=writer,
        limits=LIMITS,
        watch=lambda _: None,
    )
    return outcome, writer


def left_of(client, run_id):
    """Names of a run's containers, running or not, and of its networks."""
    containers = client.containers.list(all=True, filters=of_run(run_id), ignore_removed=True)
    return [found.name for found in (*containers, *client.networks.list(filters=of_run(run_id)))]


@pytest.fixture(scope="module")
def probed(client, engine, nodes, tools):
    """What a container on each node saw, and the host meanwhile."""
    the_job = job(engine, nodes, tools)
    bridge = client.networks.get("bridge").attrs["Options"]["com.docker.network.bridge.name"]
    host = next(one.address for one in psutil.net_if_addrs()[bridge] if one.family is AddressFamily.AF_INET)
    specs = [
        *node_containers(the_job),
        *(
            spec(
                the_job,
                seat,
                role="worker",
                number=number,
                argv=("python3", "-c", PROBE, seat.node.name, other.node.name, str(SENT), host),
            )
            for number, (seat, other) in enumerate(zip(the_job.seats, reversed(the_job.seats), strict=True))
        ),
    ]
    before = shaped_links_of_the_host()
    outcome, writer = run(engine, specs)
    assert outcome.status == "ok", (outcome, writer.logs)
    said = {s.node: json.loads(writer.logs[s.name][-1]) for s in specs if s.role == "worker"}
    return the_job, said, [before, *writer.shaped, shaped_links_of_the_host()]


def test_nodes_find_each_other_by_name_on_a_private_network(probed):
    _, said, _ = probed
    assert [said[name]["hostname"] for name in ("node1", "node2")] == ["node1", "node2"]
    assert said["node1"]["addresses"] == said["node2"]["addresses"]
    assert said["node1"]["heard_from"] == said["node1"]["addresses"]["node2"]
    assert {tuple(seen["interfaces"]) for seen in said.values()} == {("eth0",)}


def test_a_job_can_not_reach_the_host_or_beyond(probed):
    for seen in probed[1].values():
        assert seen["reach_host"] is not True
        assert seen["reach_out"] is not True
        assert seen["look_up"] is not True


def test_both_ends_are_limited_to_the_rate_and_all_traffic_passes_through_the_limit(probed):
    for seen in probed[1].values():
        (before,), (after,) = seen["before"], seen["after"]
        assert (after["kind"], after["root"]) == ("tbf", True)
        # tc prints bytes per second.
        assert after["options"]["rate"] == 100e6 / 8
        assert after["options"]["burst"] == pytest.approx(73728, rel=1e-3)  # stored as a time, in ticks of 64 ns
        assert after["bytes"] - before["bytes"] >= SENT
        assert after["packets"] > SENT / 1500
        assert after["overlimits"] > 0  # packets had to wait


def test_a_job_can_not_lift_its_links_limit(probed):
    for seen in probed[1].values():
        assert "Operation not permitted" in seen["shape"]


def test_no_link_of_the_host_is_ever_shaped(probed):
    *_, shaped = probed
    assert shaped == [shaped[0]] * len(shaped)


def test_nothing_is_left_of_a_run(client, probed):
    assert left_of(client, probed[0].run_id) == []


def test_links_can_be_unlimited(client, engine, nodes, tools):
    the_job = job(engine, nodes, tools, link=None)
    specs = [*node_containers(the_job), *workers(the_job, "tc -j qdisc show dev eth0")]
    outcome, writer = run(engine, specs)
    assert outcome.status == "ok", (outcome, writer.logs)
    kinds = {json.loads(lines[-1])[0]["kind"] for lines in writer.logs.values()}
    assert not kinds & {"tbf", "netem"}


def workers(the_job, command):
    return [
        spec(the_job, seat, role="worker", number=number, argv=("sh", "-c", command))
        for number, seat in enumerate(the_job.seats)
    ]


def test_a_delay_is_applied_or_refused_before_anything_starts(client, engine, nodes, tools):
    """Few kernels built for virtual machines have netem."""
    link = Link(rate_mbit=100, delay_ms=20, emulated=True)
    the_job = job(engine, nodes, tools, link=link)
    specs = [*node_containers(the_job), *workers(the_job, "tc -j qdisc show dev eth0")]
    try:
        shaper.check(engine, image=tools, links=[link])
    except RequestError as refusal:
        assert "LINK_DELAY=20ms asked" in str(refusal)
        assert "sch_netem" in str(refusal)
        outcome, _ = run(engine, specs)
        assert outcome.status == "failed"
        assert "its link could not be held to emulated 100mbit 20ms (Error: " in outcome.reason
    else:
        outcome, writer = run(engine, specs)
        assert outcome.status == "ok", (outcome, writer.logs)
        found = [json.loads(lines[-1]) for lines in writer.logs.values()]
        assert [[q["kind"] for q in qdiscs] for qdiscs in found] == [["netem", "tbf"]] * 2
    assert left_of(client, the_job.run_id) == []


def test_a_rate_that_this_kernel_supports_is_not_refused(client, engine, tools):
    shaper.check(engine, image=tools, links=[RATE])
    assert left_of(client, "link-check") == []


def test_a_node_whose_link_can_not_be_shaped_is_removed(client, engine, nodes, ensure_image):
    """An image without tc stands in for a kernel without tbf."""
    the_job = job(engine, nodes, ensure_image("dlscale/mxnet:1.9.1"))
    outcome, _ = run(engine, node_containers(the_job))
    assert outcome.status == "failed"
    assert "docker would not start dlscale-" in outcome.reason
    assert "tc" in outcome.reason
    assert left_of(client, the_job.run_id) == []


KILLED = """
import sys
sys.path[:0] = {paths!r}
import test_emulated_nodes as t
from runner.engines.docker import connect
engine = t.DockerEngine(connect(), t.ROOT / "workloads")
nodes = t.emulated_nodes(t.examples.node(cores=(0, 0)), 2)
job = t.job(engine, nodes, {tools!r})
class Telling(t.MemoryWriter):
    def log(self, container, text): print(job.run_id, flush=True)
t.run(engine, [*t.node_containers(job), *t.workers(job, "echo up; sleep 600")], Telling())
"""


@pytest.mark.alone
def test_kill_9_of_the_runner_ends_the_nodes_and_clean_removes_their_network(client, tools):
    """Prevents networks that accumulate until the engine runs out of addresses."""
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "containers")]
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED.format(paths=paths, tools=tools))],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        run_id = process.stdout.readline().strip()
        assert run_id
        assert len(left_of(client, run_id)) == 5  # two nodes, two workers, a network
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert wait_until(lambda: not client.containers.list(filters=of_run(run_id), ignore_removed=True), 20)
    assert f"dlscale-{run_id}" in left_of(client, run_id)
    place = Place(InDocker(client))
    assert run_id not in remove_left([place])
    assert f"dlscale-{run_id}" in {one.name for one in place.removed}
    assert left_of(client, run_id) == []


TRAININGS = {
    "pytorch": {"strategy": "ddp", "version": "2.13.0-cpu"},
    "mxnet": {"strategy": "kvstore", "kvstore": "dist_sync", "version": "1.9.1"},
    "tensorflow": {"strategy": "multiworker", "version": "2.21.0-cpu"},
}


@pytest.fixture(params=TRAININGS)
def framework(request, ensure_image):
    ensure_image(f"dlscale/{request.param}:{TRAININGS[request.param]['version']}")
    return request.param


def test_two_nodes_train_one_model_over_their_shaped_link(client, engine, nodes, tools, framework):
    how = TRAININGS[framework]
    the_job = job(
        engine,
        nodes,
        tools,
        framework=framework,
        program=f"imagenet_cnn/train_{framework}.py",
        **how,
    )
    outcome, writer = run(engine, launch(the_job))
    assert outcome.status == "ok", (outcome, writer.logs)
    start = next(e for e in writer.events if e.event == "run_start")
    nets = {(e.node, e.where): e.interfaces["eth0"] for e in writer.events if e.event == "net"}
    for node in nodes:
        sent = nets[node.name, "stop"].tx_bytes - nets[node.name, "start"].tx_bytes
        # Each of two nodes sends one gradient's bytes per step: half of its sums and half of the averages, or the half that the other node's
        # server keeps and the half that its own server sends back.
        assert sent == pytest.approx(start.parameters * 4 * the_job.trial.iterations, rel=0.15)
    assert left_of(client, the_job.run_id) == []
