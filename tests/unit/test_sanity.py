"""Prevents: a job that learns nothing passing for a training job, and a sound one being refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.analysis.grading.validity import check_losses
from runner.core.workload import RealBand, SanityBand, SyntheticBand

BAND = SanityBand(
    synthetic=SyntheticBand(first_loss_factors=(0.8, 2.0)), real=RealBand(compared_share=0.25, minimum_iterations=8)
)


def check(losses, data="synthetic", classes=1000):
    return list(check_losses(losses, data=data, num_classes=classes, band=BAND))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("data", ["synthetic", "/data"])
def test_a_loss_that_is_not_finite_is_named_by_its_iteration(bad, data):
    assert check([6.9, 5.0, bad, 4.0], data) == [
        "the loss is not finite at iteration 2; a smaller learning rate may train"
    ]


@pytest.mark.parametrize(
    ("first", "fine"),
    [(6.9, True), (5.53, True), (5.52, False), (13.81, True), (13.82, False), (0.0, False)],  # ln(1000) = 6.9078
)
def test_synthetic_training_starts_near_the_uniform_guess(first, fine):
    faults = check([first, 99.0])
    assert (faults == []) is fine
    if not fine:
        assert "between 5.526 and 13.82" in faults[0]


def test_real_losses_must_fall_from_the_first_quarter_to_the_last():
    assert check([3, 3, 9, 9, 9, 9, 2, 2], "/data") == []
    assert check([2, 2, 1, 1, 1, 1, 3, 3], "/data") == [
        "the loss does not go down: 2 over the first 2 iterations, 3 over the last 2"
    ]
    assert len(check([2.0] * 8, "/data")) == 1


def test_no_loss_is_a_fault_and_synthetic_or_few_real_losses_need_not_fall():
    assert check([]) == ["no loss was reported"]
    assert check([6.9] * 40) == []
    assert check([1, 2, 3, 4, 5, 6, 7], "/data") == []


@given(st.lists(st.floats(0, 10), min_size=8, max_size=60).filter(lambda losses: len(set(losses)) > 1))
def test_a_curve_and_its_reverse_do_not_both_fall(losses):
    assert check(losses, "/data") or check(losses[::-1], "/data")


def test_a_band_without_sense_is_refused():
    with pytest.raises(ValueError, match=r"less than or equal to 0\.5"):
        RealBand(compared_share=0.6, minimum_iterations=8)
