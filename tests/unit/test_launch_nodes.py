"""Ranks that wait for each other on the wrong address, a server that nobody started, a node that binds another's interface.

The exact command lines of jobs on several hosts, held against golden files; `DLSCALE_GOLDEN=write make test` writes them again.
"""

import examples
import pytest
from goldens import expected
from test_launch import GOLDEN, _words

from runner.core.strategies import STRATEGIES
from runner.engines import docker_options
from runner.plan.launch import launch

CPU = {"cpus_per_worker": 2, "threads": 2, "probe_bytes": (65536, 1048576)}
GPU = {"device": "gpu", "cpus_per_worker": None, "threads": 4, "batch_per_device": 64, "probe_bytes": (65536,)}


def program(framework):
    return {"framework": framework, "program": f"imagenet_cnn/train_{framework}.py"}


def cpu_nodes(count):
    return [examples.node(name=f"n{number}") for number in range(1, count + 1)]


def gpu_nodes(count):
    return [examples.gpu_node(4, name=f"n{number}") for number in range(1, count + 1)]


def infiniband(count):
    return [examples.wire(number, kind="infiniband", iface="ib0", hcas=("mlx5_0:1",)) for number in range(1, count + 1)]


def two(**changes):
    return examples.trial(world_size=2, processes=2, global_batch=64, **CPU, **changes)


CASES = {
    "pytorch-ddp-2-nodes": examples.job_on_nodes(two(strategy="ddp", **program("pytorch")), cpu_nodes(2)),
    "pytorch-ddp-8-gpus-2-nodes-infiniband": examples.job_on_nodes(
        examples.trial(
            strategy="ddp",
            world_size=8,
            processes=8,
            global_batch=512,
            interconnect="infiniband",
            **program("pytorch"),
            **GPU,
        ),
        gpu_nodes(2),
        wires=infiniband(2),
    ),
    "mxnet-kvstore-2-nodes": examples.job_on_nodes(two(strategy="kvstore", kvstore="dist_sync"), cpu_nodes(2)),
    "mxnet-kvstore-16-gpus-4-nodes": examples.job_on_nodes(
        examples.trial(
            strategy="kvstore", kvstore="dist_sync_device", world_size=16, processes=4, global_batch=1024, **GPU
        ),
        gpu_nodes(4),
        wires=infiniband(4),
    ),
    "tensorflow-multiworker-4-workers-2-nodes": examples.job_on_nodes(
        examples.trial(
            strategy="multiworker",
            world_size=4,
            processes=4,
            global_batch=128,
            cpus_per_worker=1,
            **program("tensorflow"),
        ),
        cpu_nodes(2),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_command_lines_are_those_on_file(name):
    specs = launch(CASES[name])
    lines = "".join(
        f"# {spec.node}\n" + " \\\n  ".join(_words(docker_options.docker_run(spec, "nvidia"))) + "\n\n"
        for spec in specs
    )
    path = GOLDEN / f"{name}.txt"
    assert lines == expected(path, lines)


@pytest.mark.parametrize("name", CASES)
def test_every_node_has_a_container_and_every_rank_is_somebodys(name):
    job, specs = CASES[name], launch(CASES[name])
    assert {spec.node for spec in specs} == {seat.node.name for seat in job.seats}
    assert sum(spec.processes for spec in specs if spec.role == "worker") == job.trial.processes
    assert len({spec.name for spec in specs}) == len(specs)
    assert {spec.network for spec in specs} == {"host"}


@pytest.mark.parametrize("name", CASES)
def test_a_job_on_several_hosts_ends_when_it_hears_nothing_and_knows_where_it_is(name):
    for spec in launch(CASES[name]):
        assert spec.argv[1:3] == ("/dlscale/workloads/lease.py", "--heartbeat=60")
        assert spec.env["DLSCALE_NODE"] == spec.hostname == spec.node


def test_a_store_has_a_server_on_each_node_and_its_scheduler_on_the_first():
    specs = launch(CASES["mxnet-kvstore-16-gpus-4-nodes"])
    where = [(spec.role, spec.node, spec.gpus) for spec in specs]
    assert where == [
        ("scheduler", "n1", ()),
        *[("server", f"n{number}", ()) for number in (1, 2, 3, 4)],
        *[("worker", f"n{number}", (0, 1, 2, 3)) for number in (1, 2, 3, 4)],
    ]
    assert {spec.env["DMLC_PS_ROOT_URI"] for spec in specs} == {"10.0.0.1"}
    assert {spec.env["DMLC_INTERFACE"] for spec in specs} == {"ib0"}


def test_only_workers_that_speak_verbs_reach_the_adapters():
    assert all(spec.verbs for spec in launch(CASES["pytorch-ddp-8-gpus-2-nodes-infiniband"]))
    assert not any(spec.verbs for spec in launch(CASES["pytorch-ddp-2-nodes"]))


def test_every_strategy_that_goes_beyond_a_host_has_a_golden_file_for_it():
    files = {path.name for path in GOLDEN.glob("*-nodes*.txt")}
    for name, strategy in STRATEGIES.items():
        assert any(f"-{name}-" in file for file in files) == strategy.several_nodes, name
