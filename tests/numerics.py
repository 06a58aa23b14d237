"""The numerics of a strategy: however the samples are divided, the losses are those of one device."""

import json

import pytest

ITERATIONS, WARMUP, GLOBAL_BATCH = 20, 2, 8
# LeNet has no batch normalization, which sees only a rank's own batch, and no dropout, which draws each rank's own numbers.
TRAINING = (
    *("--device=cpu", "--model=lenet", "--image-size=32", "--scaling=strong", "--repeat=1"),
    *(f"--batch={GLOBAL_BATCH}", f"--iterations={ITERATIONS}", f"--warmup={WARMUP}"),
)
# fp32 sums in another order; losses of ranks that never communicate would differ by more than half.
TOLERANCE = 1e-3


def events(ended, scale, name):
    """Events with this name in the run on `scale` CPU workers, by rank."""
    (directory,) = (path.parent for path in ended.out.glob(f"*-{scale}cpu*-r1/record.json"))
    found = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    return sorted((event for event in found if event["event"] == name), key=lambda event: event["rank"])


def check_shared_losses(record, *, devices, synchronous=True):
    """All devices have the same loss on one batch, before and after the measured windows."""
    evaluations = record.measurement.evaluations.values()
    for number, iteration in enumerate((WARMUP, WARMUP + ITERATIONS)):
        assert {own[number].iteration for own in evaluations} == {iteration}
        losses = [loss for own in evaluations for loss in own[number].losses]
        assert len(losses) == devices
        if synchronous:
            assert losses == pytest.approx([losses[0]] * devices, rel=1e-6)


def check_losses(alone, together, *, synchronous=True):
    """The mean of the ranks' losses equals one device's loss on the same samples."""
    (one,) = alone.measurement.losses.values()
    many = [sum(step) / len(step) for step in zip(*together.measurement.losses.values(), strict=True)]
    assert len(one) == len(many) == WARMUP + ITERATIONS
    assert one[-1] < 0.5 * one[0], "a curve this flat would prove nothing"
    if synchronous:
        assert many == pytest.approx(one, rel=TOLERANCE)
    else:
        assert many[0] == pytest.approx(one[0], rel=TOLERANCE)  # the same samples and weights, before the first update
        assert many != pytest.approx(one, rel=TOLERANCE)
