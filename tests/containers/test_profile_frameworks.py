"""Profiling passes of MXNet, TensorFlow and Caffe, in their images: the output is what ran.

Prevents: operators of a whole segment in one row, times on another clock than the steps', work before or after the profiled steps in the
table, operators without a known category, a profiler that changes the training, memory or regions of phases that never
occurred.
"""

import math
import re
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from runner.analysis.profile.classify import category
from runner.analysis.profile.figures import analyse
from runner.core.events import Loss, Memory, ProfileStart, ProfileStop, Regions, RunStart, RunStop
from runner.core.events.parse import Rows, parse_line
from runner.images.catalog import load_images
from runner.results.tables import lines_file, read

pytestmark = pytest.mark.beside

ROOT = Path(__file__).parents[2]
BEFORE, ITERATIONS = 7, 3
FLAGS = (
    *(
        "--model=lenet",
        "--image-size=32",
        "--num-classes=10",
        "--batch=8",
        "--iterations=4",
        "--warmup=1",
        "--window=2",
    ),
    *("--precision=fp32", "--device=cpu", "--devices=1", "--strategy=single", "--data=synthetic", "--seed=1"),
    *("--learning-rate=0.001", "--momentum=0.9", "--weight-decay=0.0001"),
    *("--threads=1", "--cpus-per-worker=0", "--loader-workers=1"),
)
FRAMEWORKS = ("mxnet", "tensorflow", "caffe")
# LeNet has two convolutions, each with a pooling, and two dense layers; a forward pass runs each once. A convolution's gradient is
# one operator in MXNet and Caffe; TensorFlow has one for the filter, and one for the input of all convolutions but the first.
CONVOLUTIONS = {
    "mxnet": {
        r"Convolution": 2,
        r"_backward_Convolution": 2,
        r"(_backward_)?Pooling": 4,
        r"(_backward_)?FullyConnected": 4,
    },
    "tensorflow": {
        r"(_MklNative)?(_?Fused)?Conv2D": 2,
        r"\w*Conv2DBackpropFilter\w*": 2,
        r"\w*Conv2DBackpropInput": 1,
        r"\w*MaxPool(Grad)?": 4,
        r"ResourceApplyMomentum": 8,  # a weight and a bias of four layers
    },
    "caffe": {r"Convolution forward": 2, r"Convolution backward": 2, r"Pooling \w+": 4, r"InnerProduct \w+": 4},
}


