"""Prevents misreading Horovod's synthetic benchmarks: one device's rate as the job's, a mean of rates, the Keras warm-up as measured."""

import pytest
from dialect_logs import of, read

from runner.analysis.grading import metrics
from runner.run.dialects.base import DialectError

HEADER = "Model: resnet50\nBatch size: 32\nNumber of {}s: {}\nRunning warmup...\nRunning benchmark...\n"


def log(*rates, devices=1, kind="GPU", header=HEADER):
    return header.format(kind, devices) + "".join(
        f"Iter #{n}: {rate} img/sec per {kind}\n" for n, rate in enumerate(rates)
    )


def windows(log_, **changes):
    return [
        (window.iterations, window.samples, window.seconds) for window in of("window", read("horovod", log_, **changes))
    ]


def test_a_line_covers_one_device_and_a_window_covers_all():
    assert windows(log(320.0, 160.0, devices=4), devices=4) == [(10, 1280, 1.0), (10, 1280, 2.0)]
    assert windows(log(320.0, kind="CPU", devices=2), devices=2) == [(10, 640, 1.0)]


def test_the_rate_is_samples_over_seconds_not_the_mean_of_rates():
    # 320 images in 1 s and 320 in 2 s are 213/s; the benchmark itself would write (320 + 160) / 2 = 240/s.
    found = of("window", read("horovod", log(320.0, 160.0)))
    assert metrics.global_windows(found).rate == pytest.approx(640 / 3)


def test_the_batches_of_a_line_come_from_the_command():
    assert windows(log(320.0), command=("python", "x.py", "--num-batches-per-iter", "5")) == [(5, 160, 0.5)]


def test_the_warm_up_ends_where_the_benchmark_says():
    events = read("horovod", log(320.0), command=("x.py", "--num-warmup-batches", "7"))
    (warm,) = of("warmup_end", events)
    (window,) = of("window", events)
    assert (warm.iterations, warm.t, window.start) == (7, 4.0, 4.0)  # `Running benchmark...` is the fifth line


def test_the_first_line_of_keras_is_its_warm_up():
    keras = "Model: ResNet50\nBatch size: 32\nNumber of {}s: {}\n"
    assert windows(log(1.0, 320.0, 160.0, header=keras)) == [(10, 320, 1.0), (10, 320, 2.0)]
    with pytest.raises(DialectError, match="no `Iter #` after iteration 0"):
        read("horovod", log(1.0, header=keras))


def test_a_longer_warm_up_excludes_further_iterations():
    whole = log(320.0, 160.0, 80.0)
    assert [seconds for *_, seconds in windows(whole, warmup=10)] == [1.0, 2.0, 4.0]
    assert [seconds for *_, seconds in windows(whole, warmup=11)] == [2.0, 4.0]
    with pytest.raises(DialectError, match="no `Iter #` after iteration 50"):
        read("horovod", whole, warmup=50)


def test_other_devices_another_batch_or_no_batch_is_refused():
    with pytest.raises(DialectError, match="names 4 devices, the run was asked for 1"):
        read("horovod", log(320.0, devices=4))
    with pytest.raises(DialectError, match="says 32 samples a device, the run was asked for 64"):
        read("horovod", log(320.0), batch_per_device=64)
    with pytest.raises(DialectError, match="no line `Batch size: N`; give BATCH"):
        read("horovod", log(320.0, header="Running benchmark...\n"))
    assert windows(log(320.0, header="Running benchmark...\n"), batch_per_device=32) == [(10, 320, 1.0)]


def test_a_rate_of_zero_makes_no_window():
    assert windows(log(0.0, 320.0)) == [(10, 320, 1.0)]
