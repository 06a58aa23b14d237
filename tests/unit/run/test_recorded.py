"""A run on file that is taken for one that is not the same, or a cut matrix that starts again from its beginning."""

import examples
import pytest
from records import record

from runner.core.record import ImageUsed
from runner.results.store import write_record
from runner.run.trial_runner import RecordedRuns

IMAGE = ImageUsed(reference="dlscale/mxnet:1.9.1", id="sha256:1", digest=None, lock_sha256="a" * 64)


def leave(out, **changes):
    made = record(**changes)
    (out / made.run_id).mkdir()
    write_record(out / made.run_id, made)
    return made


def test_the_newest_run_of_an_equal_trial_in_the_same_image_counts(tmp_path):
    leave(tmp_path, run_id="20260101T000000Z-aaaa")
    newer = leave(tmp_path, run_id="20260102T000000Z-aaaa")
    found = RecordedRuns(tmp_path).find(examples.trial(), IMAGE)
    assert found == (tmp_path / newer.run_id, newer)


@pytest.mark.parametrize(
    "changes",
    [
        {"repeat": 2},
        {"world_size": 2},
        {"batch_per_device": 16},
        {"link": {"rate_mbit": 1000.0, "emulated": True}},
        {"strategy": "kvstore"},
        {"profile": {"kind": "kernels", "after": None, "iterations": 5, "region": None}},
        {"concurrent": {"trainings": 2, "case": "together", "number": 1}},
        {"key": "f" * 16},
    ],
)
def test_a_run_of_another_trial_does_not(tmp_path, changes):
    leave(tmp_path, trial=examples.trial())
    assert RecordedRuns(tmp_path).find(examples.trial(**changes), IMAGE) is None


def test_a_run_in_another_image_does_not(tmp_path):
    leave(tmp_path)
    memory = RecordedRuns(tmp_path)
    assert memory.find(examples.trial(), IMAGE.model_copy(update={"id": "sha256:2"})) is None
    assert memory.find(examples.trial(), IMAGE.model_copy(update={"lock_sha256": "b" * 64})) is None


def test_an_invalid_run_is_tried_again_and_a_degraded_one_is_not(tmp_path):
    leave(tmp_path, run_id="invalid", status="invalid")
    assert RecordedRuns(tmp_path).find(examples.trial(), IMAGE) is None
    leave(tmp_path, run_id="degraded", status="degraded")
    assert RecordedRuns(tmp_path).find(examples.trial(), IMAGE)[1].run_id == "degraded"


def test_a_cut_matrix_goes_on_though_its_length_followed_the_rate_and_its_nodes_are_others_now(tmp_path):
    def placed(*nodes, kind="ethernet"):
        wires = [examples.wire(number, kind=kind) for number in range(1, 3)]
        return [{"node": node, "devices": 1, "wire": wire} for node, wire in zip(nodes, wires, strict=True)]

    planned = {"world_size": 2, "nodes": 2, "measure_s": 12.0, "epochs": 0.5}
    leave(
        tmp_path,
        trial=examples.trial(**planned | {"iterations": 70, "window": 7, "epochs": 35.0}, placement=placed("n1", "n2")),
    )
    runs = RecordedRuns(tmp_path)
    asked = planned | {"iterations": 0, "window": 0}
    assert runs.find(examples.trial(**asked, placement=placed("n3", "n4")), IMAGE) is not None
    assert runs.find(examples.trial(**asked, placement=placed("n3", "n4", kind="infiniband")), IMAGE) is None
    assert runs.find(examples.trial(**asked | {"measure_s": 30.0}, placement=placed("n3", "n4")), IMAGE) is None
