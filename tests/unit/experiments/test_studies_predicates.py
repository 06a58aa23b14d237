"""A source's findings tested on observations.

Prevents: a comparison that holds by noise; a trend claimed from one level; different GPUs compared because a finding does not name one; a CPU
that stands for a GPU compared with a CPU; a finding about one GPU tested on another; a failing case hidden among passing ones; days compared
with seconds; a run too short to be steady called steady.

The findings of published sources, tested on their own figures and on whole studies.

Prevents: a finding that contradicts the figures of its own source, because one of them was copied or understood wrongly; a finding that can't be
tested, or whose verdict has no reason or no runs.
"""

from __future__ import annotations

import itertools
import operator

import pytest
import studied
from hypothesis import given
from hypothesis import strategies as st
from made_up_source import source
from pydantic import TypeAdapter
from studied import observation

from runner.core.record import Validity
from runner.experiments.studies.evidence import Evidence
from runner.experiments.studies.model import INDICATED
from runner.experiments.studies.observe import printed
from runner.experiments.studies.predicates import answer_predicate, judged
from runner.experiments.studies.reproduction import judge
from runner.results.published import load as published
from runner.results.published.findings import Predicate
from runner.results.published.model import Runs

BLOCK = Runs(framework="pytorch", mode="training")


def answer_to(predicate, *observations, device="gpu", runs=(), **hardware):
    """Answer a predicate, written as in a file, for a source with one GPU model, `v100`; the metric is throughput by default."""
    metric = {} if predicate["type"] == "all" else {"metric": "throughput"}
    parsed = TypeAdapter(Predicate).validate_python(metric | predicate)
    made_up = source(findings=(), **hardware).model_copy(update={"runs": runs})
    return answer_predicate(
        parsed, Evidence(published=made_up, observations=observations, device=device, device_name="Example")
    )


def rates(*pairs, half=None, **more):
    """Throughputs at numbers of GPUs."""
    return [
        observation(value, gpus=gpus, ci95=(value - half, value + half) if half else None, **more)
        for gpus, value in pairs
    ]


RISING = {"type": "monotonic", "over": "gpus", "direction": "increasing"}
LEVELS = [1, 2, 4, 8, 12, 16]

BATCH = {"type": "compare", "lhs": {"batch": 256}, "op": ">", "rhs": {"batch": 64}}
NODES = {"type": "compare", "lhs": {"nodes": 1}, "op": "<=", "rhs": {"nodes_above": 1}, "same": ["gpus"]}
HALF = {"type": "ratio", "num": {"network": "eth"}, "den": {"network": "ib"}, "value": "0.5", "rel_tol": 0.2}
WIDE = {"type": "ratio", "num": {"gpus": 4}, "den": {"gpus": 1}, "value": "4", "rel_tol": 0.1}
GPUS = ("v100", "p100", "k80")
FALLS = {"type": "order", "over": "gpu", "descending": list(GPUS)}
ALIKE = {"type": "no_difference", "over": ["gpu"], "levels": ["v100", "p100"]}
BELOW = {"type": "bound", "metric": "gpu_utilisation_avg", "op": "<", "value": 100, "unit": "%"}
DAY = {"type": "bound", "metric": "full_training_time", "op": "<", "value": 86400, "unit": "s"}
STEADY = {"type": "steady", "metric": "iteration_time"}
AFTER = STEADY | {"after_iterations": 300}
KERNEL = {"type": "names", "metric": "kernel_time_share", "names": ["winograd3x3Kernel"], "for_all": {"gpu": "k80"}}
LARGEST = {"type": "names", "metric": "memory_api_time_shares", "names": ["b", "a"], "largest": 2}
LOW = {"type": "bound", "metric": "throughput", "op": "<", "value": 10, "unit": "images/s"}
BOTH = {"type": "all", "of": [LOW | {"select": {"model": "a"}}, LOW | {"select": {"model": "b"}}]}
POWER = {"metric": "power_avg", "unit": "W"}
LARGER = {"type": "monotonic", "metric": "power_avg", "over": "model_size", "direction": "increasing"}
IDLE = BATCH | {"metric": "power_avg", "lhs": {"state": "training"}, "rhs": {"state": "idle"}}


def seen(value, *, half=None, **more):
    """One figure ± `half`."""
    return observation(value, ci95=(value - half, value + half) if half else None, **more)


