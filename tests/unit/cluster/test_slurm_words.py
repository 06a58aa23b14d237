"""Slurm's command lines and sentences. Prevents: a script whose header ends at the user's first unusual word, GPUs that nodes can't share, a
command that requests nodes again on the nodes that it got; a record with another reason than the one for which the job ended, or with none.
"""

import pytest

from runner.cluster import slurm
from runner.cluster.slurm import Allocation, ending, parse_duration, read_allocation, read_fields
from runner.core.errors import RequestError
from runner.core.request import Request
from runner.engines.process import CommandError
from runner.plan.slurm import salloc, sbatch

TYPED = (
    "/suite/dlscale",
    "bench",
    "--gpus=8",
    "--nodes",
    "2",
    "--cluster",
    "slurm",
    "--slurm-flags=--time=30 --comment='a b'",
)
ASKED = Request(gpus=(1, 8), nodes=2, cluster="slurm", slurm_flags="--time=30 --comment='a b'")
INSIDE = "/suite/dlscale bench --gpus=8 --nodes 2 --hosts=slurm"
JOB = Allocation("5", "slurm", ("n1", "n2"), "22.05.8")


def test_the_jobs_command_is_the_typed_one_without_the_allocation_options():
    assert " ".join(salloc(ASKED, TYPED)) == (
        "salloc --nodes=2 --exclusive --mem=0 --job-name=dlscale --gpus-per-node=4 --kill-command=TERM --time=30 --comment=a b "
        + INSIDE
    )


def test_a_script_has_its_flags_in_its_header_and_executes_the_runner():
    typed = ("/suite/dlscale", "plan", *TYPED[2:], "--format", "sbatch")
    assert sbatch(ASKED, typed).splitlines() == [
        "#!/bin/bash",
        *(f"#SBATCH --{option}" for option in ("nodes=2", "exclusive", "mem=0", "job-name=dlscale", "gpus-per-node=4")),
        *("#SBATCH --signal=B:TERM@60", "#SBATCH --no-requeue", "#SBATCH --time=30", "#SBATCH '--comment=a b'"),
        f"exec {INSIDE}",
    ]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"gpus": (3,), "nodes": 2}, "GPUS=3 can't be shared equally by NODES=2"),
        ({"slurm_flags": "--comment='a"}, "can't be read (No closing quotation)"),
        ({"slurm_flags": "--comment='a\nrm -r x'"}, "SLURM_FLAGS has an end of line in a flag"),
    ],
)
def test_requests_that_slurm_cannot_run_are_refused(asked, sentence):
    with pytest.raises(RequestError) as caught:
        salloc(Request(cluster="slurm", **asked), TYPED)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("state", "fields", "status", "sentence"),
    [
        ("CANCELLED", {}, "interrupted", "job 5 was cancelled, by scancel or an administrator"),
        ("TIMEOUT", {"TimeLimit": "00:30:00"}, "interrupted", "job 5 was ended at its time limit of 00:30:00"),
        ("PREEMPTED", {}, "interrupted", "job 5 was preempted"),
        ("NODE_FAIL", {}, "failed", "n2 was lost, and Slurm ended job 5"),
        ("OUT_OF_MEMORY", {}, "failed", "job 5 exceeded its memory on a node"),
        ("BOOT_FAIL", {"Reason": "BadNode"}, "failed", "Slurm ended job 5: BOOT_FAIL (BadNode)"),
    ],
)
def test_a_jobs_final_state_is_explained(state, fields, status, sentence):
    found = ending("5", state, fields, lost=("n2",))
    assert (found.status, found.sentence.startswith(sentence)) == (status, True)


def answers(monkeypatch, **said):
    """Fake Slurm's programs, by name: one answer per call, of which the last repeats."""
    left = {name: list(texts) for name, texts in said.items()}

    def run(argv, **_):
        texts = left[argv[0]]
        text = texts.pop(0) if len(texts) > 1 else texts[0]
        if isinstance(text, Exception):
            raise text
        return text

    monkeypatch.setattr(slurm, "run", run)
    monkeypatch.setattr(slurm, "_POLL_S", 0.0)


def test_a_completing_job_is_waited_for(monkeypatch):
    """Slurm reports COMPLETING as long as a step remains, and only then the reason."""
    monkeypatch.delenv("SLURM_TASK_PID", raising=False)
    answers(monkeypatch, scontrol=["JobState=COMPLETING Reason=None", "JobState=CANCELLED Reason=None"])
    assert JOB.ended(signalled=False).status == "interrupted"


@pytest.mark.parametrize(
    ("job", "node", "sentence"),
    [
        ("Reason=None PreemptTime=None", "State=ALLOCATED", "job 5 was cancelled"),
        ("Reason=TimeLimit PreemptTime=None", "State=ALLOCATED", "job 5 was ended at its time limit"),
        ("Reason=None PreemptTime=2026-01-01T00:00:00", "State=ALLOCATED", "job 5 was preempted"),
        ("Reason=None PreemptTime=None", "State=DOWN*+COMPLETING", "n1 was lost"),
    ],
)
def test_a_runner_in_the_jobs_own_script_does_not_wait_for_its_own_end(monkeypatch, job, node, sentence):
    """A cancelled sbatch job had no record: Slurm waited for its script, which waited for Slurm, until it was killed."""
    monkeypatch.setenv("SLURM_TASK_PID", "7")
    answers(monkeypatch, scontrol=[f"JobState=COMPLETING {job}", f"NodeName=n1 {node}"])
    assert JOB.ended(signalled=True).sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("left", "told", "near"),
    [("0:41", True, True), ("0:41", False, False), ("2:00:00", True, False), ("UNLIMITED", True, False)],
)
def test_only_a_near_time_limit_explains_why_a_runner_was_told_to_end(monkeypatch, left, told, near):
    answers(monkeypatch, scontrol=["JobState=RUNNING Reason=None"], squeue=[f"{left} 30:00\n"])
    assert bool(JOB.ended(signalled=told)) == near


def test_a_silent_slurm_is_the_reason(monkeypatch):
    error = CommandError(
        ("scontrol",), 1, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    )
    answers(monkeypatch, scontrol=[error])
    assert "Unable to contact slurm controller" in JOB.ended(signalled=False).sentence


def test_outside_a_slurm_job_there_are_no_nodes(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(RequestError, match=r"run it in salloc or sbatch, or use CLUSTER=slurm"):
        read_allocation()


def test_slurms_fields_and_durations_are_parsed():
    assert read_fields("JobId=5 JobName=a b JobState=TIMEOUT Reason=None TRES=cpu=2,mem=4G")["JobState"] == "TIMEOUT"
    assert [parse_duration(text) for text in ("41", "0:41", "1:00:00", "2-0:00:10", "UNLIMITED", "INVALID")] == [
        41,
        41,
        3600,
        172810,
        None,
        None,
    ]
