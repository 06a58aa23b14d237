"""Runners that `killing.py` kills at moments drawn from seeds, several concurrently; shared by the tests of all engines."""

import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from commands import ROOT
from waiting import wait_until

from runner.results.store import PLAN, RECORD, read_plan, read_record

# In a campaign on a dedicated machine, 15 seconds are the promise; next to other tests, an end takes as long as the machine needs.
GONE_S = 15 if "DLSCALE_KILLS" in os.environ else 90
GOLDEN_RATIO = (5**0.5 - 1) / 2


def how_many(usual):
    """How many runners to kill, KILLS or else the usual number; at least one."""
    return max(1, int(os.environ.get("DLSCALE_KILLS") or usual))


def bench(words, number, delay, environment=None):
    """Run a `bench` that kills itself after `number` actions plus `delay` seconds, 0 for never: its process id, exit code and standard error."""
    argv = [sys.executable, ROOT / "tests" / "killing.py", number, delay, "bench", *words]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(list(map(str, argv)), cwd=ROOT, env=environment, text=True, **pipes) as process:
        try:
            # Podman's container monitors keep standard error open as long as their container lives.
            said = process.stderr.read()
        finally:
            process.kill()
    return process.pid, process.returncode, said


def deeds_of(words, environment=None, *, codes=(0,)):
    """Count the actions of an undisturbed `bench` that a kill could leave half done."""
    _, code, said = bench(words, 0, 0, environment)
    assert code in codes, said
    return int(said.split()[-1])


def moments(seed, deeds):
    """Moments to kill at: before an action, during the engine's part of it, and some time later.

    The first actions of successive seeds, being multiples of the golden ratio, are spread evenly over a run for any number of seeds.
    """
    draw, number = random.Random(seed), 1 + int(seed * GOLDEN_RATIO % 1 * deeds)
    while True:
        yield number, draw.choice([0.0, draw.uniform(0, 0.02), draw.uniform(0, 2)])
        number = draw.randint(1, deeds)


def kill(words, deeds, environment=None, *, left, count, at_once, codes=(0,)):
    """Kill `count` runners, and wait until nothing in `left(process id)` remains of any. Returns their process ids."""

    def one(seed):
        for number, delay in moments(seed, deeds):
            pid, code, said = bench(words, number, delay, environment)
            # Next to others, it may have had fewer actions than counted; then it ended normally.
            assert code in (*codes, -signal.SIGKILL), (seed, number, delay, said)
            if code < 0:
                break
        assert wait_until(lambda: not left(pid), GONE_S), (seed, number, delay, left(pid))
        return pid

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, range(count)))


def check_whole(out):
    """Check that no plan and no record in a folder is half-written."""
    for path in out.glob(f"*/{PLAN}"):
        assert read_plan(path.parent).run_id == path.parent.name
    for path in out.glob(f"*/{RECORD}"):
        assert read_record(path.parent).run_id == path.parent.name