def batches(small, large, **more):
    return [observation(small, batch=64, **more), observation(large, batch=256, **more)]


def on(*values, half=None):
    """One figure per GPU."""
    return [seen(value, half=half, gpu=name) for name, value in zip(GPUS, values, strict=False)]


def wires(eth, ib=100):
    return [observation(eth, network="eth", nodes=2), observation(ib, network="ib", nodes=2)]


def util(value, half=None, **more):
    return seen(value, half=half, metric="gpu_utilisation_avg", unit="%", **more)


def windows(*seconds):
    """Iteration times, of ten iterations each."""
    of = {"metric": "iteration_time", "unit": "s", "model": "a"}
    return [observation(value, iterations=10 * place, **of) for place, value in enumerate(seconds, start=1)]


def days(count):
    return observation(count, metric="full_training_time", unit="days")


def samples(*counts):
    of = {"metric": "samples_per_run", "unit": "images", "repeats": 3}
    return [observation(count, gpus=gpus, **of) for gpus, count in enumerate(counts, start=1)]


def calls(metric="memory_api_time_shares", **shares):
    return [observation(share, name=name, metric=metric, unit="%") for name, share in shares.items()]


def kernel(name, **where):
    return observation(30, name=name, metric="kernel_time_share", unit="%", **where)


TRAINING = [observation(10, batch=64, mode="training"), observation(20, batch=256, mode="training, 50 epochs")]
INFERENCE = [observation(40, batch=64, mode="inference"), observation(30, batch=256, mode="infer")]
FOUR_GPUS = observation(390, gpus=4, nodes=1)
SLOWER_TWO = observation(10, gpus=2, nodes=2)


