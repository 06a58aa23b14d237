"""Prevents a launcher that starts something else than it says: compares the exact command lines with golden files.

On several hosts, prevents: ranks that wait for each other on the wrong address, a server that is not started, a node that binds another
node's interface. After a wanted change, `DLSCALE_GOLDEN=write make test` writes the files again; read the difference before committing it.

Of samplers, prevents: one that sees another job's GPUs or none, two on one machine, one with rights.
"""

import examples
import pytest
from goldens import expected
from wires import gpu_trial

from runner.core.container_spec import Mount
from runner.core.strategies import DEFAULT_STRATEGY, STRATEGIES, Strategy
from runner.engines import docker_options
from runner.engines.base import Site
from runner.plan.launch import launch
from runner.plan.launch.job import samplers_of

GOLDEN = examples.ROOT / "tests" / "golden" / "launch"
NSIGHT = "/opt/nvidia/nsight-compute/2025.3.0"
KEPT = Mount(source="/cache/dlscale/compiled/0123456789abcdef", target="/dlscale/out", read_only=False)
ON_GPUS = {"device": "gpu", "cpus_per_worker": None, "threads": 4, "batch_per_device": 64}
CPU = {"cpus_per_worker": 2, "threads": 2, "probe_bytes": (65536, 1048576)}
GPU = {**ON_GPUS, "probe_bytes": (65536,)}


def program(framework):
    return {"framework": framework, "program": f"imagenet_cnn/train_{framework}.py"}


def ranks(count, **changes):
    """A trial with one process per device."""
    batch = changes.get("batch_per_device", 32)
    return examples.trial(**({"world_size": count, "processes": count, "global_batch": batch * count} | changes))


def on_gpus(trial, **changes):
    return examples.job(trial, node=examples.gpu_node(), **changes)


def profile(kind, **changes):
    return {"kind": kind, "after": None, "iterations": 5, "region": None, **changes}


