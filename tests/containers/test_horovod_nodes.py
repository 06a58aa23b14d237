"""Horovod on two nodes, each in its own network namespace: the launcher on the first, ranks on the second by ssh.

Prevents: ranks that learn from different weights, report another node or take another's cores; a rank on another node
whose death is not noticed, or that is not named; an sshd that outlives the job or admits more than its ranks; keys that are left behind.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field, replace

import examples
import pytest
from commands import ROOT, of_run

from runner.cluster.cluster import emulated_nodes
from runner.core.cache import cache_dir
from runner.core.wire import IFACE
from runner.engines.docker import DockerEngine
from runner.images.base import ensure_base
from runner.images.build import ensure
from runner.images.catalog import load_images
from runner.plan.launch import horovod, launch
from runner.plan.launch.job import leased
from runner.run import container_group
from runner.run.execute import Limits, execute

CATALOG = load_images(ROOT)
IMAGES = {image.framework: image for image in CATALOG.all_images if image.extension and image.device == "cpu"}
CORES = tuple(sorted(os.sched_getaffinity(0)))
LONG = 100_000

pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="two nodes need a core each")


@dataclass
class Recorder:
    """Collects the output of a run; calls `at_first_window` once."""

    at_first_window: object = None
    events: list = field(default_factory=list)
    lines: list = field(default_factory=list)

    def log(self, container, text):
        self.lines.append((container, text))

    def event(self, event):
        self.events.append(event)
        if self.at_first_window and event.event == "window":
            at_first_window, self.at_first_window = self.at_first_window, None
            at_first_window()

    def check(self):
        """Do nothing: memory has room."""

    def by_rank(self, name):
        return {event.rank: event for event in self.events if event.event == name}


@pytest.fixture(scope="module")
def make_job(client):
    def make(framework="mxnet", controller="gloo", iterations=6):
        image, (tools,) = IMAGES[framework], [base for base in CATALOG.bases if base.name == "bookworm-tools"]
        ensure(image, client=client, cache=cache_dir(), report=print)
        ensure_base(tools, client=client, root=ROOT, cache=cache_dir(), report=print)
        nodes = emulated_nodes(examples.node(cores=CORES, memory_mib=16384), 2)
        trial = examples.trial(
            framework=framework,
            program=f"imagenet_cnn/train_{framework}.py",
            model="lenet",
            strategy="horovod",
            horovod=examples.horovod(controller=controller, operations=controller),
            world_size=2,
            processes=2,
            batch_per_device=8,
            global_batch=16,
            iterations=iterations,
            warmup=2,
        )
        return examples.job_on_nodes(
            trial,
            nodes,
            wires=[examples.wire(0, iface=IFACE, address=node.name) for node in nodes],
            network="emulated",
            tools=tools.reference,
            image=image.reference,
            mounts=DockerEngine(client, ROOT / "workloads").mounts(None),
            run_id=f"nodes-{os.getpid()}",
        )

    return make


@pytest.fixture
def run(client):
    """Run a job as `bench` does, and check that nothing is left of it."""

    def run(job, recorder, specs=None):
        engine = DockerEngine(client, ROOT / "workloads")
        engines = {seat.node.name: engine for seat in job.seats}
        specs = specs or launch(job)
        outcome = execute(
            engines=engines,
            specs=specs,
            writer=recorder,
            limits=Limits(wall_s=180, silence_s=90),
            watch=lambda _: None,
            keys=container_group.make_keys(job, specs),
        )
        assert client.containers.list(all=True, filters=of_run(job.run_id)) == []
        assert client.networks.list(filters=of_run(job.run_id)) == []
        assert client.volumes.list(filters=of_run(job.run_id)) == []
        return outcome

    return run


def daemon(client, job):
    return client.containers.get(f"dlscale-{job.run_id}-daemon0")


# The tests below end MXNet's jobs; those in `tests/hosts/` run other pairs on hosts.
@pytest.mark.parametrize(("framework", "controller"), [("tensorflow", "gloo"), ("pytorch", "mpi")])
def test_two_nodes_train_one_model(make_job, run, framework, controller):
    job, recorder = make_job(framework, controller), Recorder()
    outcome = run(job, recorder)
    assert outcome.status == "ok", (outcome.reason, recorder.lines[-20:])
    assert {rank: event.node for rank, event in recorder.by_rank("net").items()} == {0: "node1", 1: "node2"}
    assert {rank: event.cpus for rank, event in recorder.by_rank("env").items()} == {
        rank: seat.cores for rank, seat in enumerate(job.seats)
    }
    ends = recorder.by_rank("run_stop")
    assert ends[0].parameter_norm == ends[1].parameter_norm > 0
    assert [ends[rank].samples for rank in (0, 1)] == [48, 48]


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_a_killed_rank_on_the_other_node_is_named(client, make_job, run, controller):
    job = make_job(controller=controller, iterations=LONG)
    outcome = run(job, Recorder(at_first_window=lambda: os.kill(rank_of(daemon(client, job)), signal.SIGKILL)))
    assert outcome.status == "failed"
    assert "rank 1: killed (exit code 137, SIGKILL)" in outcome.reason


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_a_lost_node_is_named(client, make_job, run, controller):
    job = make_job(controller=controller, iterations=LONG)
    outcome = run(job, Recorder(at_first_window=lambda: daemon(client, job).kill()))
    assert outcome.status == "failed"
    assert "node2" in outcome.reason


ATTEMPTS = {
    "its key": "ssh node2 id -un",
    "no key": "ssh -F none {anyway} node2 id -un",
    "another key": "ssh-keygen -q -t ed25519 -N '' -f /tmp/mine && ssh -F none {anyway} -i /tmp/mine node2 id -un",
    "another user": "ssh root@node2 id -un",
    "way on": "ssh -W node2:{port} node2 </dev/null",
    "terminal": "ssh -tt node2 tty",
    "another host": "ssh -o UserKnownHostsFile=/dev/null node2 id -un",
}


def test_ssh_admits_only_ranks(make_job, run):
    job = make_job()
    (login,) = horovod.logins(job)
    anyway = f"-o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -p {login.port}"
    script = f"echo 'keys in:' $(stat --file-system --format=%T {horovod.KEYS})\n" + "".join(
        f"echo '{name}:' $({attempt.format(anyway=anyway, port=login.port)} 2>/tmp/said | head -1) $(tail -1 /tmp/said)\n"
        for name, attempt in ATTEMPTS.items()
    )
    *others, head = launch(job)
    recorder = Recorder()
    specs = (*others, head.model_copy(update={"argv": leased(replace(job, keys=horovod.KEYS), "sh", "-c", script)}))
    assert run(job, recorder, specs).status == "ok", recorder.lines
    answers = dict(text.split(": ", 1) for name, text in recorder.lines if name == head.name)
    assert answers["keys in"] == "tmpfs"
    assert answers["its key"] == "bench"
    assert "Permission denied (publickey)" in answers["no key"]
    assert "Permission denied (publickey)" in answers["another key"]
    assert "Permission denied (publickey)" in answers["another user"]
    assert "forwarding failed" in answers["way on"]
    assert "PTY allocation request failed" in answers["terminal"]
    assert "Host key verification failed" in answers["another host"]


def rank_of(container):
    """Process id, on this machine, of a container's training program."""
    rows = container.top(ps_args="-eo pid,args")["Processes"]
    (pid,) = (int(pid) for pid, argv in rows if argv.startswith("python3 /dlscale/workloads/imagenet_cnn/train_"))
    return pid