@pytest.mark.parametrize(
    ("predicate", "observations", "holds"),
    [
        # Along an axis: no step the wrong way beyond noise, and the end beyond the beginning.
        (RISING, rates((1, 100), (2, 198), (4, 195), half=4), True),  # a step back, within noise
        (RISING | {"direction": "decreasing"}, rates((1, 100), (2, 90)), True),
        (RISING | {"direction": "decreasing"}, rates((1, 100), (2, 190)), False),
        (RISING | {"levels": LEVELS}, rates((1, 100), (3, 50)), None),
        (LARGER | {"levels": ["z", "a"]}, [observation(300, model="a", **POWER), observation(200, model="z", **POWER)], True),
        (FALLS, on(30, 20, 10), True),
        (FALLS, on(30, 20, 25), False),
        (FALLS, on(30, 26, 10, half=4), None),
        (FALLS, on(30, 26, 35, half=4), False),
        (RISING, rates((1, 100), (2, 101), half=4), None),
        # Half-widths 3 and 4 combine to 5 for the difference from 100.
        *(
            (BATCH | {"op": op}, [seen(left, half=3, batch=256), seen(100, half=4, batch=64)], holds)
            for op, left, holds in (
                *((">", 106, True), (">", 104, None), (">", 90, False), ("<", 94, True), ("<", 96, None)),
                *((">=", 104, True), (">=", 96, True), (">=", 90, False), ("<=", 104, True), ("<=", 110, False)),
            )
        ),
        ({"type": "compare", "lhs": {"gpus": 2}, "op": ">", "rhs": {"gpus": 1}}, [observation(2, gpus=2, global_batch=64), observation(1, gpus=1, global_batch=32)], True),
        (NODES, [FOUR_GPUS, SLOWER_TWO, observation(400, gpus=4, nodes=2)], True),
        (NODES, [FOUR_GPUS, SLOWER_TWO], None),
        # Training by default, and inference if there is nothing else.
        (BATCH, [*TRAINING, *INFERENCE], True),
        (BATCH, INFERENCE, False),
        (BATCH | {"for_all": {"mode": "inference"}}, [*TRAINING, *INFERENCE], False),
        # Idle is a separate state.
        (IDLE, [observation(200, **POWER), observation(20, state="idle", **POWER)], True),
        (IDLE, [observation(200, **POWER)], None),
        # The tolerance is relative to the value; of several runs on the other side, the best match counts.
        *((HALF, wires(eth), holds) for eth, holds in ((60, True), (61, False), (40, True), (39, False))),
        (HALF, wires(1, ib=0), None),
        (WIDE, [observation(400, gpus=4, batch_per_gpu=64), *(observation(v, gpus=1, batch_per_gpu=b) for v, b in ((100, 64), (50, 32)))], True),
        # 1 % is no difference; without an interval it is undecided.
        (ALIKE, on(30, 30.5, 10, half=1), True),
        (ALIKE, on(30, 20, 10, half=1), False),
        (ALIKE, on(30), None),
        (ALIKE | {"select": {"batch": 2}}, [seen(v, half=1, gpu=g, batch=b) for v, g, b in ((9, "v100", 1), (90, "p100", 1), (30, "v100", 2), (30.5, "p100", 2))], True),
        (ALIKE | {"differs": True}, on(30, 20, half=1), True),
        (ALIKE | {"differs": True}, on(30, 30.5, half=1), False),
        (ALIKE | {"differs": True}, on(30, 20), None),
        ({"type": "no_difference", "metric": "samples_per_run", "over": ["gpus"]}, samples(1000, 1040), True),
        ({"type": "no_difference", "metric": "samples_per_run", "over": ["gpus"]}, samples(1000, 1200), False),
        # A bound is decided beyond noise.
        (BELOW, [util(90)], True),
        (BELOW, [util(99, 2)], None),
        (BELOW | {"op": "<="}, [util(101, 2)], True),
        (BELOW | {"op": ">="}, [util(97, 2)], False),
        (BELOW | {"op": ">"}, [util(103, 2)], True),
        (BELOW | {"op": "in", "value": [40, 60]}, [util(40)], True),
        (BELOW | {"op": "in", "value": [40, 60]}, [util(60.1)], False),
        (BELOW | {"select": {"model": "a"}}, [util(90, model="a"), util(100, model="b")], True),
        (DAY, [days(0.9)], True),
        (DAY, [days(1.1)], False),
        # The speedup of one device is true by definition.
        (BELOW | {"metric": "scaling_efficiency", "op": ">="}, [observation(100, metric="scaling_efficiency", unit="%", gpus=1, method="by definition")], None),
        (STEADY, windows(9, 1, 1, 1, 1, 1), True),
        (STEADY, windows(1, 1.1, 1.2, 1.3, 1.4, 1.5), False),
        (STEADY, windows(1, 1, 1), None),
        (AFTER, windows(*[9] * 30, *[1] * 6), True),
        (AFTER, windows(*[1] * 30, 1.5, 0.5, *[1] * 6), True),
        # The mean of the first 20 iterations is that of all, although the first 10 are not; 5 and 25 are not seen in windows of 10.
        (AFTER | {"window": 10}, windows(*[1] * 30, 1.5, 0.5, *[1] * 6), False),
        (AFTER | {"window": 20}, windows(*[1] * 30, 1.5, 0.5, *[1] * 6), True),
        (AFTER | {"window": 20}, windows(*[1] * 30, 1.2, 0.95, *[1] * 6), False),
        (AFTER | {"window": 5}, windows(*[1] * 38), None),
        (AFTER | {"window": 25}, windows(*[1] * 38), None),
        (AFTER | {"after_iterations": 305, "window": 10}, windows(*[1] * 39), None),
        (AFTER | {"window": 5}, windows(*[1] * 34, *[2] * 4), False),
        # A kernel is found by a part of its name, on its GPU.
        (KERNEL, [kernel("void cudnn::winograd3x3Kernel<float>", gpu="k80", batch=4), kernel("sgemm", gpu="k80", batch=8)], True),
        (KERNEL, [kernel("sgemm", gpu="k80")], False),
        (KERNEL, [kernel("winograd3x3Kernel")], None),
        (LARGEST, calls(a=5, b=4, c=3), True),
        (LARGEST, calls(a=5, b=4, c=3, d=9), False),
        (BOTH, [observation(1, model="a"), observation(2, model="b")], True),
        (BOTH, [observation(1, model="a"), observation(99, model="b")], False),
        (BOTH, [observation(1, model="a")], None),
    ],
)  # fmt: skip
def test_a_predicate_holds_fails_or_is_undecided(predicate, observations, holds):
    assert answer_to(predicate, *observations).holds is holds


def test_one_failing_case_is_enough():
    for_all = BATCH | {"for_all": {"model": ["a", "b", "c"]}}
    assert answer_to(for_all, *batches(10, 20, model="a"), *batches(20, 10, model="b")).holds is False


