"""Trains twice, with and without the probe: the check of all frameworks' `probing.py`. A library, not a script.

The network has dropout by default, so that a random number drawn by the probe would change the losses.
"""

import json
from pathlib import Path

from programs import run

WORKLOADS = Path(__file__).parents[3] / "workloads"
PREFIX = "::dlscale:: "
SIZES = (65536, 1048576)
FLAGS = (
    *("--image-size=32", "--num-classes=10", "--batch=2", "--iterations=4", "--warmup=2", "--window=2"),
    *("--precision=fp32", "--device=cpu", "--data=synthetic", "--learning-rate=0.01", "--momentum=0.9"),
    *("--weight-decay=0.0001", "--seed=1", "--threads=1", "--cpus-per-worker=0", "--loader-workers=0"),
)


def read(text):
    """Events in the output of a job."""
    lines = [line[line.index(PREFIX) + len(PREFIX) :] for line in text.splitlines() if PREFIX in line]
    return [json.loads(line) for line in lines]


def run_for_events(*argv, **how):
    """Run a program to completion and return its events."""
    return read(run(*argv, **how))


def named(events, name):
    """Events with this name, by rank and in order."""
    return sorted((event for event in events if event["event"] == name), key=lambda event: event["rank"])


def losses(events):
    return [loss for event in named(events, "loss") for loss in event["values"]]


OPERATIONS = ["all_gather", "reduce_scatter", "all_to_all"]


def check(train, *, processes, operation, offered=()):
    """Check a job's probe; `train` takes additional arguments after `FLAGS` and returns the events.

    `offered` are the collectives that the probe times in addition to the job's gradient exchange.
    """
    plain, probed = train(), train(f"--probe={','.join(map(str, SIZES))}")
    assert len(losses(plain)) == 6 * processes
    for one, other in zip(losses(plain), losses(probed), strict=True):
        assert abs(one - other) <= 1e-6 * one, f"{losses(plain)} became {losses(probed)}"
    assert not named(plain, "bandwidth") + named(plain, "compute")
    every = named(probed, "bandwidth")
    found = [event for event in every if event["operation"] not in OPERATIONS]
    timed = [(event["operation"], event["size_bytes"]) for event in every if event not in found]
    assert timed == [(name, size) for name in offered for size in SIZES]
    missing = [name for name in OPERATIONS if name not in offered] if operation else []
    assert [event["operations"] for event in named(probed, "no_collectives")] == ([missing] if missing else [])
    assert [(event["rank"], event["size_bytes"]) for event in found] == (
        [(0, size) for size in SIZES] if operation else []
    )
    assert {event["operation"] for event in found} <= {operation}
    assert all(event["wrong"] == 0 and len(event["seconds"]) == 3 for event in every), every
    assert [event["rank"] for event in named(probed, "compute")] == list(range(processes))
    for event in named(probed, "window"):
        assert 0 <= event["input_seconds"] < event["seconds"], event
    parameters = named(probed, "run_start")[0]["parameters"]
    assert {event["gradient_bytes"] for event in named(probed, "run_start")} == {4 * parameters}


def program(name, model="googlenet"):
    """Return a training program and the common flags."""
    return str(WORKLOADS / "imagenet_cnn" / f"train_{name}.py"), f"--model={model}", *FLAGS
