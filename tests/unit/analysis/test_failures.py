"""Prevents: a failed run that blames the wrong rank, hides its exit code, or shows the launcher's output instead of the rank's own.

The launchers' lines were recorded when a rank of a real run was killed.
"""

import pytest

from runner.analysis.grading.failures import explain
from runner.report.table import escaped

TORCHRUN = """\
[default0]:[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:13719
[default1]:about to read image 17
W1121 07:26:44.484000 1 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 10 closing signal SIGTERM
E1121 07:26:44.576000 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 11) of binary: /opt/python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
=======================================================
train_pytorch.py FAILED
-------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_07:26:44
  host      : 4d5c658773d9
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 10)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 10
-------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_07:26:44
  host      : 4d5c658773d9
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 11)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 11
=======================================================
"""
WORKERS = """\
[0]<stderr>:connecting
[1]<stderr>:ValueError: no such label
tf_workers: worker 1 ended with exit code 1
"""


def test_a_killed_rank_is_named_with_its_signal_and_last_line():
    found = explain(1, TORCHRUN.splitlines())
    assert found.startswith("rank 1: killed (exit code -9, SIGKILL)")
    assert found.endswith("it last said: about to read image 17")
    # The root cause comes last.
    ended = TORCHRUN.replace("-9", "1").splitlines()
    assert explain(1, ended).startswith("rank 1: exit code 1; it last said: about to read")
    assert explain(1, WORKERS.splitlines()) == "rank 1: exit code 1; it last said: ValueError: no such label"


def test_the_killed_rank_is_blamed_not_those_that_failed_because_of_it():
    """Rank 0 fails because rank 1 was killed, and the launcher may notice it first."""
    swapped = TORCHRUN.replace("-15", "1").splitlines()
    first, second = swapped.index("  rank      : 0 (local_rank: 0)"), swapped.index("  rank      : 1 (local_rank: 1)")
    swapped[first : first + 2], swapped[second : second + 2] = swapped[second : second + 2], swapped[first : first + 2]
    assert explain(1, swapped).startswith("rank 1: killed")


HOROVODRUN = """\
[1]<stderr>:TypeError: zero_grad() got an unexpected keyword argument
Process 1 exit with status code 1.
Terminating remaining workers after failure of Process 1.
Process 0 exit with status code 143.
RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing the job to be terminated. \
The first process to do so was:
Process name: 1
Exit code: 1
"""
# The rank on the second node was killed; rank 0, which waited for it, was terminated.
MISSED = """\
[0]<stderr>:mxnet.base.MXNetError: MXNetError: Horovod has been shut down.
Process 1 exit with status code 137.
Terminating remaining workers after failure of Process 1.
[0]<stderr>:Terminated
Process 0 exit with status code 143.
Exit code: 137
"""
LOST_NODE = """\
[1]<stderr>:Connection to 10.0.0.2 closed by remote host.\r[1]<stderr>:
[0]<stderr>:MXNetError: Connection reset by peer
Process 1 exit with status code 255.
Terminating remaining workers after failure of Process 1.
Process 0 exit with status code 143.
"""
LOST = "ssh lost a node in mid-run; see whether it is up and its cable in"
# A terminated ssh exits with 255 as well: rank 0 failed and took rank 1 on the other node with it.
ENDED_BOTH = """\
[0]<stderr>:ValueError: no such label
Process 0 exit with status code 1.
Terminating remaining workers after failure of Process 0.
[1]<stderr>:Killed by signal 15.
Process 1 exit with status code 255.
"""
# The network of the second node failed; mpirun names no rank, and its own guesses fill the log.
MPIRUN = """\
Timeout, server 10.0.0.2 not responding.
--------------------------------------------------------------------------
ORTE was unable to reliably start one or more daemons.
This usually is caused by:

* not finding the required libraries and/or binaries on
  one or more nodes. Please check your PATH and LD_LIBRARY_PATH
  settings, or configure OMPI with --enable-orterun-prefix-by-default
--------------------------------------------------------------------------
"""
NO_LOGIN = """\
ssh not successful for host 10.0.0.2:
WORDS\r

Traceback (most recent call last):
  File "/opt/dlscale/lib/python3.11/site-packages/horovod/runner/plan/launch/__init__.py", line 655, in _run_static
    raise RuntimeError('could not connect to some hosts via ssh')
RuntimeError: could not connect to some hosts via ssh
"""
REFUSALS = (
    "ssh: connect to host 10.0.0.2 port 45678: Connection refused",
    "ssh: Could not resolve hostname n2: Name or service not known",
    "bench@10.0.0.2: Permission denied (publickey).",
    "Host key verification failed.",
)
LOG_IN = "ssh could not log in to a node's container; see whether its own log says why"
TYPE_ERROR = "TypeError: zero_grad() got an unexpected keyword argument"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (HOROVODRUN, f"rank 1: exit code 1; its last event was loss; it last said: {TYPE_ERROR}"),
        (
            HOROVODRUN.replace("status code 1.", "status code 1.\nProcess 3 exit with status code 137.", 1),
            "rank 3: killed (exit code 137, SIGKILL)",
        ),
        (MISSED, "rank 1: killed (exit code 137, SIGKILL), by hand or by the kernel at its memory limit"),
        (LOST_NODE, f"rank 1: {LOST} (Connection to 10.0.0.2 closed by remote host.)"),
        (
            LOST_NODE.replace("Process 1 exit", "Process 0 exit with status code 1.\nProcess 1 exit"),
            f"rank 1: {LOST} (Connection to 10.0.0.2 closed by remote host.)",
        ),
        (ENDED_BOTH, "rank 0: exit code 1; its last event was window; it last said: ValueError: no such label"),
        (MPIRUN, f"{LOST} (Timeout, server 10.0.0.2 not responding.)"),
        *((NO_LOGIN.replace("WORDS", words), f"{LOG_IN} ({words})") for words in REFUSALS),
    ],
)
def test_the_rank_that_failed_first_or_was_cut_off_is_blamed(log, said):
    assert explain(1, log.split("\n"), last_events={0: "window", 1: "loss"}).startswith(said)


