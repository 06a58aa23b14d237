"""Power, energy, utilisation and throughput of every committed record, as its raw files give them now, and of every row made of them.

Prevents: a power and an amount per joule that contradict each other beside one throughput (22 of 231 rows did, by up to 46 %: power was the
mean of lagging samples, energy the counter's); either of a span too short for it; amounts per joule in another unit than the throughput; more than all of a peak.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.analysis.summarize import summarize
from runner.commands.regrade import regrade
from runner.core.units import figure
from runner.results.store import folders_under, run_directories

RESULTS = Path(__file__).parents[2] / "results"
RUNS = [path for folder in folders_under(RESULTS) for path in run_directories(folder)]


@pytest.fixture(scope="module")
def regraded():
    """(directory, record) of all, nothing written."""
    return [(path, regrade(path)[1]) for path in RUNS]


def test_no_run_contradicts_itself(regraded):
    seen = 0
    for _, record in regraded:
        told = record.telemetry
        for one in told.trained if told else ():
            assert (one.energy_j is None) or one.measured_s >= 2, record.run_id
            assert (one.power_w is None) == (one.energy_j is None), record.run_id
            if one.power_w:
                assert one.power_w.avg == pytest.approx(one.energy_j / one.measured_s, rel=1e-12), record.run_id
        if told is None or record.profiled or record.measurement.throughput is None:
            continue
        assert (told.power_w is None) == (told.samples_per_joule is None), record.run_id
        if told.power_w:
            rate = record.measurement.throughput.value
            assert rate / told.power_w == pytest.approx(told.samples_per_joule, rel=1e-9), record.run_id
            seen += 1
    assert seen > 150


def test_nothing_computes_more_than_its_peak(regraded):
    flops = [record.measurement.flop for _, record in regraded if record.measurement.flop]
    assert max(flop.mfu_percent or 0 for flop in flops) <= 100
    # VGG-16 in fp32, whose convolutions cuDNN computes with fewer multiplications.
    assert [flop.mfu_percent for flop in flops if flop.above_peak] == [None]


def test_no_row_contradicts_itself_to_its_printed_digits(regraded):
    matrices = {}
    for path, record in regraded:
        if not (record.profiled or record.concurrent):
            matrices.setdefault((path.parent, record.matrix_id), []).append((path, record))
    rows = [row for runs in matrices.values() for row in summarize(runs).rows if row.usable and row.telemetry]
    told = [row for row in rows if row.telemetry.power_w]
    assert len(told) > 150
    for row in told:
        rate, watts, per_joule = (
            float(figure(value).replace(",", ""))
            for value in (row.throughput, row.telemetry.power_w, row.telemetry.samples_per_joule)
        )
        # Each is rounded to four digits and to three decimals at most.
        assert rate / watts == pytest.approx(per_joule, rel=1.5e-3, abs=6e-4)
