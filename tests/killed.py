"""Runners that `killing.py` kills at moments drawn from seeds, some at a time: what the tests of all engines share."""

import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from commands import ROOT
from waiting import wait_until

from runner.results.store import PLAN, RECORD, read_plan, read_record

# In a campaign, with a machine of its own, 15 seconds are the promise; beside other tests an end takes as long as the machine lets it.
GONE_S = 15 if "DLSCALE_KILLS" in os.environ else 90
GOLDEN_RATIO = (5**0.5 - 1) / 2


def how_many(usual):
    """How many runners to kill."""
    return int(os.environ.get("DLSCALE_KILLS") or usual)


def bench(words, number, delay, environment=None):
    """Have `bench` kill itself after a number of deeds and a delay in seconds, 0 for never: its process id, exit code and words."""
    argv = [sys.executable, ROOT / "tests" / "killing.py", number, delay, "bench", *words]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(list(map(str, argv)), cwd=ROOT, env=environment, text=True, **pipes) as process:
        try:
            # Podman's monitors of containers hold standard error open for as long as their container lives.
            said = process.stderr.read()
        finally:
            process.kill()
    return process.pid, process.returncode, said


def deeds_of(words, environment=None, *, codes=(0,)):
    """How much a `bench` does that could be left half done, if nobody kills it."""
    _, code, said = bench(words, 0, 0, environment)
    assert code in codes, said
    return int(said.split()[-1])


def moments(seed, deeds):
    """Moments to kill at: before a deed, while the engine is at it, and some time later.

    The first deeds of successive seeds, however many, lie evenly over a run: multiples of the golden ratio do.
    """
    draw, number = random.Random(seed), 1 + int(seed * GOLDEN_RATIO % 1 * deeds)
    while True:
        yield number, draw.choice([0.0, draw.uniform(0, 0.02), draw.uniform(0, 2)])
        number = draw.randint(1, deeds)


def kill(words, deeds, environment=None, *, left, count, at_once, codes=(0,)):
    """Kill so many runners, and wait until nothing is left of any, which `left(process id)` lists: their process ids."""

    def one(seed):
        for number, delay in moments(seed, deeds):
            pid, code, said = bench(words, number, delay, environment)
            # With others beside it, it may have had less to do than there were deeds; then it ended as all do.
            assert code in (*codes, -signal.SIGKILL), (seed, number, delay, said)
            if code < 0:
                break
        assert wait_until(lambda: not left(pid), GONE_S), (seed, number, delay, left(pid))
        return pid

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, range(count)))


def check_whole(out):
    """No plan and no record in a folder is half written."""
    for path in out.glob(f"*/{PLAN}"):
        assert read_plan(path.parent).run_id == path.parent.name
    for path in out.glob(f"*/{RECORD}"):
        assert read_record(path.parent).run_id == path.parent.name
