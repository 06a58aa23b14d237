"""Trains twice, with and without the probe: what all frameworks' `probing.py` hold their programs to. No script by itself.

The network has dropout unless told otherwise, so that a random number drawn by the probe would show in the losses.
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
    """The events in the output of a job."""
    lines = [line[line.index(PREFIX) + len(PREFIX) :] for line in text.splitlines() if PREFIX in line]
    return [json.loads(line) for line in lines]


def ran(*argv, **how):
    """Run a program to its end: its events."""
    return read(run(*argv, **how))


def of(events, name):
    """The events of a name, by rank and as they came."""
    return sorted((event for event in events if event["event"] == name), key=lambda event: event["rank"])


def losses(events):
    return [loss for event in of(events, "loss") for loss in event["values"]]


OPERATIONS = ["all_gather", "reduce_scatter", "all_to_all"]


def hold(train, *, processes, operation, offered=()):
    """Hold a job to it; `train` is called with the words that come after `FLAGS` and gives its events.

    `offered` are the collectives that it times beside its exchange of gradients.
    """
    plain, probed = train(), train(f"--probe={','.join(map(str, SIZES))}")
    assert len(losses(plain)) == 6 * processes
    for one, other in zip(losses(plain), losses(probed), strict=True):
        assert abs(one - other) <= 1e-6 * one, f"{losses(plain)} became {losses(probed)}"
    assert not of(plain, "bandwidth") + of(plain, "compute")
    every = of(probed, "bandwidth")
    found = [event for event in every if event["operation"] not in OPERATIONS]
    timed = [(event["operation"], event["size_bytes"]) for event in every if event not in found]
    assert timed == [(name, size) for name in offered for size in SIZES]
    missing = [name for name in OPERATIONS if name not in offered] if operation else []
    assert [event["operations"] for event in of(probed, "no_collectives")] == ([missing] if missing else [])
    assert [(event["rank"], event["size_bytes"]) for event in found] == (
        [(0, size) for size in SIZES] if operation else []
    )
    assert {event["operation"] for event in found} <= {operation}
    assert all(event["wrong"] == 0 and len(event["seconds"]) == 3 for event in every), every
    assert [event["rank"] for event in of(probed, "compute")] == list(range(processes))
    for event in of(probed, "window"):
        assert 0 <= event["input_seconds"] < event["seconds"], event
    parameters = of(probed, "run_start")[0]["parameters"]
    assert {event["gradient_bytes"] for event in of(probed, "run_start")} == {4 * parameters}


def program(name, model="googlenet"):
    """A training program and the flags that all share."""
    return str(WORKLOADS / "imagenet_cnn" / f"train_{name}.py"), f"--model={model}", *FLAGS
