"""A source's findings against observations.

Prevents: a comparison that holds by noise; a trend claimed from one level; one GPU held against another because a finding forgot to name it;
a CPU that stands for a GPU held against a CPU; a finding of one GPU tested on another; a case that fails hidden among those that hold; days
compared with seconds; a run too short to be steady called steady.
"""

from __future__ import annotations

import itertools
import operator
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_source import source
from pydantic import TypeAdapter
from studied import observation

from runner.experiments.studies.evidence import Evidence
from runner.experiments.studies.predicates import answered
from runner.results.published.findings import Predicate
from runner.results.published.model import Runs

BLOCK = Runs(framework="pytorch", mode="training")


def ask(predicate, *observations, device="gpu", runs=(), **hardware):
    """The answer to a predicate as a file has it, of a source with one kind of GPU, `v100`; of the throughput unless it names another metric."""
    metric = {} if predicate["type"] == "all" else {"metric": "throughput"}
    parsed = TypeAdapter(Predicate).validate_python(metric | predicate)
    made_up = source(findings=(), **hardware).model_copy(update={"runs": runs})
    return answered(
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


class TestMonotonic:
    def test_rises(self):
        answer = ask(RISING, *rates((4, 390), (1, 100), (2, 195)))
        assert answer.holds is True
        assert answer.why == "gpus 1, 2, 4: 100, 195, 390 images/s"
        assert answer.runs == ("run-100", "run-195", "run-390")

    @pytest.mark.parametrize(
        ("changes", "observations", "holds", "told"),
        [
            ({}, rates((1, 100), (2, 90), (4, 390)), False, "wrong way from 1 to 2"),
            ({}, rates((1, 100), (2, 198), (4, 195), half=4), True, ""),  # a step back within noise
            ({}, rates((1, 100), (2, 102), half=4), False, "(within noise)"),
            ({"direction": "decreasing"}, rates((1, 100), (2, 90)), True, ""),
            ({"direction": "decreasing"}, rates((1, 100), (2, 190)), False, ""),
            ({"levels": LEVELS}, rates((1, 100), (2, 190), (3, 50)), True, "(2 of 6 levels)"),
            ({"levels": LEVELS}, rates((1, 100), (3, 50)), None, ""),
        ],
    )
    def test_a_direction_is_told_by_the_steps_and_the_ends_beyond_noise(self, changes, observations, holds, told):
        answer = ask(RISING | changes, *observations)
        assert answer.holds is holds
        assert answer.why.endswith(told)

    def test_each_curve_by_itself(self):
        answer = ask(RISING, *rates((1, 100), (2, 190), model="a"), *rates((1, 300), (2, 200), model="b"))
        assert answer.holds is False
        told = "b: gpus 1, 2: 300, 200 images/s, wrong way from 1 to 2; but a: gpus 1, 2: 100, 190 images/s"
        assert answer.why == told

    def test_curves_over_two_networks_share_their_one_node(self):
        one = observation(100, gpus=1, nodes=1)
        ib, eth = (observation(value, gpus=2, nodes=2, network=name) for value, name in ((190, "ib"), (60, "eth")))
        wires = [{"id": "ib", "name": "InfiniBand", "gbit_s": 100}, {"id": "eth", "name": "Ethernet", "gbit_s": 10}]
        # A finding that names no network is of the fastest one.
        assert ask(RISING, one, ib, eth, wires=wires).holds is True
        assert ask(RISING | {"for_all": {"network": "eth"}}, one, ib, eth, wires=wires).holds is None

    def test_names_come_in_the_order_of_the_levels(self):
        larger = {"type": "monotonic", "metric": "power_avg", "over": "model_size", "direction": "increasing"}
        of = {"metric": "power_avg", "unit": "W"}
        power = [observation(300, model="a", **of), observation(200, model="z", **of)]
        assert ask(larger | {"levels": ["z", "a"]}, *power).holds is True

    @given(st.lists(st.floats(1.06, 10), min_size=2, max_size=6))
    def test_a_rising_series_holds_and_its_reverse_fails(self, steps):
        """Each level is at least 6 % above the one before: 5 % apart is as good as the same."""
        rising = list(itertools.accumulate(steps, operator.mul))
        assert ask(RISING, *rates(*enumerate(rising, start=1))).holds is True
        assert ask(RISING, *rates(*enumerate(reversed(rising), start=1))).holds is False


class TestCompare:
    LARGER: ClassVar = {"type": "compare", "lhs": {"batch": 256}, "op": ">", "rhs": {"batch": 64}}

    @pytest.mark.parametrize(
        ("op", "left", "holds"),
        [
            (">", 106, True),
            (">", 104, False),
            (">", 90, False),
            ("<", 94, True),
            ("<", 96, False),
            (">=", 104, True),
            (">=", 96, True),
            (">=", 90, False),
            ("<=", 104, True),
            ("<=", 110, False),
        ],
    )
    def test_intervals_decide(self, op, left, holds):
        # Half-widths 3 and 4 make 5 for the difference to 100.
        own = [observation(left, batch=256, ci95=(left - 3, left + 3)), observation(100, batch=64, ci95=(96, 104))]
        assert ask(self.LARGER | {"op": op}, *own).holds is holds

    def test_noise_is_said(self):
        own = [observation(104, batch=256, ci95=(101, 107)), observation(100, batch=64, ci95=(96, 104))]
        assert ask(self.LARGER, *own).why == "batch 256: 104 ± 3 images/s against 100 ± 4 images/s (within noise)"

    def test_gpus_are_not_mixed_up(self):
        fast = [observation(900, batch=64, gpu="v100"), observation(1000, batch=256, gpu="v100")]
        slow = [observation(90, batch=64, gpu="k80"), observation(100, batch=256, gpu="k80")]
        answer = ask(self.LARGER, *fast, *slow)
        assert answer.holds is True
        assert (
            answer.why
            == "batch 256, v100: 1,000 images/s against 900 images/s; batch 256, k80: 100 images/s against 90 images/s"
        )
        alone = ask(self.LARGER, fast[1], slow[0])
        assert alone.holds is None
        assert "under otherwise the same conditions" in alone.why

    def test_what_changes_with_it_may_differ(self):
        wide = {"type": "compare", "lhs": {"gpus": 2}, "op": ">", "rhs": {"gpus": 1}}
        assert ask(wide, observation(2, gpus=2, global_batch=64), observation(1, gpus=1, global_batch=32)).holds is True

    def test_the_same_has_to_be_the_same(self):
        same = {"type": "compare", "lhs": {"nodes": 1}, "op": "<=", "rhs": {"nodes_above": 1}, "same": ["gpus"]}
        four = observation(390, gpus=4, nodes=1)
        assert ask(same, four, observation(400, gpus=4, nodes=2), observation(10, gpus=2, nodes=2)).holds is True
        assert ask(same, four, observation(10, gpus=2, nodes=2)).holds is None

    def test_training_unless_said_otherwise_and_inference_if_there_is_nothing_else(self):
        training = [observation(10, batch=64, mode="training"), observation(20, batch=256, mode="training, 50 epochs")]
        inference = [observation(40, batch=64, mode="inference"), observation(30, batch=256, mode="infer")]
        assert ask(self.LARGER, *training, *inference).holds is True
        assert ask(self.LARGER, *inference).holds is False
        assert ask(self.LARGER | {"for_all": {"mode": "inference"}}, *training, *inference).holds is False

    def test_idle_is_a_state_of_its_own(self):
        power = {"metric": "power_avg", "unit": "W"}
        over = self.LARGER | {"metric": "power_avg", "lhs": {"state": "training"}, "rhs": {"state": "idle"}}
        assert ask(over, observation(200, **power), observation(20, state="idle", **power)).holds is True
        assert ask(over, observation(200, **power)).holds is None

    def test_an_epoch_is_asked_for_by_number(self):
        best = self.LARGER | {
            "metric": "accuracy",
            "lhs": {"batch": 256, "epoch": 50},
            "rhs": {"batch": 64, "epoch": 50},
        }
        of = {"metric": "accuracy", "unit": "%", "epoch": 3}
        points = [observation(9, batch=64, **of), observation(8, batch=256, **of)]
        answer = ask(best, *points)
        assert answer.holds is None
        assert answer.why == "no accuracy of batch 256, epoch 50 (3 epochs were trained)"

    def test_a_cpu_in_place_of_a_gpu_is_not_held_against_a_cpu(self):
        faster = {"type": "compare", "lhs": {"build": "nv"}, "op": ">", "rhs": {"build": "intel", "device": "cpu"}}
        own = observation(90, build="intel", gpus=0, device="cpu")
        reference = own.model_copy(update={"where": own.where.model_copy(update={"device": "cpu"})})
        stand_in = observation(500, build="nv", gpus=1, device="cpu")
        answer = ask(faster, reference, stand_in, device="cpu")
        assert answer.holds is None
        assert answer.why == "a GPU is to be held against a CPU, and here is only Example"
        assert ask(faster, reference, observation(500, build="nv", gpus=1)).holds is True

    def test_cases_are_counted_one_by_one(self):
        for_all = self.LARGER | {"for_all": {"model": ["a", "b", "c"]}}
        own = [observation(10, batch=64, model="a"), observation(20, batch=256, model="a")]
        other = [observation(20, batch=64, model="b"), observation(10, batch=256, model="b")]
        assert ask(for_all, *own).why == (
            "a: batch 256: 20 images/s against 10 images/s; not told: b, c: no throughput"
        )
        assert ask(for_all, *own).holds is True
        assert ask(for_all, *own, *other).holds is False


class TestRatio:
    HALF: ClassVar = {
        "type": "ratio",
        "num": {"network": "eth"},
        "den": {"network": "ib"},
        "value": "0.5",
        "rel_tol": 0.2,
    }

    @pytest.mark.parametrize(("eth", "holds"), [(60, True), (61, False), (40, True), (39, False)])
    def test_the_tolerance_is_a_share_of_the_value(self, eth, holds):
        answer = ask(self.HALF, observation(eth, network="eth", nodes=2), observation(100, network="ib", nodes=2))
        assert answer.holds is holds

    @pytest.mark.parametrize(("of_ib", "shown"), [((100, 100), "0.5 ± 0.05"), (None, "0.5")], ids=["both", "one side"])
    def test_has_the_interval_of_both_sides_or_none(self, of_ib, shown):
        eth = observation(50, network="eth", nodes=2, ci95=(45, 55))
        answer = ask(self.HALF, eth, observation(100, network="ib", nodes=2, ci95=of_ib))
        assert answer.why == f"eth: {shown}, within 20% of 0.5"

    def test_the_nearest_run_is_the_other_side(self):
        wide = {"type": "ratio", "num": {"gpus": 4}, "den": {"gpus": 1}, "value": "4", "rel_tol": 0.1}
        own = [observation(400, gpus=4, batch_per_gpu=64), observation(100, gpus=1, batch_per_gpu=64)]
        other = observation(50, gpus=1, batch_per_gpu=32)
        assert ask(wide, *own, other).holds is True

    def test_nothing_can_not_be_divided_by(self):
        assert ask(self.HALF, observation(1, network="eth"), observation(0, network="ib")).holds is None


class TestAlongGpus:
    FOUR = ("v100", "p100", "k80")

    def on(self, *values, half=None):
        return [
            observation(value, gpu=name, ci95=(value - half, value + half) if half else None)
            for name, value in zip(self.FOUR, values, strict=False)
        ]

    def test_order(self):
        falls = {"type": "order", "over": "gpu", "descending": list(self.FOUR)}
        assert ask(falls, *self.on(30, 20, 10)).holds is True
        assert ask(falls, *self.on(30, 20, 25)).holds is False
        assert ask(falls, *self.on(30, 26, 10, half=4)).holds is False
        assert ask(falls, *self.on(30, 20)).why.endswith("(2 of 3 levels)")
        assert ask(falls, *self.on(30)).why == "no p100 and no k80 here, but Example"

    def test_differs(self):
        differs = {"type": "no_difference", "over": ["gpu"], "levels": ["v100", "p100"], "differs": True}
        assert ask(differs, *self.on(30, 20, half=1)).holds is True
        assert ask(differs, *self.on(30, 30.5, half=1)).holds is False
        assert ask(differs, *self.on(30, 20)).holds is None

    def test_no_difference(self):
        alike = {"type": "no_difference", "over": ["gpu"], "levels": ["v100", "p100"]}
        assert ask(alike, *self.on(30, 30.5, 10, half=1)).holds is True
        assert ask(alike, *self.on(30, 20, 10, half=1)).holds is False
        assert ask(alike, *self.on(30)).holds is None

    def test_counts_need_no_interval_to_differ(self):
        same = {"type": "no_difference", "metric": "samples_per_run", "over": ["gpus"]}
        count = {"metric": "samples_per_run", "unit": "images", "repeats": 3}
        assert ask(same, observation(1000, gpus=1, **count), observation(1040, gpus=2, **count)).holds is True
        assert ask(same, observation(1000, gpus=1, **count), observation(1200, gpus=2, **count)).holds is False

    def test_no_difference_of_each_call_by_itself(self):
        alike = {"type": "no_difference", "metric": "memory_api_time_shares", "over": ["model"]}
        share = {"metric": "memory_api_time_shares", "unit": "%"}
        calls = [
            observation(value, name=name, model=model, ci95=(value - 1, value + 1), **share)
            for name, model, value in (("free", "a", 10), ("free", "b", 10), ("alloc", "a", 50), ("alloc", "b", 90))
        ]
        answer = ask(alike, *calls)
        assert answer.holds is False
        assert answer.why.startswith("alloc: a and b are 57% apart")

    def test_a_finding_of_every_gpu_is_one_of_gpus_and_of_some_is_of_those(self):
        runs = (BLOCK.model_copy(update={"models": ("resnet50",), "gpu": ("v100", "k80")}),)
        here = [observation(value, batch=batch) for value, batch in ((10, 4), (20, 8))]
        rises = {"type": "monotonic", "over": "batch", "direction": "increasing"}
        every = ask(rises | {"for_all": {"gpu": ["v100", "k80"]}}, *here, runs=runs)
        assert every.holds is True
        assert every.why.endswith("(on Example in place of V100 and k80)")
        assert ask(rises | {"for_all": {"gpu": "k80"}}, *here, runs=runs).why == "no k80 here, but Example"


class TestBound:
    BELOW: ClassVar = {"type": "bound", "metric": "gpu_utilisation_avg", "op": "<", "value": 100, "unit": "%"}

    def util(self, value, half=None, **more):
        ci95 = (value - half, value + half) if half else None
        return observation(value, metric="gpu_utilisation_avg", unit="%", ci95=ci95, **more)

    @pytest.mark.parametrize(
        ("changes", "value", "half", "holds"),
        [
            ({}, 90, None, True),
            ({}, 99, 2, False),
            ({"op": "<="}, 101, 2, True),
            ({"op": ">="}, 97, 2, False),
            ({"op": ">"}, 103, 2, True),
            ({"op": "in", "value": [40, 60]}, 40, None, True),
            ({"op": "in", "value": [40, 60]}, 60.1, None, False),
        ],
    )
    def test_a_side_is_told_beyond_noise(self, changes, value, half, holds):
        assert ask(self.BELOW | changes, self.util(value, half)).holds is holds

    def test_one_run_beyond_is_enough_and_the_others_do_not_count(self):
        answer = ask(self.BELOW, self.util(90, model="a"), self.util(100, model="b"))
        assert answer.holds is False
        assert answer.why == "b: 100 %; but a: 90 %"
        only = self.BELOW | {"select": {"model": "a"}}
        assert ask(only, self.util(90, model="a"), self.util(100, model="b")).holds is True

    def test_units_are_converted(self):
        day = {"type": "bound", "metric": "full_training_time", "op": "<", "value": 86400, "unit": "s"}
        assert ask(day, observation(0.9, metric="full_training_time", unit="days")).holds is True
        assert ask(day, observation(1.1, metric="full_training_time", unit="days")).holds is False

    def test_a_speedup_of_one_device_is_nobodys_merit(self):
        well = {"type": "bound", "metric": "scaling_efficiency", "op": ">=", "value": 80, "unit": "%"}
        own = observation(100, metric="scaling_efficiency", unit="%", gpus=1, method="by definition")
        assert ask(well, own).holds is None


class TestSteady:
    def windows(self, *seconds, every=10, begin=0):
        return [
            observation(value, metric="iteration_time", unit="s", iterations=begin + every * (place + 1), model="a")
            for place, value in enumerate(seconds)
        ]

    def test_after_a_while(self):
        steady = {"type": "steady", "metric": "iteration_time"}
        assert ask(steady, *self.windows(9, 1, 1, 1, 1, 1)).holds is True
        assert ask(steady, *self.windows(1, 1.1, 1.2, 1.3, 1.4, 1.5)).holds is False
        assert ask(steady, *self.windows(1, 1, 1)).holds is None

    def test_after_so_many(self):
        steady = {"type": "steady", "metric": "iteration_time", "after_iterations": 300, "window": 5}
        assert ask(steady, *self.windows(*[9] * 30, *[1] * 6)).holds is True
        assert ask(steady, *self.windows(*[1] * 30, 1.5, *[1] * 7)).holds is False
        short = ask(steady, *self.windows(1, 1, 1, 1))
        assert short.holds is None
        assert short.why == "40 iterations were run, and it speaks of those after 300"


def test_a_kernel_is_looked_for_by_a_part_of_its_name_on_its_gpu():
    runs = {"type": "names", "metric": "kernel_time_share", "names": ["winograd3x3Kernel"], "for_all": {"gpu": "k80"}}
    kernel = {"metric": "kernel_time_share", "unit": "%"}
    found = observation(30, name="void cudnn::winograd3x3Kernel<float>", gpu="k80", batch=4, **kernel)
    other = observation(40, name="sgemm", gpu="k80", batch=8, **kernel)
    assert ask(runs, found, other).holds is True
    assert ask(runs, other).holds is False
    assert ask(runs, observation(30, name="winograd3x3Kernel", **kernel)).holds is None


def test_the_largest_go_by_size_in_any_order():
    top = {"type": "names", "metric": "memory_api_time_shares", "names": ["b", "a"], "largest": 2}
    of = {"metric": "memory_api_time_shares", "unit": "%"}
    calls = [observation(value, name=name, **of) for name, value in (("a", 5), ("b", 4), ("c", 3))]
    assert ask(top, *calls).holds is True
    assert ask(top, *calls, observation(9, name="d", **of)).holds is False


def test_all_needs_each_of_its_parts():
    low = {"type": "bound", "metric": "throughput", "op": "<", "value": 10, "unit": "images/s"}
    both = {"type": "all", "of": [low | {"select": {"model": "a"}}, low | {"select": {"model": "b"}}]}
    one, other, high = observation(1, model="a"), observation(2, model="b"), observation(99, model="b")
    assert ask(both, one, other).holds is True
    assert ask(both, one, high).holds is False
    assert ask(both, one).holds is None
