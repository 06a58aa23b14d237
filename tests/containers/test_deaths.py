"""A rank killed in mid-run ends the whole job, and the record names the rank.

Prevents: ranks that wait for a dead one until the time limit, a failed run that blames the launcher or a bystander, containers or
processes that outlive their job.
"""

import json
from pathlib import Path

import psutil
import pytest
from commands import containers_of, only, running
from test_strategies import PAIRS
from waiting import wait_until

LONG = (
    *("--device=cpu", "--model=lenet", "--image-size=32", "--batch=4", "--workers=2", "--repeat=1"),
    *("--warmup=2", "--iterations=100000"),
)
RANKS = ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK")
ENDS_WITHIN_S = 10


def ranks(client, out, pair):
    """Process ids of the training processes in the run on two devices, by rank."""
    found = {}
    for container in containers_of(client, out):
        for pid, _, arguments in (row for row in container.top(ps_args="-eo pid,ppid,args")["Processes"]):
            try:
                environ = Path(f"/proc/{pid}/environ").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # a rank's helper that has exited since, or was never reaped
            environment = dict(word.split("=", 1) for word in environ.split("\0") if "=" in word)
            own = [environment[name] for name in RANKS if name in environment]
            if "TF_CONFIG" in environment:
                own = [json.loads(environment["TF_CONFIG"])["task"]["index"]]
            is_program = "/train_" in arguments and not any(
                word in arguments for word in ("lease.py", "torchrun.py", "horovodrun", "mpirun", "tf_workers.py")
            )
            if is_program and (environment.get("DMLC_ROLE") == "worker" or "DLSCALE_SERVERS" in environment):
                own = [container.name[-1]]  # servers assign ranks on arrival; the container's number is ours
            if pair.processes == 1:
                own = [0]
            if is_program and own:
                found[int(own[0])] = int(pid)
    return found


def is_in_its_windows(out):
    """Whether the run on two devices is in its measured windows."""
    return any('"event":"window"' in path.read_text() for path in out.glob("*-2cpu-r1/events.jsonl"))


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.dies], ids=str)
def test_a_killed_rank_ends_the_run_and_is_named(client, start, tmp_path, pair):
    process = start("bench", *pair.words, *LONG, f"--out={tmp_path}", program=only("scaled"))
    assert wait_until(lambda: is_in_its_windows(tmp_path) or process.poll() is not None, 240)
    assert process.poll() is None, process.communicate()[1]
    of_the_run = {rank: psutil.Process(pid) for rank, pid in ranks(client, tmp_path, pair).items()}
    assert len(of_the_run) == pair.processes
    of_the_run[pair.processes - 1].kill()
    assert wait_until(lambda: not running(client, tmp_path), ENDS_WITHIN_S), "containers were left running"
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 3, stderr
    (path,) = tmp_path.glob("*-2cpu-r1/record.json")
    record = json.loads(path.read_text())
    assert record["outcome"]["status"] == "failed"
    reason = record["outcome"]["reason"]
    killed = killed_rank(path.parent, pair)
    assert f"rank {killed}: killed (exit code " in reason, reason
    assert "SIGKILL" in reason
    assert "its last event was " in reason
    assert not any(worker.is_running() for worker in of_the_run.values())


def killed_rank(directory, pair):
    """The last rank by the launcher's numbering; with servers, workers are numbered on arrival, as their events say."""
    if pair.strategy not in ("kvstore", "ps") or pair.processes == 1:
        return pair.processes - 1
    said = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    return next(event["rank"] for event in said if event["container"].endswith("worker1"))
