"""Prevents: a sampler that sees another job's GPUs or none, two samplers on one machine, a sampler with rights."""

import examples
from wires import gpu_trial

from runner.engines.base import Site
from runner.plan.launch.job import samplers_of

HERE = Site(python="/venv/python", workloads="/suite/workloads")
THERE = Site(python="python3", workloads="/dlscale/workloads")


def specs(job, site=HERE, hz=10):
    return samplers_of(job, hz=hz, image="base:1", site=site)


def test_this_machine_has_one_that_is_a_process_of_the_runner_s_python():
    (spec,) = specs(examples.job(examples.trial()))
    assert spec.argv == (
        *("/venv/python", "/suite/workloads/lease.py"),
        *("/venv/python", "/suite/workloads/monitor.py", "--node=here", "--hz=10", "--gpus="),
    )
    assert (spec.role, spec.mounts, spec.gpus, spec.cpus) == ("monitor", (), (), ())


NODES = [examples.gpu_node(4, name="n1"), examples.gpu_node(4, name="n2")]


def test_nodes_that_are_emulated_share_one_and_there_is_none_where_none_is_wanted():
    assert len(specs(examples.job_on_nodes(gpu_trial(nodes=2), NODES, network="emulated"))) == 1
    assert specs(examples.job(examples.trial()), hz=0) == ()


def test_each_other_machine_has_one_that_sees_its_processes_and_nothing_else():
    job = examples.job_on_nodes(gpu_trial(nodes=2), NODES)
    first, second = specs(job, site=THERE)
    assert (first.node, second.node) == ("n1", "n2")
    assert (first.name, second.name) == (f"dlscale-{job.run_id}-monitor0", f"dlscale-{job.run_id}-monitor1")
    assert first.argv == (
        *("python3", "/dlscale/workloads/lease.py", "--heartbeat=60"),
        *("python3", "/dlscale/workloads/monitor.py", "--node=n1", "--hz=10", "--gpus=0"),
    )
    assert first.env["PYTHONPATH"] == "/dlscale/workloads/site"
    assert (first.gpus, first.host_pids, first.network) == ((0,), True, "host")
    assert (first.net_admin, first.verbs, first.user) == (False, False, job.user)
