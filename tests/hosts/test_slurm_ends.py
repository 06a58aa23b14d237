"""Jobs on a real Slurm that are cancelled by scancel, or whose runner is killed, at moments drawn from seeds.

Prevents: processes that continue after either, an unused allocation, a run without a record or with one that blames the program for what
Slurm did, a half-written record. `make torture CLUSTER=slurm KILLS=20` does both more often than `make test`, at the same moments and more.
"""

import os
import random
import time

import pytest
from commands import QUICK, replaced
from on_slurm import DLSCALE, GONE_S, ended, left, records, started
from waiting import wait_until

from runner.results.store import PLAN, read_plan

KILLS = int(os.environ.get("DLSCALE_KILLS") or 3)
# Covers the job's start, its survey, the baseline on one node and the run on two: a run takes some seconds.
LATEST_S = 14
JOB = (
    *("bench", "--framework=mxnet", "--workers=2", "--nodes=2", "--cluster=slurm", "--engine=venv"),
    *replaced(QUICK, "--iterations=400", "--repeat=9"),
)


def start_and_wait(cluster, out, seed, *, by="salloc"):
    """Start the job, by salloc or as a script by sbatch, and wait until some seconds after Slurm has started it; return the command's process."""
    command = (DLSCALE, *JOB, f"--out={out}")
    if by == "sbatch":
        script = out / "job.sh"
        script.write_text(cluster.ask(DLSCALE, "plan", *command[2:], "--format=sbatch"))
        command = ("sbatch", "--wait", f"--output={out}/log", str(script))
    process = started(cluster, *command)
    assert wait_until(lambda: cluster.ask("squeue", "--noheader", "--name=dlscale", "--states=R"), 60)
    time.sleep(random.Random(seed).uniform(0, LATEST_S))
    return process


def check_nothing_is_left(cluster, out):
    """Nothing of the job runs, Slurm has its nodes back, and no plan is half-written."""
    assert wait_until(lambda: not left(cluster), GONE_S), left(cluster)
    assert wait_until(lambda: not cluster.ask("squeue", "--noheader"), GONE_S)
    for path in out.glob(f"*/{PLAN}"):
        assert read_plan(path.parent).run_id == path.parent.name


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize("seed", range(KILLS))
def test_kill_9_of_the_runner_leaves_nothing_on_any_node_and_frees_them(cluster, tmp_path, seed):
    process = start_and_wait(cluster, tmp_path, seed)
    cluster.ask("pkill", "-KILL", "-f", rf"^\S*python\S* .*--out={tmp_path}")
    ended(process, seconds=60)
    check_nothing_is_left(cluster, tmp_path)
    assert str(tmp_path) not in cluster.ask("ps", "-eo", "args")
    assert all(record.outcome.status == "ok" for record in records(tmp_path))


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize("seed", range(KILLS))
def test_scancel_ends_everything_and_the_record_says_so(cluster, tmp_path, seed):
    """By salloc, and for odd seeds by sbatch, whose script itself is cancelled."""
    by = ("salloc", "sbatch")[seed % 2]
    process = start_and_wait(cluster, tmp_path, seed, by=by)
    cluster.ask("scancel", "--name=dlscale")
    code, _, errors = ended(process, seconds=60)
    if by == "sbatch":  # whose exit code does not show that a job was cancelled
        errors = (tmp_path / "log").read_text()
    else:
        assert code in (3, 143), errors
    assert "Traceback" not in errors
    check_nothing_is_left(cluster, tmp_path)
    found = records(tmp_path)
    assert len(found) == len(list(tmp_path.glob(f"*/{PLAN}"))), errors
    stopped = [record for record in found if record.outcome.status != "ok"]
    assert len(stopped) <= 1
    for record in stopped:
        assert record.outcome.status == "interrupted"
        assert " was cancelled, by scancel or an administrator; " in record.outcome.reason
