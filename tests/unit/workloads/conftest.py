"""Training programs run outside the package, each with its own folder on the path; so do their tests."""

import sys
from pathlib import Path

import pytest
from sampled import Sampled

WORKLOADS = Path(__file__).resolve().parents[3] / "workloads"
sys.path[:0] = [str(WORKLOADS), str(WORKLOADS / "imagenet_cnn"), str(WORKLOADS / "deepspeech2")]


@pytest.fixture
def sampled():
    """Start samplers; kill them all at the end of the test."""
    started = []

    def start(*options, **more):
        started.append(Sampled(*options, **more))
        return started[-1]

    yield start
    for sampler in started:
        sampler.kill()
