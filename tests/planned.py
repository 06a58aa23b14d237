"""Made-up inputs of planning: a machine of two cores or four GPUs, an image and a workload of the catalogs, a data set."""

from pathlib import Path

import examples

from runner.cluster.cluster import Cluster
from runner.core.node import Member
from runner.core.trial import Dataset
from runner.core.wire import NodeWires
from runner.core.workload import choose_workload, load_workloads
from runner.images.catalog import load_images
from runner.plan.discovery import Resources
from runner.plan.engine import EngineChoice

CATALOG = load_images(examples.ROOT)
WORKLOAD = choose_workload(load_workloads(examples.ROOT), None)


def resources(framework="mxnet", device="cpu", **changes):
    image = CATALOG.find(framework, None, device)
    node = changes.pop("node", None) or (examples.node() if device == "cpu" else examples.gpu_node(4))
    values = {
        "cluster": Cluster("here", node.name, (Member(node, NodeWires()),)),
        "device": device,
        "engine": EngineChoice("docker", None),
        "image": image,
        "workload": WORKLOAD,
        "dataset": None,
        "workloads_sha256": "0" * 64,
        "out": Path("/nowhere"),
    }
    return Resources(**(values | changes))


def dataset(images=2000, classes=10, **changes):
    return Dataset(path="/data", images=images, classes=classes, digest="d" * 64, **changes)


def workload_of(model):
    return choose_workload(load_workloads(examples.ROOT), model)
