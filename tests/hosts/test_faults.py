"""Hosts that fail: one sentence names the node, nothing keeps running on the others, earlier records stay intact.

Prevents: a job that hangs until its limit because a cable was pulled, GPUs of healthy nodes held by ranks of a dead job, an
error that names a socket instead of a machine.
"""

import json
import shutil

import pytest
from commands import background_commands, call, only, replaced, running
from waiting import wait_until

from runner.core.wire import Link

TRAINING = (
    *("--framework=pytorch", "--device=cpu", "--model=lenet", "--image-size=32", "--batch=8"),
    *("--workers=2", "--nodes=2"),
    *("--warmup=2", "--repeat=1", "--threads=1", "--inactivity-timeout=30s"),
)
# Over a narrow link, it takes a minute, with a window every few seconds.
LONG = (*TRAINING, "--iterations=240")
NARROW = Link(rate_mbit=100, emulated=True)


@pytest.fixture(scope="module")
def earlier(session_rig, tmp_path_factory):
    """Records of successful runs, which also brought the image to the hosts."""
    out = tmp_path_factory.mktemp("earlier")
    done = call("bench", *TRAINING, f"--hosts={session_rig.hosts(2)}", out=out, only="scaled")
    assert done.code == 0, done.stderr
    return out


@pytest.fixture
def out(earlier, tmp_path):
    """A results folder that already has earlier records."""
    return shutil.copytree(earlier, tmp_path / "results")


@pytest.fixture
def training(rig, out):
    """Start a training on two nodes, and return during its measured windows."""
    with background_commands() as begin:

        def train(*settings, way="ssh"):
            rig.shape(NARROW)
            words = ("bench", *replaced(LONG, *settings), f"--hosts={rig.hosts(2, way=way)}", f"--out={out}")
            process = begin(*words, program=only("scaled"))
            assert wait_until(lambda: is_in_its_windows(out) or process.poll() is not None, 240)
            assert process.poll() is None, process.stderr.read()
            return process

        yield train


def is_in_its_windows(out):
    return any(
        '"event":"window"' in path.read_text()
        for path in out.glob("*2nodes*/events.jsonl")
        if not (path.parent / "record.json").exists()
    )


def reason_of_failure(process, out, *, within=120):
    """Wait until the command exits; return the reason of the failed run."""
    _, stderr = process.communicate(timeout=within)
    assert process.returncode == 3, stderr
    (record,) = (
        found
        for path in out.glob("*2nodes*/record.json")
        if (found := json.loads(path.read_text()))["outcome"]["status"] != "ok"
    )
    assert record["validity"]["status"] == "invalid"
    return record["outcome"]["reason"]


def records(out):
    return {path: path.read_bytes() for path in out.glob("*/record.json")}


@pytest.mark.parametrize("stop", ["stop_engine", "kill_engine"])
def test_an_engine_stopped_in_mid_run(rig, out, training, engine, stop):
    before = records(out)
    process = training()
    getattr(rig, stop)("n2")
    reason = reason_of_failure(process, out)
    assert "n2" in reason, reason
    assert "\n" not in reason
    assert running(engine(rig.nodes[0]), out) == []
    assert {path: records(out)[path] for path in before} == before


@pytest.mark.parametrize("way", ["ssh", "unix"])
def test_a_link_cut_in_mid_run(rig, out, training, engine, way):
    before = records(out)
    process = training(way=way)
    rig.cut_link("n2")
    reason = reason_of_failure(process, out)
    assert reason.startswith("n2"), reason
    assert running(engine(rig.nodes[0]), out) == []
    assert {path: records(out)[path] for path in before} == before
    # The isolated node ends its own part after a heartbeat interval without contact.
    assert wait_until(lambda: running(engine(rig.nodes[1]), out) == [], 30)


def test_refused_ssh(rig, tmp_path):
    rig.stop_ssh("n2")
    with background_commands() as begin:
        process = begin("bench", *TRAINING, f"--hosts={rig.hosts(2)}", f"--out={tmp_path}")
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 2
    (sentence,) = (line for line in stderr.splitlines() if line.startswith("dlscale:"))
    assert sentence.startswith("dlscale: n2: ")
    assert "sshd" in sentence
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "how", [("--strategy=ddp", "ssh"), ("--strategy=horovod", "unix"), ("--framework=mxnet", "unix")]
)
def test_kill_9_of_the_runner_ends_the_job_on_every_node(rig, out, training, engine, how):
    """Including processes besides the ranks (Horovod's ssh servers, a store's scheduler and servers), and the programs copied to the nodes."""
    setting, way = how
    process = training(setting, way=way)
    process.kill()
    for client in map(engine, rig.nodes[:2]):
        assert wait_until(lambda client=client: running(client, out) == [], 15)
        assert wait_until(
            lambda client=client: not [*client.containers.list(all=True, ignore_removed=True), *client.volumes.list()],
            30,
        )