TORCH, TENSORFLOW = program("pytorch"), program("tensorflow")
LANGUAGE = {
    **TORCH,
    "workload": "language_model",
    "program": "language_model/train_pytorch.py",
    "model": "llama-1b",
    "image_shape": None,
    "num_classes": None,
    "momentum": None,
    "settings": {"sequence-length": 2048, "reshard": "forward", "tensor-parallel": 4},
}
DIST, OF_VERSION = {"strategy": "kvstore", "kvstore": "dist_sync"}, {"version": "1.9.1-cu112"}
HOROVOD = {
    "pytorch": {"controller": "gloo"},
    "mxnet": {"controller": "mpi", "operations": "mpi", "compression": "fp16"},
    "tensorflow": {"controller": "mpi", "operations": "mpi", "fusion_threshold_mib": 32, "cycle_time_ms": 3},
}
# Each job with the engine's kind of GPU request.
CASES = {
    "mxnet-single-cpu": (examples.job(examples.trial()), None),
    "mxnet-kvstore-2-cpu-workers": (examples.job(ranks(2, **DIST)), None),
    "mxnet-kvstore-4-gpus": (
        on_gpus(ranks(4, strategy="kvstore", kvstore="device", processes=1, **OF_VERSION, **ON_GPUS)),
        "nvidia",
    ),
    "pytorch-ddp-2-cpu-workers-real-data": (
        examples.job(ranks(2, strategy="ddp", data="/data/set", **TORCH), site=examples.data_site()),
        None,
    ),
    "pytorch-single-gpu-tuned": (
        on_gpus(
            examples.trial(
                version="2.15.0",
                techniques=("channels-last", "fused-optimizer", "compile", "cuda-graphs"),
                **TORCH,
                **ON_GPUS,
            ),
            mounts=(*examples.job(examples.trial()).mounts, KEPT),
            compiled=KEPT.target,
        ),
        "cdi",
    ),
    "pytorch-single-gpu-decodes-there": (
        on_gpus(
            examples.trial(version="2.15.0", data="/data/set", decode="gpu", loader_workers=8, **TORCH, **ON_GPUS),
            site=examples.data_site(),
        ),
        "cdi",
    ),
    "pytorch-tp-4-gpus": (on_gpus(ranks(4, strategy="tp", precision="bf16", **LANGUAGE, **ON_GPUS)), "cdi"),
    "mxnet-kvstore-dist-sync-device-2-gpus": (
        on_gpus(ranks(2, strategy="kvstore", kvstore="dist_sync_device", **OF_VERSION, **ON_GPUS)),
        "nvidia",
    ),
    "mxnet-kvstore-device-2-cpu-workers": (
        examples.job(ranks(2, strategy="kvstore", kvstore="device", processes=1)),
        None,
    ),
    **{
        f"{framework}-horovod-{how['controller']}-2-cpu-workers": (
            examples.job(
                ranks(2, strategy="horovod", horovod=examples.horovod(**how), **program(framework)),
                image=f"dlscale/{framework}-horovod",
            ),
            None,
        )
        for framework, how in HOROVOD.items()
    },
    "pytorch-horovod-4-gpus": (
        on_gpus(ranks(4, strategy="horovod", horovod=examples.horovod(operations="nccl"), **TORCH, **ON_GPUS)),
        "nvidia",
    ),
    "tensorflow-mirrored-2-cpu-workers-xla": (
        examples.job(ranks(2, strategy="mirrored", processes=1, xla=True, **TENSORFLOW)),
        None,
    ),
    "tensorflow-single-gpu-takes-all-memory": (
        on_gpus(ranks(1, strategy="single", gpu_memory="all", **TENSORFLOW, **ON_GPUS)),
        None,
    ),
    "tensorflow-ps-2-cpu-workers": (examples.job(ranks(2, strategy="ps", **TENSORFLOW)), None),
    "tensorflow-multiworker-2-cpu-workers": (examples.job(ranks(2, strategy="multiworker", **TENSORFLOW)), None),
    "caffe-4-gpus": (
        on_gpus(ranks(4, strategy="caffe", processes=1, version="0.17.3-nvidia", **program("caffe"), **ON_GPUS)),
        "nvidia",
    ),
    "pytorch-dp-4-gpus": (on_gpus(ranks(4, strategy="dp", processes=1, **TORCH, **ON_GPUS)), "nvidia"),
    "pytorch-profile-of-kernels-2-cpu-workers": (
        examples.job(ranks(2, strategy="ddp", profile=profile("kernels", after=300, region="backward"), **TORCH)),
        None,
    ),
    "pytorch-profile-of-metrics-under-ncu": (
        on_gpus(
            examples.trial(
                global_batch=64,
                profile=profile("metrics", counting={"source": "ncu", "program": f"{NSIGHT}/ncu", "folder": NSIGHT}),
                **TORCH,
                **ON_GPUS,
            )
        ),
        "nvidia",
    ),
    "pytorch-ddp-4-gpus-shm-cdi": (
        on_gpus(ranks(4, strategy="ddp", precision="bf16", interconnect="shm", **TORCH, **ON_GPUS)),
        "cdi",
    ),
}


def uncovered(strategies, jobs):
    """Trials of two ranks, by `{framework}-{strategy}`, for strategies without a job."""
    covered = {job.trial.strategy for job in jobs}
    return {
        f"{framework}-{name}": {
            **(LANGUAGE if strategy.cuts else program(framework)),
            "strategy": name,
            "processes": 1 if strategy.one_process else 2,
        }
        for name, strategy in strategies.items()
        for framework in strategy.frameworks
        if name not in covered and "cpu" in strategy.devices
    }


CASES |= {
    f"{name}-2-cpu-workers": (examples.job(ranks(2, **changes)), None)
    for name, changes in uncovered(STRATEGIES, [job for job, _ in CASES.values()]).items()
}
FLAGS_ALONE = ("--interactive", "--read-only", "--gloo", "--mpi", "--xla")


