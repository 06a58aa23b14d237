"""Caffe through the suite: its own binary trains, and the figures come from its own log.

Prevents: a rate from warm-up or from the log's end, samples that Caffe never saw, a second CPU worker, which Caffe does not support.
"""

import itertools
import re
import statistics

import pytest

pytestmark = pytest.mark.usefixtures("nothing_left")

STEP = re.compile(r"^I\d{4} (\d\d):(\d\d):(\d\d\.\d+) .* Iteration (\d+) \(.*, loss = (\S+)$", re.MULTILINE)
WARMUP, ITERATIONS, BATCH = 2, 20, 8


@pytest.fixture(scope="module")
def ended(dlscale, tmp_path_factory):
    words = ("--framework=caffe", "--device=cpu", "--model=lenet", f"--batch={BATCH}")
    done = dlscale(
        "bench", *words, f"--iterations={ITERATIONS}", f"--warmup={WARMUP}", out=tmp_path_factory.mktemp("caffe")
    )
    assert done.code == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def lines(ended):
    """By iteration: when Caffe wrote its line, in seconds of the day, and the loss on it."""
    (log,) = ended.out.glob("*/logs/*.log")
    found = STEP.findall(log.read_text())
    return {int(n): (3600 * int(h) + 60 * int(m) + float(s), float(loss)) for h, m, s, n, loss in found}


def test_the_measured_windows_cover_everything_after_the_warm_up(ended, lines):
    (record,) = ended.records
    measurement = record.measurement
    assert record.trial.dialect == "caffe"
    assert measurement.samples == ITERATIONS * BATCH
    edges = list(itertools.accumulate((w.samples // BATCH for w in measurement.windows), initial=WARMUP))
    assert edges[-1] == WARMUP + ITERATIONS
    by_stamps = [(lines[last][0] - lines[first][0]) % 86_400 for first, last in itertools.pairwise(edges)]
    told = [window.seconds for window in measurement.windows]
    assert measurement.training_time_s == pytest.approx(sum(told))
    # A line that waited for a core was stamped after Caffe stopped its clock, which truncates to milliseconds.
    iteration_s = measurement.training_time_s / ITERATIONS
    assert statistics.median(abs(own - stamps) for own, stamps in zip(told, by_stamps, strict=True)) < iteration_s / 2
    assert sum(by_stamps) - measurement.training_time_s < 2 * iteration_s
    assert measurement.training_time_s <= sum(by_stamps) + 0.001 * len(told)


def test_its_losses_and_weights_are_in_the_record(ended, lines):
    (record,) = ended.records
    (losses,) = record.measurement.losses.values()
    assert losses[0] == lines[0][1]
    assert set(losses) >= {loss for n, (_, loss) in lines.items() if n <= WARMUP + ITERATIONS}
    assert record.measurement.parameter_norms["0"] > 0
    assert record.provenance.framework_version == "1.0.0"


def test_a_second_cpu_worker_is_refused_in_one_sentence(dlscale, tmp_path):
    done = dlscale("bench", "--framework=caffe", "--device=cpu", "--workers=2", out=tmp_path)
    assert done.code == 2
    assert "caffe 1.0 trains on one device; ask for WORKERS=1" in done.stderr
    assert done.records == []