def train(client, framework, *flags):
    """Run a training program in its image as the suite does, and return its output."""
    image = load_images(ROOT).find(framework, None, "cpu")
    return client.containers.run(
        image.reference,
        ["python3", f"/suite/workloads/imagenet_cnn/train_{framework}.py", *FLAGS, *flags],
        volumes={str(ROOT / "workloads"): {"bind": "/suite/workloads", "mode": "ro"}},
        environment={"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        tmpfs={"/tmp": "size=256m"},
        remove=True,
        stderr=False,
    ).decode()


@pytest.fixture(scope="module")
def passed(client, tmp_path_factory):
    """Events of a pass, and its table `kernels` or None; each pass runs once."""
    known = {}

    def run(framework, kind, *more):
        asked = (framework, kind, *more)
        if asked not in known:
            flags = (f"--profile={kind}", f"--profile-after={BEFORE}", f"--profile-iterations={ITERATIONS}", *more)
            said = train(client, framework, *flags)
            lines = [parse_line(line, received=0.0, container="worker") for line in said.splitlines()]
            folder = tmp_path_factory.mktemp("pass")
            rows = [f"{line.model_dump_json()}\n" for line in lines if isinstance(line, Rows)]
            if rows:
                (folder / lines_file("kernels")).write_text("".join(rows))
            events = [line for line in lines if line is not None and not isinstance(line, Rows)]
            found = read(folder, "kernels", nodes={"worker": "here"})
            known[asked] = events, None if found is None else pd.DataFrame(found)
        return known[asked]

    return run


def only(events, kind):
    (found,) = (event for event in events if isinstance(event, kind))
    return found


def union(rows):
    """Seconds during which any of the rows ran."""
    total, until = 0.0, -math.inf
    for start, end in sorted(zip(rows["start"], rows["start"] + rows["duration"], strict=True)):
        total += max(end - max(start, until), 0.0)
        until = max(until, end)
    return total


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_operator_ran_in_a_profiled_step(passed, framework):
    events, kernels = passed(framework, "kernels")
    start, stop = only(events, ProfileStart), only(events, ProfileStop)
    assert (start.kind, start.region, stop.iterations, len(stop.step_seconds)) == (
        "kernels",
        None,
        ITERATIONS,
        ITERATIONS,
    )
    assert start.iteration == (1 if framework == "caffe" else BEFORE)
    ran = kernels[kernels["kind"] == "op"]
    assert (ran["device"] == -1).all()
    assert (ran["duration"] >= 0).all()
    assert ran["op"].is_unique
    # Profilers' clocks have a resolution of whole microseconds at worst. Caffe's start is read in its log only after it has begun.
    assert framework == "caffe" or ran["start"].min() >= start.t - 1e-5
    assert (ran["start"] + ran["duration"]).max() <= stop.t + 1e-5
    assert 0 < union(ran) <= sum(stop.step_seconds) + 1e-5


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_layer_of_the_network_has_its_rows_in_every_step(passed, framework):
    _, kernels = passed(framework, "kernels")
    ran = Counter(kernels.loc[kernels["kind"] == "op", "name"])
    for pattern, count in CONVOLUTIONS[framework].items():
        found = {name: number for name, number in ran.items() if re.fullmatch(pattern, name)}
        assert sum(found.values()) == count * ITERATIONS, (pattern, ran)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_operators_have_known_categories(passed, framework):
    events, kernels = passed(framework, "kernels")
    ran = kernels[kernels["kind"] == "op"]
    updates = set() if framework == "caffe" else {"optimizer"}  # `caffe time` makes none
    categories = ran["name"].map(lambda name: category("op", name))
    assert (
        set(categories)
        >= {"convolution_other", "gemm", "pooling_forward", "pooling_backward", "softmax_loss"} | updates
    )
    known = ran.loc[categories != "other", "duration"].sum()
    assert known >= 0.9 * ran["duration"].sum(), Counter(ran.loc[categories == "other", "name"])
    found = analyse(kernels, events)
    assert found.work == "operators"
    assert sum(share.share_percent for share in found.categories) == pytest.approx(100)
    assert {missing.reason for missing in found.unavailable} == {"no NVIDIA device"}


@pytest.mark.parametrize("framework", ["mxnet", "tensorflow"])
def test_a_profiler_does_not_change_the_training(client, passed, framework):
    def losses(events):
        by_iteration = sorted((event.first_iteration, event.values) for event in events if isinstance(event, Loss))  # noqa: PD011 - of a loss
        return [value for _, values in by_iteration for value in values]

    events, _ = passed(framework, "kernels")
    steps = BEFORE + ITERATIONS
    plain = train(client, framework, f"--iterations={steps - 1}")
    lines = [parse_line(line, received=0.0, container="worker") for line in plain.splitlines()]
    assert len(losses(events)) == steps
    assert losses(events) == pytest.approx(losses(lines), rel=1e-5)
    ended = only(events, RunStop)
    assert (ended.iterations, ended.samples) == (steps, 8 * steps)
    assert ended.parameter_norm == pytest.approx(only(lines, RunStop).parameter_norm, rel=1e-6)


@pytest.mark.parametrize(
    ("framework", "phases"),
    [
        ("mxnet", {"model", "input", "forward", "backward", "optimizer"}),
        ("tensorflow", {"model", "input", "step"}),
        ("caffe", {"model", "step"}),
    ],
)
def test_memory_is_reported_for_every_phase(passed, framework, phases):
    events, kernels = passed(framework, "memory")
    told = {event.phase: event for event in events if isinstance(event, Memory)}
    assert set(told) == phases
    weights = 4 * only(events, RunStart).parameters
    for event in told.values():
        assert event.device == "host"
        assert event.peak_bytes >= event.allocated_bytes > weights
    assert kernels is None


@pytest.mark.parametrize(
    ("framework", "names"),
    [("mxnet", ["backward", "forward", "input", "optimizer"]), ("tensorflow", ["input", "step"])],
)
def test_regions_are_parts_of_their_step(passed, framework, names):
    events, kernels = passed(framework, "region")
    found = {event.name: event.seconds for event in events if isinstance(event, Regions)}
    assert sorted(found) == names
    assert only(events, ProfileStart).source == "clock"
    for step, parts in zip(only(events, ProfileStop).step_seconds, zip(*found.values(), strict=True), strict=True):
        assert all(part > 0 for part in parts)
        assert sum(parts) <= step
    assert kernels is None


def test_a_pass_narrowed_to_a_region_has_only_its_operators(passed):
    _, kernels = passed("mxnet", "kernels", "--profile-region=backward")
    edges = kernels[kernels["kind"] == "region"]
    assert list(edges["name"]) == ["backward"] * ITERATIONS
    ran = kernels[kernels["kind"] == "op"]
    inside = [
        ((edges["start"] - 1e-5 <= start) & (end <= edges["start"] + edges["duration"] + 1e-5)).any()
        for start, end in zip(ran["start"], ran["start"] + ran["duration"], strict=True)
    ]
    assert all(inside)
    names = Counter(ran["name"])
    assert names["_backward_Convolution"] == 2 * ITERATIONS
    assert not names["Convolution"] + names["multi_sgd_mom_update"]
