"""Example values of the suite's types, for tests that change one field of them."""

from pathlib import Path

from runner.core.container_spec import Mount
from runner.core.node import Gpu, Node
from runner.core.trial import Placed, Trial
from runner.core.wire import Wire
from runner.engines.base import DATA, WORKLOADS, Site
from runner.images.catalog import load_images
from runner.plan.launch.job import Job, assign_seats

ROOT = Path(__file__).parents[1]


def catalog(*versions):
    """The catalog with only these versions, so that a new one changes no test."""
    whole = load_images(ROOT)
    kept = {kind: tuple(i for i in getattr(whole, kind) if i.version in versions) for kind in ("images", "extended")}
    return whole.model_copy(update=kept)


def newest(framework, device):
    """The version that a request without VERSION means."""
    return load_images(ROOT).find(framework, None, device).version


def gpu(index=0, **changes):
    return Gpu.model_validate(
        {
            "index": index,
            "uuid": f"GPU-{index}",
            "name": "NVIDIA H200",
            "memory_mib": 143771,
            "compute_capability": "9.0",
            "nvlinks": 18,
        }
        | changes
    )


def node(**changes):
    return Node.model_validate(
        {
            "name": "here",
            "cores": (0, 1),
            "cpu_quota": None,
            "cpu_model": "Example CPU",
            "memory_mib": 8192,
            "counts_energy": False,
            "gpus": (),
            "gpu_reason": "no NVIDIA GPU on the PCI bus",
            "nics": (),
            "hcas": (),
            "driver": None,
            "cuda_driver": None,
            "ports": tuple(range(45678, 45742)),
        }
        | changes
    )


def gpu_node(count=4, **changes):
    return node(
        cores=tuple(range(16)),
        gpus=tuple(gpu(i) for i in range(count)),
        gpu_reason=None,
        driver="580.159.03",
        cuda_driver="13.0",
        **changes,
    )


def trial(**changes):
    values = {"placement": ({"node": "here", "devices": changes.get("world_size", 1)},)}
    return Trial.model_validate(
        values
        | {
            "framework": "mxnet",
            "version": "1.9.1",
            "workload": "imagenet_cnn",
            "program": "imagenet_cnn/train_mxnet.py",
            "model": "resnet18",
            "mode": "train",
            "strategy": "single",
            "kvstore": None,
            "precision": "fp32",
            "device": "cpu",
            "world_size": 1,
            "processes": 1,
            "nodes": 1,
            "batch_per_device": 32,
            "global_batch": 32,
            "image_shape": (3, 32, 32),
            "num_classes": 10,
            "data": "synthetic",
            "dataset": None,
            "iterations": 40,
            "warmup": 4,
            "window": 2,
            "epochs": 0.001,
            "learning_rate": 0.05,
            "momentum": 0.9,
            "weight_decay": 0.0001,
            "seed": 1,
            "scaling": "weak",
            "interconnect": "auto",
            "threads": 1,
            "loader_workers": 0,
            "cpus_per_worker": 1,
            "repeat": 1,
            "key": "0123456789abcdef",
        }
        | changes
    )


def horovod(**changes):
    defaults = {"controller": "gloo", "operations": "gloo", "compression": "none"}
    return {"fusion_threshold_mib": None, "cycle_time_ms": None, **defaults, **changes}


def job(the_trial, **changes):
    of_node = changes.pop("node", None) or node()
    values = {
        "run_id": "run-1",
        "trial": the_trial,
        "seats": changes.get("seats") or assign_seats(the_trial, {"here": of_node}, network="none"),
        "site": Site(python="python3", workloads=WORKLOADS, data=None),
        "image": f"dlscale/{the_trial.framework}:{the_trial.version}",
        "user": "10001:10001",
        "mounts": (Mount(source="/suite/workloads", target=WORKLOADS),),
    }
    return Job(**(values | changes))


def wire(number, **changes):
    values = {"kind": "ethernet", "iface": "eth0", "address": f"10.0.0.{number}"}
    return Wire.model_validate(values | changes)


def job_on_nodes(the_trial, nodes, *, wires=None, **changes):
    """A job on several hosts, with equally many devices on each."""
    wires = wires or [wire(number) for number in range(1, len(nodes) + 1)]
    each = the_trial.world_size // len(nodes)
    placement = tuple(Placed(node=n.name, devices=each, wire=w) for n, w in zip(nodes, wires, strict=True))
    spread = the_trial.model_copy(update={"nodes": len(nodes), "placement": placement})
    network = changes.pop("network", "host")
    seats = assign_seats(spread, {n.name: n for n in nodes}, network=network)
    return job(spread, seats=seats, remote=network == "host", **changes)


def data_site():
    return Site(python="python3", workloads=WORKLOADS, data=DATA)