def _words(argv):
    """Put each option and its value on its own line, so that a difference is easy to read."""
    lines = []
    for word in argv:
        last = lines[-1] if lines else ""
        waits = last.startswith("--") and "=" not in last and " " not in last and last not in FLAGS_ALONE
        if waits and not word.startswith("--"):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def on_file(name, job, gpu_request, *, named=False):
    """The golden file of a job, and its current command lines; if `named`, each follows a line with its node."""
    lines = "".join(
        (f"# {spec.node}\n" if named else "")
        + " \\\n  ".join(_words(docker_options.docker_run(spec, gpu_request)))
        + "\n\n"
        for spec in launch(job)
    )
    return expected(GOLDEN / f"{name}.txt", lines), lines


@pytest.mark.parametrize("name", CASES)
def test_command_lines_equal_the_golden_files(name):
    held, lines = on_file(name, *CASES[name])
    assert lines == held


def test_a_strategy_without_a_case_gets_one():
    declared = {"pairs": Strategy(("pytorch",), "torchrun"), "ddp": STRATEGIES["ddp"], "dp": STRATEGIES["dp"]}
    declared["parts"] = Strategy(("pytorch",), "torchrun", cuts=True)
    found = uncovered(declared, [CASES["pytorch-ddp-4-gpus-shm-cdi"][0]])
    assert {(name, one["strategy"], one["processes"], one.get("workload")) for name, one in found.items()} == {
        ("pytorch-pairs", "pairs", 2, None),
        ("pytorch-parts", "parts", 2, "language_model"),
    }


def test_containers_have_no_outside_network_and_all_carry_their_runs_label():
    for job, _ in CASES.values():
        specs = launch(job)
        assert specs[0].network == "none"
        assert {spec.network for spec in specs[1:]} <= {f"container:{specs[0].name}"}
        assert {spec.labels["dlscale.run-id"] for spec in specs} == {"run-1"}


def test_every_strategy_has_a_case_and_every_default_exists():
    assert all(framework in STRATEGIES[name].frameworks for framework, name in DEFAULT_STRATEGY.items())
    jobs = (*(job for job, _ in CASES.values()), *ON_NODES.values())
    assert {job.trial.strategy for job in jobs} == set(STRATEGIES)
    files = {*ON_NODES, *(path.name for path in GOLDEN.glob("*-nodes*.txt"))}
    for name, strategy in STRATEGIES.items():
        assert any(f"-{name}-" in file for file in files) == strategy.several_nodes, name


def test_each_cpu_worker_has_its_own_cores_assigned_round_robin_if_too_few():
    specs = launch(examples.job(ranks(3, cpus_per_worker=2, **DIST), node=examples.node(cores=tuple(range(8)))))
    assert [spec.cpus for spec in specs if spec.role == "worker"] == [(0, 1), (2, 3), (4, 5)]
    assert specs[0].cpus == (0, 1, 2, 3, 4, 5)
    specs = launch(examples.job(ranks(3, oversubscribed=True, **DIST)))
    assert [spec.cpus for spec in specs if spec.role == "worker"] == [(0,), (1,), (0,)]


# Several hosts


def cpu_nodes(count):
    return [examples.node(name=f"n{number}") for number in range(1, count + 1)]


def gpu_nodes(count):
    return [examples.gpu_node(4, name=f"n{number}") for number in range(1, count + 1)]


def infiniband(count):
    return [examples.wire(number, kind="infiniband", iface="ib0", hcas=("mlx5_0:1",)) for number in range(1, count + 1)]


def two(**changes):
    return ranks(2, **CPU, **changes)


