"""Prevents misreading tf_cnn_benchmarks: rates since the start as rates of a window, one Horovod rank as the job, noise from rounded
rates, a sum of asynchronous workers."""

import pytest
from dialect_logs import of, read, text

from runner.run.dialects.base import DialectError

HEADER = """SingleSess:  {session}
Batch size:  {all} global
             {one} per device
Num batches: {steps}
Devices:     [{devices}]
Variables:   {variables}
Done warm up
Step\tImg/sec\ttotal_loss
"""


def row(step, rate, loss="7.0"):
    return f"{step}\timages/sec: {rate} +/- 0.0 (jitter = 0.0)\t{loss}\n"


def log(rows, total=None, **changes):
    defaults = {"session": False, "all": 64, "one": 64, "steps": 20, "devices": "'/gpu:0'", "variables": "replicated"}
    ending = f"total images/sec: {total}\n" if total else ""
    return HEADER.format(**(defaults | changes)) + "".join(row(*one) for one in rows) + ending


def windows(*arguments, **changes):
    facts = {name: changes.pop(name) for name in ("warmup", "command", "devices_asked") if name in changes}
    facts["devices"] = facts.pop("devices_asked", 1)
    found = of("window", read("tf_cnn_benchmarks", log(*arguments, **changes), **facts))
    return [(window.iterations, window.samples, window.seconds) for window in found]


def test_rates_are_since_the_start_so_windows_are_differences():
    # 10 steps of 64 at 640/s took 1 s; all 20 at 320/s took 4 s: the second ten took 3 s, and ran at 213/s, not at 320/s.
    assert windows([(10, 640.0), (20, 320.0)]) == [(10, 640, 1.0), (10, 640, 3.0)]


def test_a_real_log_on_one_gpu():
    found = of("window", read("tf_cnn_benchmarks", text("tf_cnn_benchmarks-1-gpu.log")))
    assert [window.iterations for window in found] == [1, 9, *[10] * 9]
    assert found[0].seconds == pytest.approx(32 / 180.2)
    assert found[1].seconds == pytest.approx(10 * 32 / 181.0 - 32 / 180.2)
    assert found[-1].seconds == pytest.approx(100 * 32 / 180.4 - 90 * 32 / 180.3)


def test_losses_come_from_rows_and_count_after_the_warm_up():
    events = read("tf_cnn_benchmarks", text("tf_cnn_benchmarks-1-gpu.log"))
    losses = [(loss.first_iteration, *loss.values) for loss in of("loss", events)]
    assert losses[:2] == [(10, 8.108), (19, 8.122)]
    (warm,) = of("warmup_end", events)
    assert warm.iterations == 10
    events = read("tf_cnn_benchmarks", log([(10, 640.0, "nan")]), command=("x.py", "--num_warmup_batches=3"))
    assert [(loss.first_iteration, loss.values) for loss in of("loss", events)] == [(12, (None,))]


def test_under_horovod_a_row_covers_one_device_and_the_slowest_rank_ends_a_step():
    rows = [(10, 320.0), (10, 640.0), (20, 320.0), (20, 640.0)]
    changes = {"all": 128, "variables": "horovod", "devices": "'horovod/gpu:0', 'horovod/gpu:1'", "devices_asked": 2}
    assert windows(rows, **changes) == [(10, 1280, 2.0), (10, 1280, 2.0)]


def test_rows_cover_all_devices_of_one_process():
    changes = {"all": 128, "devices": "'/gpu:0', '/gpu:1'", "devices_asked": 2}
    assert windows([(10, 640.0), (20, 640.0)], **changes) == [(10, 1280, 2.0), (10, 1280, 2.0)]


def test_a_row_has_its_workers_own_batch_or_with_one_session_the_global_batch():
    devices = "'/job:worker/replica:0/task:0/gpu:0'"
    changes = {"all": 128, "one": "64.0", "devices": devices, "devices_asked": 2}
    assert windows([(10, 640.0)], **changes) == [(10, 1280, 1.0)]
    assert windows([(10, 640.0)], session=True, **changes) == [(10, 1280, 2.0)]


def test_rows_that_rounding_could_distort_are_merged():
    # At 11/s, a rate is known to 0.5 %: for the time until step 100 that is half a step, at each end of a window.
    found = of("window", read("tf_cnn_benchmarks", text("tf_cnn_benchmarks-horovod-2-gpus.log"), devices=2))
    assert sum(window.iterations for window in found) == 90
    assert found[-1].iterations == 20
    assert all(window.samples == 128 * window.iterations for window in found)
    rates = [window.samples / window.seconds for window in found]
    assert max(rates) < 1.15 * min(rates)


def test_the_total_is_the_only_window_if_rows_are_unusable():
    # 0.1/s may be 0.05 to 0.15: such rows are useless.
    assert windows([(10, 0.1), (20, 0.1)], 0.64) == [(20, 1280, 2000.0)]
    with pytest.raises(DialectError, match="neither rows precise enough"):
        windows([(10, 0.1), (20, 0.1)])
    # The loop took longer than its steps: at 320/s it took twice their time.
    assert windows([(10, 640.0), (20, 640.0)], 610.0) == [(10, 640, 1.0), (10, 640, 1.0)]
    assert windows([(10, 640.0), (20, 640.0)], 320.0) == [(20, 1280, 4.0)]
    # The rows are moving averages.
    command = ("python", "tf_cnn_benchmarks.py", "--display_perf_ewma=0.5")
    assert windows([(10, 640.0), (20, 320.0)], 640.0, command=command) == [(20, 1280, 2.0)]


def test_a_longer_warm_up_excludes_further_steps():
    rows = [(10, 640.0), (20, 320.0)]
    assert windows(rows, warmup=10) == [(10, 640, 1.0), (10, 640, 3.0)]
    assert windows(rows, warmup=20) == [(10, 640, 3.0)]


@pytest.mark.parametrize(
    ("whole", "facts", "says"),
    [
        ("Sync:        False\n" + log([(10, 640.0)]), {}, "asynchronous workers"),
        (log([(10, 640.0)], all=128), {}, "names 2 devices, the run was asked for 1"),
        (log([(10, 640.0)]), {"batch_per_device": 32}, "says 64 samples a device, the run was asked for 32"),
        (row(10, 640.0), {}, "has no header with `Batch size:`"),
        (row(10, 640.0), {"batch_per_device": 64, "devices": 2}, "has no header with `Batch size:`"),
    ],
)
def test_a_log_whose_rates_are_not_the_jobs_is_refused(whole, facts, says):
    with pytest.raises(DialectError, match=says):
        read("tf_cnn_benchmarks", whole, **facts)
    events = read("tf_cnn_benchmarks", row(10, 640.0), batch_per_device=64)
    assert [window.seconds for window in of("window", events)] == [1.0]


def test_a_launchers_columns_before_a_row_do_not_hide_it():
    prefix = "   INFO|2019-02-13T23:06:33|/opt/launcher.py|27| "
    prefixed = "".join(prefix + line + "\n" for line in log([(10, 640.0), (20, 320.0)], 320.0).splitlines())
    found = of("window", read("tf_cnn_benchmarks", prefixed))
    assert [(window.iterations, window.seconds) for window in found] == [(10, 1.0), (10, 3.0)]
