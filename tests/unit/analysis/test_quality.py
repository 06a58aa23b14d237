"""Prevents: an accuracy that is the mean of ranks' shares of other sizes, a loss that hides one that is not finite, an epoch that one
rank never ended, a cost of a precision with the wrong sign, and a latency that is the time between two answers of a device kept busy.

Prevents: a job that learns nothing passing for a training job, and a sound one being refused.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from says import says

from runner.analysis.grading import measure as quality
from runner.analysis.grading.measure import measure, phases
from runner.analysis.grading.validity import cache_faults, check_losses
from runner.core.events import (
    Accuracy,
    BatchUsed,
    CacheCheck,
    Epoch,
    Generation,
    Latency,
    Phase,
    RunStop,
    Validated,
    WarmupEnd,
    Window,
)
from runner.core.measurement import BatchUsed as BatchFigures
from runner.core.workload import RealBand, SanityBand, SyntheticBand


def epoch(number, rank, *, correct, samples, loss_sum, seconds=2.0, train_loss=1.0):
    validation = Validated(samples=samples, loss_sum=loss_sum, correct=correct)
    trained = {"iterations": 5, "seconds": seconds, "train_loss": train_loss}
    return says(Epoch, rank=rank, epoch=number, validation=validation, **trained)


def test_an_epoch_is_that_of_all_ranks_by_their_samples():
    events = [
        epoch(1, 0, correct=3, samples=10, loss_sum=20.0, seconds=2.0, train_loss=2.0),
        epoch(1, 1, correct=5, samples=6, loss_sum=4.0, seconds=3.0, train_loss=1.0),
        epoch(2, 0, correct=8, samples=10, loss_sum=5.0, seconds=2.5),
        epoch(2, 1, correct=4, samples=6, loss_sum=3.0, seconds=1.5),
    ]
    first, second = quality.epochs(events)
    assert first.accuracy_percent == 100 * 8 / 16
    assert first.val_loss == 24 / 16
    assert first.train_loss == 1.5
    assert (first.seconds, first.elapsed_s) == (3.0, 3.0)
    assert second.accuracy_percent == 75
    assert (second.seconds, second.elapsed_s, second.validation_samples) == (2.5, 5.5, 16)


def test_an_epoch_that_a_rank_did_not_end_is_not_there():
    events = [epoch(1, 0, correct=1, samples=2, loss_sum=1.0), epoch(1, 1, correct=1, samples=2, loss_sum=1.0)]
    events.append(epoch(2, 0, correct=2, samples=2, loss_sum=1.0))
    assert [found.epoch for found in quality.epochs(events)] == [1]
    assert quality.epochs([]) == ()
    (found,) = quality.epochs([epoch(1, 0, correct=1, samples=2, loss_sum=None, train_loss=float("nan"))])
    assert (found.val_loss, found.train_loss) == (None, None)  # a loss that is not finite is no loss


def accuracy(**changes):
    told = {"samples": 200, "correct": 90, "reference": "fp32", "reference_correct": 100, "agree": 150}
    return says(Accuracy, precision="int8", fit_iterations=40, **(told | changes))


def test_what_a_precision_costs_is_negative_where_it_loses():
    found = quality.accuracy([accuracy()])
    assert (found.percent, found.reference_percent, found.agree_percent) == (45, 50, 75)
    assert found.difference == -5
    assert quality.accuracy([accuracy(samples=0, correct=0, reference_correct=0, agree=0)]) is None
    assert quality.accuracy([]) is None


def test_a_batch_says_what_became_of_it():
    told = says(BatchUsed, asked=10000, used=512, reason="10000 images take 61 GiB")
    found = measure([told], started=0.0, unit="images/s").batch
    assert found == BatchFigures(asked=10000, used=512, reason="10000 images take 61 GiB")


def window(*step_seconds):
    times = {"start": 0.0, "seconds": sum(step_seconds), "step_seconds": step_seconds}
    return says(Window, index=0, iterations=len(step_seconds), samples=8, **times)


def lone(with_transfer, without_transfer, *, in_flight=4):
    seconds = {"with_transfer": with_transfer, "without_transfer": without_transfer}
    return says(Latency, in_flight=in_flight, batch=8, **seconds)


def test_latencies_are_percentiles_of_batches_by_themselves():
    # Of 1 to 11 s in any order: p50 is the 6th, p90 the 10th, p99 nine tenths of the way from the 10th to the 11th.
    seconds = (11.0, 2.0, 9.0, 4.0, 7.0, 6.0, 5.0, 8.0, 3.0, 10.0, 1.0)
    found = measure([window(0.5, 0.5), lone(seconds, (0.25, 0.75))], started=0.0, unit="images/s", mode="infer")
    whole, without = found.latency.with_transfer, found.latency.without_transfer
    assert (whole.p50, whole.p90, whole.p99, whole.repeats) == (6.0, 10.0, pytest.approx(10.9), 11)
    assert (without.p50, without.p90, without.p99, without.repeats) == pytest.approx((0.5, 0.7, 0.745, 2))
    assert found.in_flight == 4
    assert (found.step_time_s.p50, found.step_time_s.method) == (0.5, "step")


def test_programs_that_waited_for_each_batch_had_their_latencies_in_their_windows():
    """Records on file say so in their steps, and go on to."""
    found = measure([window(0.2, 0.4), window(0.3, 0.3)], started=0.0, unit="images/s", mode="infer")
    assert (found.in_flight, found.step_time_s.method) == (1, "latency")
    assert (found.latency.with_transfer.p50, found.latency.with_transfer.repeats) == (pytest.approx(0.3), 4)
    assert found.latency.without_transfer is None
    trained = measure([window(0.2, 0.4)], started=0.0, unit="images/s")
    assert (trained.latency, trained.step_time_s.method) == (None, "step")


def test_a_batch_by_itself_is_no_part_of_the_measured_phase():
    told = [
        says(WarmupEnd, iterations=1, t=10.0),
        says(Phase, name="latency", seconds=4.0, t=34.0),
        says(RunStop, iterations=1, samples=8, t=34.5),
    ]
    assert phases(told)["measure"] == 20.5


def generated(batch, first_token_s, *step_s):
    told = {"prompt_tokens": 96, "new_tokens": 4, "first_token_s": first_token_s, "step_s": step_s}
    return says(Generation, batch=batch, **told)


def test_prompts_and_tokens_are_timed_by_batch_and_their_rates_are_amounts_by_time():
    """The steps of a batch may come in several events, and a batch may have been answered often."""
    told = [generated(2, 0.5, 0.1, 0.2), generated(2, None, 0.3), generated(2, 0.3, 0.1, 0.1, 0.2), generated(1, 0.25)]
    one, two = measure(told, started=0.0, unit="tokens/s", mode="infer").generation
    assert (one.batch, one.step, one.decode_tokens_per_s) == (1, None, None)
    assert one.prefill_tokens_per_s == 96 / 0.25
    assert (two.batch, two.first_token.p50, two.first_token.repeats) == (2, 0.4, 2)
    assert (two.step.p50, two.step.repeats) == (pytest.approx(0.15), 6)
    assert two.prefill_tokens_per_s == pytest.approx(2 * 2 * 96 / 0.8)
    assert two.decode_tokens_per_s == pytest.approx(2 * 6 / 1.0)


@pytest.mark.parametrize(
    ("precision", "difference", "reason"),
    [
        ("fp32", 1e-6, None),
        ("bf16", 0.05, None),
        ("fp32", 0.05, "differ by 0.05 of the largest"),
        ("bf16", None, "no number"),
    ],
)
def test_scores_by_kept_keys_and_values_are_those_of_the_whole_sequence(precision, difference, reason):
    told = [generated(2, 0.5, 0.1), says(CacheCheck, difference=difference)]
    found = measure(told, started=0.0, unit="tokens/s", mode="infer")
    faults = list(cache_faults(found, precision))
    assert [reason in fault for fault in faults] == [True] * (reason is not None)


BAND = SanityBand(
    synthetic=SyntheticBand(first_loss_factors=(0.8, 2.0)), real=RealBand(compared_share=0.25, minimum_iterations=8)
)


DATA = ("synthetic", "/data")


def check(losses, data):
    return list(check_losses(losses, data=data, num_classes=1000, band=BAND))


@pytest.mark.parametrize(
    ("losses", "data", "fault"),
    [
        *(
            ([6.9, 5.0, bad, 4.0], data, "is not finite at iteration 2")
            for bad in (math.nan, math.inf)
            for data in DATA
        ),
        # An untrained network guesses each class alike: ln(1000) = 6.9078 nats, 0.8 to 2 times of it. It need not learn from noise.
        *(([first, *[99.0] * 40], "synthetic", None) for first in (6.9, 5.53, 13.81)),
        *(([first, 99.0], "synthetic", "between 5.526 and 13.82") for first in (5.52, 13.82, 0.0)),
        # From the first quarter to the last; seven are too noisy to judge.
        ([3, 3, 9, 9, 9, 9, 2, 2], "/data", None),
        ([2, 2, 1, 1, 1, 1, 3, 3], "/data", "does not go down: 2 over the first 2 iterations, 3 over the last 2"),
        ([2.0] * 8, "/data", "does not go down"),
        ([1, 2, 3, 4, 5, 6, 7], "/data", None),
        ([], "/data", "no loss was reported"),
    ],
)
def test_a_curve_that_no_training_has_is_a_fault(losses, data, fault):
    assert [fault in found for found in check(losses, data)] == ([True] if fault else [])


@given(st.lists(st.floats(0, 10), min_size=8, max_size=60).filter(lambda losses: len(set(losses)) > 1))
def test_a_curve_and_its_reverse_do_not_both_fall(losses):
    assert check(losses, "/data") or check(losses[::-1], "/data")


def test_a_band_without_sense_is_refused():
    with pytest.raises(ValueError, match=r"less than or equal to 0\.5"):
        RealBand(compared_share=0.6, minimum_iterations=8)
