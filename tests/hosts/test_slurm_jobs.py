"""Jobs on a real Slurm of four nodes: by salloc, in Apptainer and without a container, and how Slurm ends them.

Prevents: nodes that each train their own model, a step that waits for another, one core for a job that has all; a record that blames the
program for what Slurm did; a matrix that tries its next trial on lost nodes.
"""

import json

import pytest
from commands import QUICK, replaced
from on_slurm import DLSCALE, GONE_S, check_crossed, ended, left, records, started
from waiting import wait_until

pytestmark = pytest.mark.usefixtures("environments")

JOB = ("bench", "--framework=mxnet", "--workers=2", "--nodes=2", "--cluster=slurm", *QUICK)
LONG = replaced(JOB, "--iterations=200000", "--warmup=2")


def test_a_job_by_salloc_runs_in_apptainer_on_two_nodes_and_resume_repeats_nothing(cluster, sif, tmp_path):
    """MXNet's key-value store has a scheduler, two servers, two workers and two samplers, each a Slurm step."""
    job = (DLSCALE, *JOB, "--engine=apptainer", f"--out={tmp_path}")
    code, said, errors = ended(started(cluster, *job, environment=sif))
    assert code in (0, 4), errors
    record = records(tmp_path)[-1]
    check_crossed(record, "n1", "n2")
    assert (record.engine, record.engine_details.confined) == ("apptainer", True)
    assert record.image.digest.startswith("sha256:")
    assert record.image.id.startswith("sha256:")
    assert "engine apptainer" in said + errors
    assert left(cluster) == []
    code, _, errors = ended(started(cluster, *job, "--resume", environment=sif))
    assert code in (0, 4), errors
    assert len(records(tmp_path)) == 2


def test_diagnose_measures_each_node_of_its_job(cluster, tmp_path):
    words = ("--framework=pytorch", "--cluster=slurm", "--nodes=2", "--workers=1", "--engine=venv", "--json")
    quick = replaced(QUICK, "--repeat=3")
    code, said, errors = ended(started(cluster, DLSCALE, "diagnose", *words, *quick, f"--out={tmp_path}"))
    assert code in (0, 4), errors
    told = json.loads(said)
    assert not told["failed"]
    for figure in ("training", "GEMM", "memory", "disk write", "disk read"):
        assert sorted(one["node"] for one in told["verdicts"] if one["figure"] == figure) == ["n1", "n2"]
    assert [record.provenance.host.hostname for record in records(tmp_path)] == ["n1", "n2"] * 3


def test_a_results_folder_invisible_to_the_nodes_is_refused_before_anything_starts(cluster, tmp_path):
    """Nodes have their own mounts, and do not see what the head node mounts later."""
    cluster.ask("mount", "-t", "tmpfs", "tmpfs", str(tmp_path))
    code, _, errors = ended(started(cluster, DLSCALE, *JOB, "--engine=venv", f"--out={tmp_path}"))
    cluster.ask("umount", str(tmp_path))
    assert code == 2
    assert f"n1: {tmp_path}/.seen-" in errors
    assert (
        "is not there; put the checkout, results (OUT) and cache (DLSCALE_CACHE) where every node sees them"
        in " ".join(errors.split())
    )


def test_a_job_reports_its_time_limit_before_slurm_ends_it(cluster, tmp_path):
    """The job has one minute, of which the last 15 s are notice; at the default of 60 s it would be told to end before its first run."""
    script = tmp_path / "job.sh"
    flags = ("--engine=venv", f"--out={tmp_path}", "--slurm-flags=--time=1")
    script.write_text(cluster.ask(DLSCALE, "plan", *LONG[1:], *flags, "--format=sbatch").replace("TERM@60", "TERM@15"))
    process = started(cluster, "sbatch", "--wait", f"--output={tmp_path}/log", str(script))
    ended(process, seconds=150)
    (record,) = records(tmp_path)
    assert record.outcome.status == "interrupted", (tmp_path / "log").read_text()
    assert "time limit of 1:00; ask for more with --time" in record.outcome.reason
    assert wait_until(lambda: not left(cluster), GONE_S), left(cluster)


def test_an_isolated_node_is_named_and_ends_its_part_and_no_other_trial_starts(cluster, tmp_path):
    """Once, the isolated node ran on for 30 s after the record was written. Must be the last test: the link stays cut."""
    job = replaced(JOB, "--iterations=400", "--workers=2,4")
    process = started(cluster, DLSCALE, *job, "--engine=venv", f"--out={tmp_path}")
    assert wait_until(
        lambda: any("first_step" in one.read_text() for one in tmp_path.glob("*2nodes*/events.jsonl")), 90
    )
    cluster.ask("ip", "link", "set", "n2", "down")
    ended(process, seconds=150)
    assert wait_until(lambda: not left(cluster), GONE_S), left(cluster)
    baseline, record = records(tmp_path)
    assert (baseline.outcome.status, record.outcome.status) == ("ok", "failed")
    assert record.outcome.reason.startswith("n2 was lost: ")
    assert "nothing was heard of it for 12 s" in record.outcome.reason
    assert len(list(tmp_path.glob("*/plan.json"))) == 2
