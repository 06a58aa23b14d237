"""What `kill -9` of the runner leaves behind. Prevents: containers, networks and keys that stay until the next `bench`, or add up kill by kill; a
job that outlives its runner; a record or plan that is half there; a `bench` that takes a live one's things for a dead one's.

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
# In a campaign, with a machine of its own, 15 seconds are the promise; beside other tests an end takes as long as the machine lets it.
GONE_S = 15 if "DLSCALE_KILLS" in os.environ else 90


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


def left(client, pid):
    """Containers, volumes and networks of the runner with this process id, whatever state they are in."""
    owned = {"filters": {"label": LABEL_RUNNER}}
    containers = client.api.containers(all=True, **owned)
    volumes = client.api.volumes(**owned)["Volumes"] or []
    found = [*containers, *volumes, *client.api.networks(**owned)]
    return [one for one in found if int(one["Labels"][LABEL_RUNNER].split(".")[-2]) == pid]


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
        assert wait_until(lambda: not left(client, ended.pid), GONE_S), (seed, number, delay, left(client, ended.pid))
        return ended.pid

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return out, list(pool.map(kill, range(KILLS)))


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


def test_nothing_is_left_in_the_engine_and_the_next_bench_has_nothing_to_remove(campaign, client, dlscale):
    """42 of 61 kills left containers or a network, until the engine had no addresses for another; private keys of a dead run in a volume."""
    out, killed = campaign
    assert [one for pid in killed for one in left(client, pid)] == []
    assert client.volumes.list(filters={"label": LABEL_RUN}) == []
    done = dlscale("bench", "--framework=mxnet", "--device=cpu", "--workers=1", out=out)
    assert done.code == 0, done.stderr
    assert "removed what killed runs had left" not in done.stderr
    assert list(out.rglob(".*")) == []
