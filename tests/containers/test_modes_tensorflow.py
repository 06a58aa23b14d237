"""TensorFlow's newer workloads and its validation by several processes, through the whole suite.

Prevents: a strategy that averages only one of two networks, a validation that is divided among processes but never summed.
"""

import json

import pytest

pytestmark = pytest.mark.usefixtures("nothing_left")

TENSORFLOW = ("--framework=tensorflow", "--device=cpu", "--idle=0", "--repeat=1")


@pytest.mark.parametrize("strategy", ["multiworker", "horovod"])
def test_both_networks_of_a_gan_are_averaged(strategy, dlscale, tmp_path):
    words = ("--model=wgan-nobn", "--image-size=16", "--scaling=strong", "--batch=4", "--iterations=4", "--warmup=2")
    ended = dlscale("bench", *TENSORFLOW, *words, f"--strategy={strategy}", "--workers=1,2", out=tmp_path)
    assert ended.code == 0, ended.stderr
    one, two = (ended.record(scale) for scale in (1, 2))
    assert one.trial.settings == {"n-critic": 5, "clip": 0.01}
    norms = list(two.measurement.parameter_norms.values())
    assert len(norms) == 2
    assert norms[0] == norms[1]
    (alone,) = one.measurement.losses.values()
    together = [sum(step) / 2 for step in zip(*two.measurement.losses.values(), strict=True)]
    assert len(alone) == len(together) == 6
    assert alone[-1] > 2 * alone[0], "a curve this flat would prove nothing"
    assert together == pytest.approx(alone, rel=1e-3)
    for record in (one, two):
        (directory,) = tmp_path.glob(f"*{record.run_id}")
        lines = (directory / "events.jsonl").read_text(encoding="utf-8").splitlines()
        read = [event["units"] for event in map(json.loads, lines) if event["event"] == "window"]
        assert sum(read) == 4 * 5 * 4


def test_processes_divide_a_validation(dlscale, tmp_path):
    words = ("--model=mlp-512-reuters", "--mode=converge", "--epochs=2", "--batch=128", "--strategy=multiworker")
    ended = dlscale("bench", *TENSORFLOW, *words, "--workers=2", out=tmp_path, only="scaled")
    assert ended.code == 0, ended.stderr
    first, second = ended.record(2).measurement.epochs
    assert first.validation_samples == second.validation_samples == 2246
    assert second.accuracy_percent > 50
    assert second.val_loss < first.val_loss
    assert second.train_loss < first.train_loss
