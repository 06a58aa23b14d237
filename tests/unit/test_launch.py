"""A launcher that starts something else than it says: the exact command lines, held against golden files.

After a wanted change, `DLSCALE_GOLDEN=write make test` writes the files again; read the difference before committing it.
"""

import examples
import pytest
from goldens import expected

from runner.core.container_spec import Mount
from runner.core.strategies import DEFAULT_STRATEGY, STRATEGIES
from runner.engines import docker_options, local
from runner.plan.launch import launch
from runner.plan.launch.job import Job

GOLDEN = examples.ROOT / "tests" / "golden" / "launch"
NSIGHT = "/opt/nvidia/nsight-compute/2025.3.0"
KEPT = Mount(source="/cache/dlscale/compiled/0123456789abcdef", target="/dlscale/out", read_only=False)
GPUS = {"device": "gpu", "cpus_per_worker": None, "threads": 4, "batch_per_device": 64}

CASES: dict[str, tuple[Job, str | None]] = {
    "mxnet-single-cpu": (examples.job(examples.trial()), None),
    "mxnet-kvstore-2-cpu-workers": (
        examples.job(
            examples.trial(strategy="kvstore", kvstore="dist_sync", world_size=2, processes=2, global_batch=64)
        ),
        None,
    ),
    "mxnet-kvstore-4-gpus": (
        examples.job(
            examples.trial(
                strategy="kvstore", kvstore="device", world_size=4, version="1.9.1-cu112", global_batch=256, **GPUS
            ),
            node=examples.gpu_node(),
        ),
        "nvidia",
    ),
    "pytorch-ddp-2-cpu-workers-real-data": (
        examples.job(
            examples.trial(
                framework="pytorch",
                program="imagenet_cnn/train_pytorch.py",
                strategy="ddp",
                world_size=2,
                processes=2,
                global_batch=64,
                data="/data/set",
            ),
            site=examples.data_site(),
        ),
        None,
    ),
    "pytorch-single-gpu-tuned": (
        examples.job(
            examples.trial(
                framework="pytorch",
                program="imagenet_cnn/train_pytorch.py",
                version="2.15.0",
                techniques=("channels-last", "fused-optimizer", "compile", "cuda-graphs"),
                **GPUS,
            ),
            mounts=(*examples.job(examples.trial()).mounts, KEPT),
            compiled=KEPT.target,
            node=examples.gpu_node(),
        ),
        "cdi",
    ),
    "pytorch-single-gpu-decodes-there": (
        examples.job(
            examples.trial(
                framework="pytorch",
                program="imagenet_cnn/train_pytorch.py",
                version="2.15.0",
                data="/data/set",
                decode="gpu",
                loader_workers=8,
                **GPUS,
            ),
            node=examples.gpu_node(),
            site=examples.data_site(),
        ),
        "cdi",
    ),
    "mxnet-kvstore-dist-sync-device-2-gpus": (
        examples.job(
            examples.trial(
                strategy="kvstore",
                kvstore="dist_sync_device",
                world_size=2,
                processes=2,
                version="1.9.1-cu112",
                global_batch=128,
                **GPUS,
            ),
            node=examples.gpu_node(),
        ),
        "nvidia",
    ),
    "mxnet-kvstore-device-2-cpu-workers": (
        examples.job(examples.trial(strategy="kvstore", kvstore="device", world_size=2, global_batch=64)),
        None,
    ),
    **{
        f"{framework}-horovod-{how['controller']}-2-cpu-workers": (
            examples.job(
                examples.trial(
                    framework=framework,
                    program=f"imagenet_cnn/train_{framework}.py",
                    strategy="horovod",
                    horovod=examples.horovod(**how),
                    world_size=2,
                    processes=2,
                    global_batch=64,
                ),
                image=f"dlscale/{framework}-horovod",
            ),
            None,
        )
        for framework, how in {
            "pytorch": {"controller": "gloo"},
            "mxnet": {"controller": "mpi", "operations": "mpi", "compression": "fp16"},
            "tensorflow": {"controller": "mpi", "operations": "mpi", "fusion_threshold_mib": 32, "cycle_time_ms": 3},
        }.items()
    },
    "pytorch-horovod-4-gpus": (
        examples.job(
            examples.trial(
                framework="pytorch",
                program="imagenet_cnn/train_pytorch.py",
                strategy="horovod",
                horovod=examples.horovod(operations="nccl"),
                world_size=4,
                processes=4,
                global_batch=256,
                **GPUS,
            ),
            node=examples.gpu_node(),
        ),
        "nvidia",
    ),
    "tensorflow-mirrored-2-cpu-workers-xla": (
        examples.job(
            examples.trial(
                framework="tensorflow",
                program="imagenet_cnn/train_tensorflow.py",
                strategy="mirrored",
                world_size=2,
                global_batch=64,
                xla=True,
            )
        ),
        None,
    ),
    "tensorflow-multiworker-2-cpu-workers": (
        examples.job(
            examples.trial(
                framework="tensorflow",
                program="imagenet_cnn/train_tensorflow.py",
                strategy="multiworker",
                world_size=2,
                processes=2,
                global_batch=64,
            )
        ),
        None,
    ),
    "caffe-4-gpus": (
        examples.job(
            examples.trial(
                framework="caffe",
                version="0.17.3-nvidia",
                program="imagenet_cnn/train_caffe.py",
                strategy="caffe",
                world_size=4,
                global_batch=256,
                **GPUS,
            ),
            node=examples.gpu_node(),
        ),
        "nvidia",
    ),
    "pytorch-profile-of-kernels-2-cpu-workers": (
        examples.job(
            examples.trial(
                framework="pytorch",
                program="imagenet_cnn/train_pytorch.py",
                strategy="ddp",
                world_size=2,
                processes=2,
                global_batch=64,
                profile={"kind": "kernels", "after": 300, "iterations": 5, "region": "backward"},
            )
        ),
        None,
    ),
    "pytorch-profile-of-metrics-under-ncu": (
        examples.job(
            examples.trial(
                framework="pytorch",
                program="imagenet_cnn/train_pytorch.py",
                global_batch=64,
                profile={
                    "kind": "metrics",
                    "after": None,
                    "iterations": 5,
                    "region": None,
                    "counting": {"source": "ncu", "program": f"{NSIGHT}/ncu", "folder": NSIGHT},
                },
                **GPUS,
            ),
            node=examples.gpu_node(),
        ),
        "nvidia",
    ),
    "pytorch-ddp-4-gpus-shm-cdi": (
        examples.job(
            examples.trial(
                framework="pytorch",
                program="imagenet_cnn/train_pytorch.py",
                strategy="ddp",
                world_size=4,
                processes=4,
                global_batch=256,
                precision="bf16",
                interconnect="shm",
                **GPUS,
            ),
            node=examples.gpu_node(),
        ),
        "cdi",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_command_lines_are_those_on_file(name):
    job, gpus_by = CASES[name]
    lines = "".join(" \\\n  ".join(_words(docker_options.docker_run(spec, gpus_by))) + "\n\n" for spec in launch(job))
    path = GOLDEN / f"{name}.txt"
    assert lines == expected(path, lines)


def _words(argv):
    """One option and its value a line, so that a difference is easy to read."""
    lines = []
    for word in argv:
        if (
            lines
            and lines[-1].startswith("--")
            and "=" not in lines[-1]
            and " " not in lines[-1]
            and lines[-1] not in FLAGS_ALONE
            and not word.startswith("--")
        ):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


FLAGS_ALONE = ("--interactive", "--read-only", "--standalone", "--gloo", "--mpi", "--xla")


def test_every_strategy_is_some_frameworks_and_every_default_exists():
    for framework, strategy in DEFAULT_STRATEGY.items():
        assert framework in STRATEGIES[strategy].frameworks


def test_each_cpu_worker_has_cores_of_its_own():
    trial = examples.trial(strategy="kvstore", kvstore="dist_sync", world_size=3, processes=3, cpus_per_worker=2)
    specs = launch(examples.job(trial, node=examples.node(cores=tuple(range(8)))))
    assert [spec.cpus for spec in specs if spec.role == "worker"] == [(0, 1), (2, 3), (4, 5)]
    assert specs[0].cpus == (0, 1, 2, 3, 4, 5)


def test_workers_share_cores_round_and_round_where_there_are_too_few():
    trial = examples.trial(strategy="kvstore", kvstore="dist_sync", world_size=3, processes=3, oversubscribed=True)
    specs = launch(examples.job(trial))
    assert [spec.cpus for spec in specs if spec.role == "worker"] == [(0,), (1,), (0,)]


def test_each_worker_with_a_container_of_its_own_sees_its_own_gpu_and_helpers_none():
    specs = launch(CASES["mxnet-kvstore-dist-sync-device-2-gpus"][0])
    assert [(spec.role, spec.gpus) for spec in specs] == [
        ("scheduler", ()),
        ("server", ()),
        ("worker", (0,)),
        ("worker", (1,)),
    ]


def test_every_strategy_has_a_golden_file():
    assert {job.trial.strategy for job, _ in CASES.values()} == set(STRATEGIES)


def test_no_container_gets_a_network_that_leaves_the_host():
    for job, _ in CASES.values():
        specs = launch(job)
        assert specs[0].network == "none"
        assert {spec.network for spec in specs[1:]} <= {f"container:{specs[0].name}"}


def test_all_containers_of_a_run_carry_its_label():
    for job, _ in CASES.values():
        assert {spec.labels["dlscale.run-id"] for spec in launch(job)} == {"run-1"}


def test_a_profiler_of_the_host_is_mounted_where_it_is_and_read_only():
    (spec,) = launch(CASES["pytorch-profile-of-metrics-under-ncu"][0])
    mount = spec.mounts[-1]
    assert (mount.source, mount.target, mount.read_only) == (NSIGHT, NSIGHT, True)
    assert spec.env["DLSCALE_COUNTERS"] == "ncu"


def test_without_a_container_the_same_argv_runs_on_the_same_cores():
    spec = launch(CASES["mxnet-single-cpu"][0])[0]
    assert local.arguments(spec) == ("taskset", "--cpu-list", "0", *spec.argv)