def test_curves_share_runs_on_one_node_and_the_fastest_network_is_the_default():
    one = observation(100, gpus=1, nodes=1)
    ib, eth = (observation(value, gpus=2, nodes=2, network=name) for value, name in ((190, "ib"), (60, "eth")))
    known = [{"id": "ib", "name": "InfiniBand", "gbit_s": 100}, {"id": "eth", "name": "Ethernet", "gbit_s": 10}]
    assert answer_to(RISING, one, ib, eth, wires=known).holds is True
    assert answer_to(RISING | {"for_all": {"network": "eth"}}, one, ib, eth, wires=known).holds is None


@given(st.lists(st.floats(1.06, 10), min_size=2, max_size=6))
def test_a_rising_series_holds_and_its_reverse_fails(steps):
    """Each level is at least 6 % above the previous one: up to 5 % counts as equal."""
    rising = list(itertools.accumulate(steps, operator.mul))
    assert answer_to(RISING, *rates(*enumerate(rising, start=1))).holds is True
    assert answer_to(RISING, *rates(*enumerate(reversed(rising), start=1))).holds is False


def test_a_cpu_that_stands_for_a_gpu_is_not_compared_with_a_cpu():
    faster = {"type": "compare", "lhs": {"build": "nv"}, "op": ">", "rhs": {"build": "intel", "device": "cpu"}}
    own = observation(90, build="intel", gpus=0, device="cpu")
    reference = own.model_copy(update={"where": own.where.model_copy(update={"device": "cpu"})})
    answer = answer_to(faster, reference, observation(500, build="nv", gpus=1, device="cpu"), device="cpu")
    assert (answer.holds, answer.why) == (None, "a GPU is to be held against a CPU, and here is only Example")
    assert answer_to(faster, reference, observation(500, build="nv", gpus=1)).holds is True


def test_no_difference_is_tested_for_each_call_separately():
    alike = {"type": "no_difference", "metric": "memory_api_time_shares", "over": ["model"]}
    of = {"metric": "memory_api_time_shares", "unit": "%", "half": 1}
    own = (("free", "a", 10), ("free", "b", 10), ("alloc", "a", 50), ("alloc", "b", 90))
    answer = answer_to(alike, *(seen(value, name=name, model=model, **of) for name, model, value in own))
    assert answer.holds is False
    assert answer.why.startswith("alloc: a and b are 57% apart")


def test_a_finding_about_all_gpus_applies_here_and_one_about_some_does_not():
    runs = (BLOCK.model_copy(update={"models": ("resnet50",), "gpu": ("v100", "k80")}),)
    here = [observation(value, batch=batch) for value, batch in ((10, 4), (20, 8))]
    rises = {"type": "monotonic", "over": "batch", "direction": "increasing"}
    every = answer_to(rises | {"for_all": {"gpu": ["v100", "k80"]}}, *here, runs=runs)
    assert every.holds is True
    assert every.why.endswith("(on Example in place of V100 and k80)")
    assert answer_to(rises | {"for_all": {"gpu": "k80"}}, *here, runs=runs).why == "no k80 here, but Example"


STUDIES = ("cern-wgan", "dell-p100", "nyu-profiling", "tbd-analysis", "uw-hardware")
SOURCES = {one.id: one for one in published.load_all() if one.findings}


@pytest.mark.parametrize("name", SOURCES)
def test_a_sources_printed_figures_support_its_findings(name):
    """Text and tables of a source were copied independently; they must agree."""
    own = SOURCES[name]
    against = [judged(finding, printed(own)) for finding in own.findings]
    assert all(map(is_decided, against))
    declared = {figure for each in own.contradictions for figure in each.figures}
    failed = [one.finding.id for one in against if one.verdict == "does not hold" and one.finding.id not in declared]
    assert failed == []


def test_enough_findings_can_be_tested_on_printed_figures():
    verdicts = [judged(f, printed(SOURCES[name])).verdict for name in SOURCES for f in SOURCES[name].findings]
    assert verdicts.count("holds") >= 48


def is_decided(judgement):
    assert judgement.verdict in {"holds", "does not hold", "undecided", "not testable here", *INDICATED.values()}
    assert (judgement.verdict in INDICATED.values()) == bool(judgement.doubts)
    assert judgement.why
    return True


@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_every_finding_can_be_tested_on_a_whole_study(study, device):
    gpus = {"device": "gpu", "devices": (8,), "device_name": "NVIDIA H200"}
    reproduction = studied.reproduced(study, studied.machine(**gpus if device == "gpu" else {}), repeats=1)
    assert all(map(is_decided, reproduction.judgements))
    assert all((one.verdict == "not testable here") is not bool(one.runs) for one in reproduction.judgements)
    known = {run for one in reproduction.cells for run in one.runs}
    assert {run for judgement in reproduction.judgements for run in judgement.runs} <= known


