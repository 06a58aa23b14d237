"""What `kill -9` of the runner leaves behind. Prevents: exited containers, networks and keys that add up kill by kill; a job that outlives
its runner; a record or plan that is half there; a `bench` that takes a live one's things for a dead one's.

`make torture KILLS=200` kills more often than `make test` does, at the same moments and more.
"""

import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from commands import QUICK, ROOT
from waiting import wait_until

from runner.core.container_spec import LABEL_RUN, LABEL_RUNNER
from runner.results.store import PLAN, RECORD, read_plan, read_record

KILLS = int(os.environ.get("DLSCALE_KILLS") or 20)
AT_ONCE = 4
# Horovod over emulated nodes has everything: a baseline before it, a network, keys, daemons, links, and containers in each other's namespace.
RUN = (
    "--framework=mxnet",
    "--device=cpu",
    "--workers=2",
    "--nodes=2",
    "--link-rate=1gbit",
    "--strategy=horovod",
    *QUICK,
)
# A lease ends its job within 5 s and the engine removes it; far more than a busy machine takes.
LEASE_S = 120


@dataclass(frozen=True)
class Ended:
    """A `bench` that has ended or was killed."""

    pid: int
    code: int
    stderr: str


def bench(out, number, delay):
    """Have `bench` kill itself after a number of deeds and a delay in seconds; 0 for never."""
    argv = [sys.executable, ROOT / "tests" / "killing.py", number, delay, "bench", *RUN, f"--out={out}"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(list(map(str, argv)), cwd=ROOT, text=True, **pipes) as process:
        try:
            _, stderr = process.communicate(timeout=900)
        finally:
            process.kill()
    return Ended(process.pid, process.returncode, stderr)


def left(client, pids):
    """Containers, volumes and networks of the runners with these process ids, whatever state they are in."""
    owned = {"filters": {"label": LABEL_RUNNER}}
    containers = client.api.containers(all=True, **owned)
    volumes = client.api.volumes(**owned)["Volumes"] or []
    found = [*containers, *volumes, *client.api.networks(**owned)]
    return [one for one in found if int(one["Labels"][LABEL_RUNNER].split(".")[-2]) in pids]


def moments(seed, deeds):
    """Moments to kill at: before a deed, while the engine is at it, and some time later."""
    draw = random.Random(seed)
    while True:
        yield draw.randint(1, deeds), draw.choice([0.0, draw.uniform(0, 0.02), draw.uniform(0, 2)])


@pytest.fixture(scope="module")
def campaign(client, dlscale, tmp_path_factory):
    """Kill runners, some at a time, into one folder of results: (folder, their process ids)."""
    out = tmp_path_factory.mktemp("kills")
    whole = bench(out, 0, 0)
    assert whole.code == 0, whole.stderr
    deeds = int(whole.stderr.split()[-1])

    def kill(seed):
        for number, delay in moments(seed, deeds):
            ended = bench(out, number, delay)
            # With others beside it, it may have had less to do than there were deeds; then it ended as all do.
            assert ended.code in (0, -signal.SIGKILL), (seed, number, delay, ended)
            if ended.code:
                break
        assert wait_until(lambda: not running(client, ended.pid), LEASE_S), (seed, number, delay)
        return ended.pid

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return out, list(pool.map(kill, range(KILLS)))


def running(client, pid):
    return [one for one in left(client, {pid}) if one.get("State") in ("running", "paused", "restarting")]


def test_nothing_of_a_killed_run_is_half_written(campaign, dlscale):
    """A results folder that `regrade` calls damaged, and files that grow by four MiB a kill."""
    out, killed = campaign
    assert len(killed) == KILLS
    for path in out.glob(f"*/{PLAN}"):
        assert read_plan(path.parent).run_id == path.parent.name
    for path in out.glob(f"*/{RECORD}"):
        assert read_record(path.parent).run_id == path.parent.name
    done = dlscale("regrade", out)
    assert done.code == 0, done.stderr
    assert not list(out.rglob(".reserve"))


def test_keys_are_on_no_disk(campaign, client):
    """Private keys of a dead run in a volume of the engine."""
    assert client.volumes.list(filters={"label": LABEL_RUN}) == []


def test_the_next_bench_removes_the_rest_and_says_so_in_a_line(campaign, client, dlscale):
    """42 of 61 kills left containers or a network, until the engine had no addresses for another."""
    out, killed = campaign
    before = left(client, set(killed))
    done = dlscale("bench", "--framework=mxnet", "--device=cpu", "--workers=1", out=out)
    assert done.code == 0, done.stderr
    assert left(client, set(killed)) == []
    said = [line for line in done.stderr.splitlines() if "removed what killed runs had left" in line]
    assert len(said) == bool(before)
    assert list(out.rglob(".*")) == []
