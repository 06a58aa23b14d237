"""Speedups of published figures.

Prevents: a speedup between runs that differ in more than scale; weak and strong scaling mixed in one curve; a machine's figures held
against another's; an efficiency above 100 % cut off; a speedup from a figure of a device that is taken for one of all.
"""

from __future__ import annotations

import pytest
from made_up_source import rate, source, table

from runner.results.published.derive import scaled


def curves(published):
    return {each.figure.id: (each.baseline.id, each.scaling, pytest.approx(each.speedup)) for each in scaled(published)}


@pytest.mark.parametrize(
    ("rates", "speedups"),
    [
        ({4: 380, 1: 100, 2: 198}, {"g4": (3.8, 95.0), "g1": (1.0, 100.0), "g2": (1.98, 99.0)}),
        ({1: 2897, 8: 23874}, {"g1": (1.0, 100.0), "g8": (8.2409389, 103.0117)}),  # more than the ideal is kept
        ({8: 800, 256: 23040}, {"g8": (1.0, 100.0), "g256": (28.8, 90.0)}),
    ],
)
def test_speedup_and_efficiency_are_against_the_fewest_devices(rates, speedups):
    found = scaled(source(table(*(rate(devices, value) for devices, value in rates.items()), batch_per_gpu=64)))
    assert {each.figure.id: (each.speedup, each.efficiency_percent) for each in found} == {
        name: pytest.approx(pair) for name, pair in speedups.items()
    }
    assert {each.baseline.id for each in found} == {f"g{min(rates)}"}


@pytest.mark.parametrize(
    "condition", [{"precision": "amp"}, {"framework": "mxnet"}, {"data": "real"}, {"variant": "v1.5"}]
)
def test_runs_that_differ_in_more_than_scale_are_no_curve(condition):
    assert scaled(source(table(rate(1, 100), rate(2, 198, **condition)))) == ()


def test_another_batch_of_a_device_begins_another_curve():
    rows = (rate(1, 100, batch_per_gpu=32), rate(2, 190, batch_per_gpu=32), rate(4, 500, batch_per_gpu=64))
    assert set(curves(source(table(*rows)))) == {"g1", "g2"}


def test_global_batches_tell_weak_from_strong_scaling():
    """8 GPUs at 3200 and 16 at 6400 keep 400 a device: weak. 64 at 3200 keep the global batch of the first: strong."""
    rows = (rate(8, 57288, global_batch=3200), rate(16, 110000, global_batch=6400), rate(64, 314117, global_batch=3200))
    assert curves(source(table(*rows))) == {
        "g8": ("g8", "weak", 1.0),
        "g16": ("g8", "weak", pytest.approx(110000 / 57288)),
        "g64": ("g8", "strong", pytest.approx(314117 / 57288)),
    }


def test_a_source_without_batches_scales_in_a_way_that_is_not_stated():
    assert {each.scaling for each in scaled(source(table(rate(1, 100), rate(2, 198), batch=144)))} == {"unstated"}


def test_machines_are_held_against_themselves_and_their_family():
    rows = (
        rate(1, 100, id="a1", system="a-1x"),
        rate(2, 190, id="a2", system="a-2x"),
        rate(2, 300, id="b2", system="b"),
    )
    machines = [{"id": "a-1x", "family": "a"}, {"id": "a-2x", "family": "a"}, {"id": "b"}]
    assert set(curves(source(table(*rows), systems=machines))) == {"a1", "a2"}


def test_the_throughput_of_a_device_is_multiplied_by_their_number():
    rows = (rate(8, 5762), rate(128, 5605))
    found = scaled(source(table(*rows, metric="throughput_per_gpu", unit="tokens/s", batch_per_gpu=2)))
    assert found[1].speedup == pytest.approx(5605 / 5762 * 16)
    assert found[1].efficiency_percent == pytest.approx(97.2753, abs=1e-4)


def test_cpus_bounds_and_lists_are_no_points():
    rows = (rate(0, 89), rate(1, 100), {**rate(2, 190), "bound": ">"}, {"id": "runs", "gpus": 4, "value": [380, 390]})
    assert scaled(source(table(*rows))) == ()