def test_profiles_of_a_study_decide_its_findings():
    """Launches take 95 % of the calls below batch 64 and 60 % at 64, broadcasts 53 % of the time at batch 4 and less with each step up.

    A profiling pass runs once, so that its verdicts are only indicated.
    """
    here = studied.machine(device="gpu", devices=(2,), device_name="NVIDIA H200")
    verdicts = {one.finding.id: one.verdict for one in studied.reproduced("nyu-profiling", here).judgements}
    held = {name for name, verdict in verdicts.items() if verdict == "indicated"}
    assert held == {
        "nyu.broadcast_falls_with_batch",
        "nyu.broadcast_small_batch_half",
        "nyu.launch_dominates",
        "nyu.launch_drops_at_64",
        "nyu.maxpool_backward_rises",
        "nyu.small_batch_memory_bound",
        "nyu.alloc_invariant",
    }
    assert verdicts["nyu.broadcast_alexnet_differs"] == "not indicated"
    assert verdicts["nyu.winograd_k80_hump"] == "not testable here"
    on_cpu = {one.finding.id: one.verdict for one in studied.reproduced("nyu-profiling", studied.machine()).judgements}
    assert {name for name, verdict in on_cpu.items() if verdict == "indicated"} == {"nyu.maxpool_backward_rises"}


def verdict_on(name, *observations):
    """The verdict on a finding of the source about hardware, by these observations only."""
    uw = next(one for one in published.load_all() if one.id == "uwmadison-comparing-ml-hardware")
    finding = next(one for one in uw.findings if one.id == name)
    return judged(
        finding, Evidence(published=uw, observations=observations, device="gpu", device_name="Example")
    ).verdict


def test_findings_are_tested_under_the_conditions_of_their_sentences():
    """One GPU, which has nothing to broadcast, decided that small batches are not bound by the broadcast; power at one batch was compared
    with power at another; two GPUs decided which of four is busiest."""
    alone = studied.reproduced("nyu-profiling", studied.machine(device="gpu", devices=(1,), device_name="NVIDIA H200"))
    bound = next(one for one in alone.judgements if one.finding.id == "nyu.small_batch_memory_bound")
    assert bound.verdict == "not testable here"

    power = {"metric": "power_avg", "unit": "W", "mode": "training", "gpus": 1}
    small, large = (
        observation(300, model="resnet50", batch=256, **power),
        observation(400, model="vgg16", batch=64, **power),
    )
    assert verdict_on("uw.power.model_size", small, large) == "not testable here"

    def busy(gpus):
        own = {"metric": "gpu_utilisation_avg", "unit": "%", "model": "vgg16", "gpus": gpus}
        return [observation(90 - 10 * index, gpu_index=index, **own) for index in range(1, gpus + 1)]

    assert verdict_on("uw.multi.first_gpu_busier", *busy(4)) == "indicated"
    falling = [one.model_copy(update={"value": 100 - one.value}) for one in busy(2)]
    assert verdict_on("uw.multi.first_gpu_busier", *falling) == "not testable here"


def test_findings_on_degraded_runs_are_indicated_and_on_invalid_ones_untestable():
    """Findings on degraded runs, and on runs of two windows, were judged like any others."""
    study, source, found = studied.study_runs(
        "tbd-analysis", studied.machine(device="gpu", devices=(4,), gpu="titanxp")
    )

    def verdicts(status):
        """Set this validity on one of the three runs of each cell."""
        runs = []
        for cell in found:
            first = [
                one.model_copy(update={"validity": Validity(status=status, reasons=("made up",))})
                for one in cell.runs[:1]
            ]
            runs.append(cell.model_copy(update={"runs": (*first, *cell.runs[1:])}))
        made = judge(study, published=source, runs=runs, machine=studied.machine(), scale="full", made_at=studied.NOW)
        return {one.finding.id: (one.verdict, one.doubts) for one in made.judgements}

    finding = "tbd.single_machine_scales"
    assert verdicts("valid")[finding] == ("holds", ())
    assert verdicts("degraded")[finding] == ("indicated", ("degraded runs",))
    assert verdicts("invalid")[finding] == ("indicated", ("2 runs",))
