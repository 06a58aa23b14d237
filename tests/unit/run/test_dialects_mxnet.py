"""Prevents misreading Speedometer: a batch number as a count, the time between epochs as training, a mean of rates, a window for each
metric's line, two workers as one."""

import pytest
from dialect_logs import of, read, text

from runner.analysis.grading import metrics
from runner.run.dialects.base import DialectError


def windows(*lines, **changes):
    events = read("mxnet", "\n".join(lines), **({"batch_per_device": 16} | changes))
    return [(window.rank, window.iterations, window.samples, window.seconds) for window in of("window", events)]


@pytest.mark.parametrize("name", ["mxnet-1.9.1.log", "mxnet-1.9.1-no-reset.log"])
def test_each_line_covers_the_batches_since_the_previous_line_whatever_its_range(name):
    found = of("window", read("mxnet", text(name), batch_per_device=16))
    assert len(found) == 8  # 80 of 90 batches in each of two epochs have a line
    assert {(window.iterations, window.samples) for window in found} == {(20, 320)}


def test_seconds_are_samples_divided_by_speed():
    found = of("window", read("mxnet", text("mxnet-1.9.1.log"), batch_per_device=16))
    speeds = [9027.35, 11697.76, 12359.13, 12382.05, 10215.68, 12380.34, 12431.48, 9524.86]
    assert [window.seconds for window in found] == pytest.approx([320 / speed for speed in speeds])
    joined = metrics.global_windows(found)
    assert joined.rate == pytest.approx(8 / sum(1 / speed for speed in speeds))
    assert joined.rate < sum(speeds) / 8  # the mean of rates is too high


def test_a_log_that_begins_mid_epoch_has_no_long_first_window():
    found = of("window", read("mxnet", text("mxnet-1.4-epochs.log"), batch_per_device=128))
    assert [window.iterations for window in found] == [50] * 10
    assert sum(window.samples for window in found) == 64000


def test_losses_are_read_from_the_log():
    losses = of("loss", read("mxnet", text("mxnet-1.9.1.log"), batch_per_device=16))
    assert [loss.first_iteration for loss in losses] == [19, 39, 59, 79, 99, 119, 139, 159]
    assert losses[0].values == (2.302554,)
    (bad,) = of("loss", read("mxnet", "Batch [20]\tSpeed: 10.00 samples/sec\tTrain-loss=nan", batch_per_device=1))
    assert bad.values == (None,)


def test_lines_of_the_oldest_releases_and_of_gluon_are_read():
    assert windows("Batch [20]\tSpeed: 320.00 samples/sec", "Batch [40]\tSpeed: 160.00 samples/sec") == [
        (0, 20, 320, 1.0),
        (0, 20, 320, 2.0),
    ]
    assert windows(
        "INFO:root:Epoch[0] Batch[0]\tSpeed: 1.00 samples/sec",  # counts from 0: one batch, and its start-up
        "INFO:root:Epoch[0] Batch[20]\tSpeed: 320.00 samples/sec",
        "INFO:root:Epoch[0]\tSpeed: 319.00 samples/sec",
    ) == [(0, 20, 320, 1.0)]
    assert windows("Iter[0] Batch [20]\tSpeed: 320.00 samples/sec") == [(0, 20, 320, 1.0)]


def test_workers_are_ranks_with_their_share_of_the_devices():
    lines = [
        f"INFO Node[{node}] Epoch[0] Batch [{batch}]\tSpeed: {320 / seconds:.2f} samples/sec"
        for batch in (20, 40)
        for node, seconds in ((0, 1.0), (1, 2.0))
    ]
    found = windows(*lines, devices=2)
    assert found == [(0, 20, 320, 1.0), (0, 20, 320, 1.0), (1, 20, 320, 2.0), (1, 20, 320, 2.0)]
    events = read("mxnet", "\n".join(lines), batch_per_device=16, devices=2)
    assert metrics.global_windows(of("window", events)).rate == 1280 / 4.0  # both wait for the slower one
    assert sorted((stop.rank, stop.samples) for stop in of("run_stop", events)) == [(0, 640), (1, 640)]
    # One worker with two devices: Speedometer's batch is that of both.
    assert windows("Epoch[0] Batch [20]\tSpeed: 320.00 samples/sec", devices=2) == [(0, 20, 640, 2.0)]


def test_infinite_and_zero_speeds_are_skipped():
    lines = [
        f"Epoch[0] Batch [{n}]\tSpeed: {speed} samples/sec" for n, speed in ((20, "inf"), (40, "0.00"), (60, 320.0))
    ]
    assert windows(*lines) == [(0, 20, 320, 1.0)]


def test_warm_up_batches_are_left_out():
    lines = [f"Epoch[0] Batch [{n}]\tSpeed: {32 * n} samples/sec" for n in (20, 40, 60)]
    assert [seconds for *_, seconds in windows(*lines, warmup=1)] == [320 / 1280, 320 / 1920]
    assert [seconds for *_, seconds in windows(*lines, warmup=21)] == [320 / 1920]
    with pytest.raises(DialectError, match="no speed after iteration 41"):
        windows(*lines, warmup=41)


def test_a_log_without_figures_is_refused():
    with pytest.raises(DialectError, match="does not write its batch size; give BATCH"):
        read("mxnet", text("mxnet-1.9.1.log"))
    lines = [f"Epoch[0] Rank[{rank}] Batch[20]\tSpeed: 320.00 samples/sec" for rank in (0, 1)]
    with pytest.raises(DialectError, match="2 workers write to the mxnet log, and cannot share 1 devices evenly"):
        windows(*lines)