def test_the_only_rank_of_a_container_is_named():
    found = explain(137, ["loading"], last_events={1: "window"})
    assert found.startswith("rank 1: killed (exit code 137, SIGKILL)")
    assert found.endswith("; its last event was window; it last said: loading")


def test_a_rank_without_output_is_described_by_its_last_event():
    lines = ["tf_workers: worker 1 ended with exit code -11"]
    found = explain(1, lines, last_events={0: "loss", 1: "warmup_end"})
    assert found.startswith("rank 1: exit code -11 (SIGSEGV); its last event was warmup_end")


def test_without_a_known_rank_the_exit_code_and_last_lines_are_shown():
    assert explain(3, ["one", "", "two ", "three", "four"]) == "exit code 3; it last said: two / three / four"
    assert explain(139, []) == "exit code 139 (SIGSEGV)"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "the device ran out of memory"),
        ("lease: horovodrun: No such file or directory", "the image has no such program"),
        ("ModuleNotFoundError: No module named 'horovod'", "the program could not import a module"),
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "the image has no code for this GPU",
        ),
        ("NCCL WARN Call to connect failed", "NCCL could not move data"),
        (
            "gpu1:88:88 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",
            "NCCL found no interface of the name that it was given",
        ),
        (
            "gpu1:88:97 [0] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
            "the adapter could not pin memory",
        ),
        ("srun: error: n1: task 0: Out Of Memory", "the process ran out of memory"),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=2.0. Some of the step tasks have been OOM Killed.",
            "the process ran out of memory",
        ),
        (
            "srun: error: Unable to create step for job 5: Job/step already completing or completed",
            "a step could not be started there",
        ),
        (
            "srun: error: Task launch for StepId=5.3 failed on node n2: Communication connection failure",
            "a step could not be started there",
        ),
    ],
)
def test_a_known_cause_takes_precedence_over_the_exit_code(line, cause):
    found = explain(1, ["noise", line, "more noise"])
    assert found.startswith(cause)
    assert line[:60] in found


def test_the_cause_is_sought_in_the_lines_of_the_rank_that_failed_first():
    lines = [
        "[0]<stderr>:NCCL WARN peer gone",
        "[1]<stderr>:MemoryError",
        "tf_workers: worker 1 ended with exit code 1",
    ]
    assert explain(1, lines) == "rank 1: the process ran out of memory; try a smaller BATCH (MemoryError)"


def test_escape_codes_are_removed_from_sentences():
    """Escape codes of a container's output reached the terminal, report.md and query results."""
    hostile = "\x1b]0;owned\x07\x1b[31mred\x1b[0m and \x9b2J\x08\x1bcplain"
    said = explain(1, [hostile])
    assert said.endswith("red and 2Jplain")
    assert said.isprintable()
    assert escaped(hostile + "|") == "red and 2Jplain\\|"


def test_a_killed_sampler_is_not_advised_a_smaller_batch():
    """Its end was explained by a memory limit that a smaller BATCH would avoid."""
    assert "BATCH" not in explain(137, [], trains=False)
    assert "BATCH" not in explain(1, ["MemoryError"], trains=False)
    assert "try a smaller BATCH" in explain(137, [])