ON_NODES = {
    "pytorch-ddp-2-nodes": examples.job_on_nodes(two(strategy="ddp", **TORCH), cpu_nodes(2)),
    "pytorch-ddp-8-gpus-2-nodes-infiniband": examples.job_on_nodes(
        ranks(8, strategy="ddp", interconnect="infiniband", **TORCH, **GPU), gpu_nodes(2), wires=infiniband(2)
    ),
    "pytorch-fsdp-2-nodes": examples.job_on_nodes(two(strategy="fsdp", **LANGUAGE), cpu_nodes(2)),
    "pytorch-fsdp+tp-8-gpus-2-nodes-infiniband": examples.job_on_nodes(
        ranks(8, strategy="fsdp+tp", precision="bf16", interconnect="infiniband", **LANGUAGE, **GPU),
        gpu_nodes(2),
        wires=infiniband(2),
    ),
    "mxnet-kvstore-2-nodes": examples.job_on_nodes(two(**DIST), cpu_nodes(2)),
    "mxnet-kvstore-16-gpus-4-nodes": examples.job_on_nodes(
        ranks(16, strategy="kvstore", kvstore="dist_sync_device", processes=4, **GPU), gpu_nodes(4), wires=infiniband(4)
    ),
    "tensorflow-ps-4-workers-2-nodes": examples.job_on_nodes(
        ranks(4, strategy="ps", cpus_per_worker=1, **TENSORFLOW), cpu_nodes(2)
    ),
    "tensorflow-multiworker-4-workers-2-nodes": examples.job_on_nodes(
        ranks(4, strategy="multiworker", cpus_per_worker=1, **TENSORFLOW), cpu_nodes(2)
    ),
}


ON_NODES |= {
    f"{name}-2-nodes": examples.job_on_nodes(two(**changes), cpu_nodes(2))
    for name, changes in uncovered(
        {name: one for name, one in STRATEGIES.items() if one.several_nodes and name != "horovod"}, ON_NODES.values()
    ).items()
}


@pytest.mark.parametrize("name", ON_NODES)
def test_a_job_on_several_hosts_runs_on_each_under_a_heartbeat_lease_with_its_nodes_name(name):
    held, lines = on_file(name, ON_NODES[name], "nvidia", named=True)
    assert lines == held
    job, specs = ON_NODES[name], launch(ON_NODES[name])
    assert {spec.node for spec in specs} == {seat.node.name for seat in job.seats}
    assert sum(spec.processes for spec in specs if spec.role == "worker") == job.trial.processes
    assert len({spec.name for spec in specs}) == len(specs)
    for spec in specs:
        assert spec.argv[1:3] == ("/dlscale/workloads/lease.py", "--heartbeat=12")
        assert (spec.network, spec.env["DLSCALE_NODE"], spec.hostname) == ("host", spec.node, spec.node)


HERE = Site(python="/venv/python", workloads="/suite/workloads")
THERE = Site(python="python3", workloads="/dlscale/workloads")


def specs(job, site=HERE, hz=10):
    return samplers_of(job, hz=hz, image="base:1", site=site)


def test_this_machines_sampler_is_a_process_of_the_runners_python():
    (spec,) = specs(examples.job(examples.trial()))
    assert spec.argv == (
        *("/venv/python", "/suite/workloads/lease.py"),
        *("/venv/python", "/suite/workloads/monitor.py", "--node=here", "--hz=10", "--gpus="),
    )
    assert (spec.role, spec.mounts, spec.gpus, spec.cpus) == ("monitor", (), (), ())


NODES = [examples.gpu_node(4, name="n1"), examples.gpu_node(4, name="n2")]


def test_emulated_nodes_share_one_sampler_and_at_0_hz_there_is_none():
    assert len(specs(examples.job_on_nodes(gpu_trial(nodes=2), NODES, network="emulated"))) == 1
    assert specs(examples.job(examples.trial()), hz=0) == ()


def test_each_other_machine_has_a_sampler_that_sees_its_processes_but_has_no_rights():
    job = examples.job_on_nodes(gpu_trial(nodes=2), NODES)
    first, second = specs(job, site=THERE)
    assert (first.node, second.node) == ("n1", "n2")
    assert (first.name, second.name) == (f"dlscale-{job.run_id}-monitor0", f"dlscale-{job.run_id}-monitor1")
    assert first.argv == (
        *("python3", "/dlscale/workloads/lease.py", "--heartbeat=12"),
        *("python3", "/dlscale/workloads/monitor.py", "--node=n1", "--hz=10", "--gpus=0"),
    )
    assert first.env["PYTHONPATH"] == "/dlscale/workloads/site"
    assert (first.gpus, first.host_pids, first.network) == ((0,), True, "host")
    assert (first.net_admin, first.verbs, first.user) == (False, False, job.user)
