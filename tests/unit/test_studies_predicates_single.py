"""Predicates on figures by themselves, and on what ran by name.

Prevents: a bound that holds by noise; days compared with seconds; a run too short to be steady called steady; a kernel of another GPU; a
product or a quotient of two different runs.
"""

from __future__ import annotations

from typing import ClassVar

from asking import ask, evidence
from pydantic import TypeAdapter
from studied import observation

from runner.experiments.studies.predicates import answered
from runner.results.published.findings import Predicate


class TestBound:
    BELOW: ClassVar = {"type": "bound", "metric": "gpu_utilisation_avg", "op": "<", "value": 100, "unit": "%"}

    def util(self, value, half=None, **more):
        ci95 = (value - half, value + half) if half else None
        return observation(value, metric="gpu_utilisation_avg", unit="%", ci95=ci95, **more)

    def test_below_beyond_noise(self):
        assert ask(self.BELOW, self.util(90)).holds is True
        assert ask(self.BELOW, self.util(99, 2)).holds is False
        assert ask(self.BELOW | {"op": "<="}, self.util(101, 2)).holds is True
        assert ask(self.BELOW | {"op": ">="}, self.util(97, 2)).holds is False
        assert ask(self.BELOW | {"op": ">"}, self.util(103, 2)).holds is True

    def test_between(self):
        between = self.BELOW | {"op": "in", "value": [40, 60]}
        assert ask(between, self.util(40)).holds is True
        assert ask(between, self.util(60.1)).holds is False

    def test_one_run_beyond_is_enough_and_the_others_do_not_count(self):
        answer = ask(self.BELOW, self.util(90, model="a"), self.util(100, model="b"))
        assert answer.holds is False
        assert answer.why == "b: 100 %; but a: 90 %"
        assert (
            ask(self.BELOW | {"select": {"model": "a"}}, self.util(90, model="a"), self.util(100, model="b")).holds
            is True
        )

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
    calls = [
        observation(value, metric="memory_api_time_shares", unit="%", name=name)
        for name, value in (("a", 5), ("b", 4), ("c", 3))
    ]
    assert ask(top, *calls).holds is True
    assert ask(top, *calls, observation(9, metric="memory_api_time_shares", unit="%", name="d")).holds is False


def test_all_needs_each_of_its_parts():
    low = {"type": "bound", "metric": "throughput", "op": "<", "value": 10, "unit": "images/s"}
    both = TypeAdapter(Predicate).validate_python(
        {"type": "all", "of": [low | {"select": {"model": "a"}}, low | {"select": {"model": "b"}}]}
    )
    one, other, high = observation(1, model="a"), observation(2, model="b"), observation(99, model="b")
    assert answered(both, evidence(one, other)).holds is True
    assert answered(both, evidence(one, high)).holds is False
    assert answered(both, evidence(one)).holds is None
