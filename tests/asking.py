"""Predicates asked of made-up observations."""

from __future__ import annotations

from made_up_source import source
from pydantic import TypeAdapter

from runner.experiments.studies.evidence import Evidence
from runner.experiments.studies.predicates import answered
from runner.results.published.findings import Predicate
from runner.results.published.model import Runs

BLOCK = Runs(framework="pytorch", mode="training")


def evidence(*observations, device="gpu", runs=(), **hardware):
    """What a source with one kind of GPU, `v100`, would see in these."""
    made_up = source(findings=(), **hardware).model_copy(update={"runs": runs})
    return Evidence(published=made_up, observations=observations, device=device, device_name="Example")


def ask(predicate, *observations, **more):
    """The answer to a predicate as a file has it; its metric is the throughput unless it names another."""
    parsed = TypeAdapter(Predicate).validate_python({"metric": "throughput"} | predicate)
    return answered(parsed, evidence(*observations, **more))
