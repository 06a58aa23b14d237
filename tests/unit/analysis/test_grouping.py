"""Prevents: comparisons of runs that differ in more than the compared fact: network, machine, scale, wire, precision or data."""

from __future__ import annotations

import examples
import pytest
from records import but
from scaled import ran
from swept import H200, measured

from runner.analysis.comparisons.ablation import ablations
from runner.analysis.comparisons.devices import devices
from runner.analysis.comparisons.settings import cross_checks, inputs, strategies
from runner.analysis.comparisons.sweeps import sweeps

OF_TRIALS = {
    "framework": "mxnet", "version": "2.6.0", "model": "vgg16", "mode": "converge", "precision": "bf16", "fit": 20,
    "batch_per_device": 128, "image_shape": (3, 64, 64), "scaling": "strong", "world_size": 4, "nodes": 2, "seed": 7,
    "interconnect": "loopback", "iface": "eth1", "techniques": ("channels-last",), "xla": True, "decode": "gpu",
    "settings": {"n-critic": 1}, "loader_workers": 4, "threads": 2, "gpu_memory": "all",
    "horovod": examples.trial(horovod=examples.horovod(compression="fp16")).horovod,
    "concurrent": examples.trial(concurrent={"trainings": 2, "case": "sequential", "number": 1}).concurrent,
}  # fmt: skip
CHANGES = {name: {"trial": {name: value}} for name, value in OF_TRIALS.items()} | {
    "kind of GPU": {"provenance": {"gpus": (H200.model_copy(update={"name": "Tesla V100"}),)}},
    "batches in flight": {"measurement": {"in_flight": 4}},
}
DATA = {"path": "/data/set", "images": 4000, "classes": 10, "digest": "d" * 64}
SYNTHETIC = measured(64, 1000.0)
PATH, BY_DOCKER = but(SYNTHETIC, provenance={"framework_version": "2.15.0"})
UNWATCHED = PATH, SYNTHETIC[1].model_copy(update={"telemetry": None})
NEXT_GPU = but(UNWATCHED, provenance={"gpus": (H200.model_copy(update={"uuid": "GPU-next"}),)})


@pytest.mark.parametrize(
    ("find", "first", "other", "free"),
    [
        (
            strategies,
            ran("lenet", 2, 180),
            ran("lenet", 2, 150, strategy="horovod", horovod=examples.horovod()),
            {"horovod", "iface", "kind of GPU"},  # CPU workers have none of these
        ),
        (
            inputs,
            SYNTHETIC,
            measured(64, 800.0, run_id="jpegs", data="/data/set", dataset=DATA),
            {"iface", "decode", "loader_workers", "threads"},
        ),
        (
            cross_checks,
            (PATH, BY_DOCKER),
            (PATH, BY_DOCKER.model_copy(update={"engine": "venv"})),
            {"version", "iface"},
        ),
        (sweeps, SYNTHETIC, measured(16, 900.0), {"batch_per_device", "threads"}),
        (
            ablations,
            SYNTHETIC,
            measured(64, 1.0, run_id="more", techniques=("compile",)),
            {"iface", "precision", "batch_per_device", "techniques", "threads"},
        ),
        (devices, UNWATCHED, NEXT_GPU, {"iface", "loader_workers", "threads"}),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_runs_that_differ_in_an_uncompared_fact_are_not_compared(find, first, other, free):
    assert len(find((first, other))) == 1
    compared = {name for name, change in CHANGES.items() if find((first, but(other, **change)))}
    assert compared == free | {"scaling", "seed"}
