"""Prevents: a baseline of another training, against which every node is slow, or none."""

from __future__ import annotations

import examples
import pytest

from runner.core.dataset import Dataset
from runner.experiments.diagnose import in_words


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "resnet50"},
        {"image_shape": (3, 224, 224)},
        {"settings": {"sequence-length": 512}},
        {"batch_per_device": 64},
        {"precision": "bf16"},
        {"techniques": ("compile",)},
        {"cpus_per_worker": 2},
        {"world_size": 2, "strategy": "ddp"},
        {"dataset": Dataset(path="/data", images=10, classes=2, digest="abc")},
    ],
)
def test_a_diagnosis_names_what_changes_the_rate(changes):
    """A baseline at 224×224 was accepted for nodes that trained on 32×32."""
    assert in_words(examples.trial(**changes)) != in_words(examples.trial())


def test_repeats_and_the_node_are_no_other_training():
    other = {"repeat": 2, "placement": ({"node": "there", "devices": 1},), "threads": 2}
    assert in_words(examples.trial(**other)) == in_words(examples.trial())
