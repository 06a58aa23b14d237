"""Prevents: an accuracy averaged over ranks with different sample counts, a loss that hides a non-finite one, an epoch that a rank never
ended, an accuracy change of the wrong sign, and a latency that is the interval between answers of a busy device.

Prevents: a job that learns nothing passing for a training job, and a sound one being rejected.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_events import program_event

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
    return program_event(Epoch, rank=rank, epoch=number, validation=validation, **trained)


def test_an_epoch_weights_ranks_by_their_samples():
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


def test_an_epoch_unfinished_on_a_rank_is_left_out():
    events = [epoch(1, 0, correct=1, samples=2, loss_sum=1.0), epoch(1, 1, correct=1, samples=2, loss_sum=1.0)]
    events.append(epoch(2, 0, correct=2, samples=2, loss_sum=1.0))
    assert [found.epoch for found in quality.epochs(events)] == [1]
    assert quality.epochs([]) == ()
    (found,) = quality.epochs([epoch(1, 0, correct=1, samples=2, loss_sum=None, train_loss=float("nan"))])
    assert (found.val_loss, found.train_loss) == (None, None)  # a non-finite loss is no loss


def accuracy(**changes):
    told = {"samples": 200, "correct": 90, "reference": "fp32", "reference_correct": 100, "agree": 150}
    return program_event(Accuracy, precision="int8", fit_iterations=40, **(told | changes))


def test_the_accuracy_change_of_a_precision_is_negative_for_a_loss():
    found = quality.accuracy([accuracy()])
    assert (found.percent, found.reference_percent, found.agree_percent) == (45, 50, 75)
    assert found.difference == -5
    assert quality.accuracy([accuracy(samples=0, correct=0, reference_correct=0, agree=0)]) is None
    assert quality.accuracy([]) is None


def test_a_reduced_batch_keeps_its_reason():
    told = program_event(BatchUsed, asked=10000, used=512, reason="10000 images take 61 GiB")
    found = measure([told], started=0.0, unit="images/s").batch
    assert found == BatchFigures(asked=10000, used=512, reason="10000 images take 61 GiB")


def window(*step_seconds):
    times = {"start": 0.0, "seconds": sum(step_seconds), "step_seconds": step_seconds}
    return program_event(Window, index=0, iterations=len(step_seconds), samples=8, **times)


def lone(with_transfer, without_transfer, *, in_flight=4):
    seconds = {"with_transfer": with_transfer, "without_transfer": without_transfer}
    return program_event(Latency, in_flight=in_flight, batch=8, **seconds)


def test_latencies_are_percentiles_of_lone_batches():
    # Of 1 to 11 s in any order: p50 is the 6th, p90 the 10th. Eleven have no p99, and two no p90.
    seconds = (11.0, 2.0, 9.0, 4.0, 7.0, 6.0, 5.0, 8.0, 3.0, 10.0, 1.0)
    found = measure([window(0.5, 0.5), lone(seconds, (0.25, 0.75))], started=0.0, unit="images/s", mode="infer")
    whole, without = found.latency.with_transfer, found.latency.without_transfer
    assert (whole.p50, whole.p90, whole.p99, whole.repeats) == (6.0, 10.0, None, 11)
    assert (without.p50, without.p90, without.p99, without.repeats) == (0.5, None, None, 2)
    assert found.in_flight == 4
    assert (found.step_time_s.p50, found.step_time_s.method) == (0.5, "step")


def test_step_times_are_the_latencies_of_programs_that_waited_for_each_batch():
    """Older records have them as step times, and still do."""
    found = measure([window(0.2, 0.4), window(0.3, 0.3)], started=0.0, unit="images/s", mode="infer")
    assert (found.in_flight, found.step_time_s.method) == (1, "latency")
    assert (found.latency.with_transfer.p50, found.latency.with_transfer.repeats) == (pytest.approx(0.3), 4)
    assert found.latency.without_transfer is None
    trained = measure([window(0.2, 0.4)], started=0.0, unit="images/s")
    assert (trained.latency, trained.step_time_s.method) == (None, "step")


def test_timing_a_lone_batch_is_excluded_from_the_measured_phase():
    told = [
        program_event(WarmupEnd, iterations=1, t=10.0),
        program_event(Phase, name="latency", seconds=4.0, t=34.0),
        program_event(RunStop, iterations=1, samples=8, t=34.5),
    ]
    assert phases(told)["measure"] == 20.5


def generated(batch, first_token_s, *step_s):
    told = {"prompt_tokens": 96, "new_tokens": 4, "first_token_s": first_token_s, "step_s": step_s}
    return program_event(Generation, batch=batch, **told)


def test_generation_is_timed_by_batch_and_its_rates_are_pooled():
    """The steps of a batch may be spread over several events, and a batch may be answered several times."""
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
def test_scores_with_cached_keys_and_values_must_match_the_whole_sequence(precision, difference, reason):
    told = [generated(2, 0.5, 0.1), program_event(CacheCheck, difference=difference)]
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
        # An untrained network guesses uniformly: ln(1000) = 6.9078 nats, within a factor of 0.8 to 2. It need not learn from noise.
        *(([first, *[99.0] * 40], "synthetic", None) for first in (6.9, 5.53, 13.81)),
        *(([first, 99.0], "synthetic", "between 5.526 and 13.82") for first in (5.52, 13.82, 0.0)),
        # The first quarter against the last; seven losses are too noisy to judge.
        ([3, 3, 9, 9, 9, 9, 2, 2], "/data", None),
        ([2, 2, 1, 1, 1, 1, 3, 3], "/data", "does not go down: 2 over the first 2 iterations, 3 over the last 2"),
        ([2.0] * 8, "/data", "does not go down"),
        ([1, 2, 3, 4, 5, 6, 7], "/data", None),
        ([], "/data", "no loss was reported"),
    ],
)
def test_an_implausible_loss_curve_is_a_fault(losses, data, fault):
    assert [fault in found for found in check(losses, data)] == ([True] if fault else [])


@given(st.lists(st.floats(0, 10), min_size=8, max_size=60).filter(lambda losses: len(set(losses)) > 1))
def test_a_curve_and_its_reverse_do_not_both_fall(losses):
    assert check(losses, "/data") or check(losses[::-1], "/data")


def test_an_invalid_sanity_band_is_refused():
    with pytest.raises(ValueError, match=r"less than or equal to 0\.5"):
        RealBand(compared_share=0.6, minimum_iterations=8)
