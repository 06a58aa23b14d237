"""Published studies on several nodes: of HOSTS, and of a Slurm allocation that the suite requests.

Prevents: a source's nodes emulated on one machine although real ones were given; a job with fewer nodes than the study's widest run;
an option lost between the shell that waits for nodes and the job.
"""

from commands import call
from on_slurm import DLSCALE, check_crossed, ended, left, records, started

from runner.experiments.studies.reproduction import read_reproduction

CELL = "machines.2gpus.2nodes.batch16.eth1g"
SMALL = ("reproduce", "tbd-analysis", "--scale=small", "--device=cpu", f"--cells={CELL}")


def the_cell(out):
    (cell,) = read_reproduction(next(out.glob("*.reproduction.json"))).cells
    assert (cell.id, cell.status) == (CELL, "ran"), cell.why
    return cell


def test_a_study_runs_on_hosts(session_rig, tmp_path):
    done = call(*SMALL, f"--hosts={session_rig.hosts(2)}", out=tmp_path)
    assert done.code == 0, done.stderr
    record = done.record(2)
    assert [node.name for node in record.provenance.nodes] == [node.name for node in session_rig.nodes[:2]]
    assert (record.transport.requested, record.transport.used) == ("ethernet", "ethernet")
    assert the_cell(tmp_path).runs == (record.run_id,)


def test_a_study_requests_nodes_from_slurm_and_runs_on_them_without_a_container(cluster, environments, tmp_path):
    words = ("--cluster=slurm", "--engine=venv", f"--out={tmp_path}")
    code, _, errors = ended(started(cluster, DLSCALE, *SMALL, *words))
    assert code == 0, errors
    check_crossed(next(one for one in records(tmp_path) if one.trial.nodes == 2), "n1", "n2")
    assert the_cell(tmp_path).runs
    assert left(cluster) == []
