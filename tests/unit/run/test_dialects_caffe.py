"""Prevents misreading Caffe's log: counting the nonsense rate of iteration 0, a test phase as training, or warm-up; trusting `m` of
`s/m iters`, which may be only the solver's `display`; guessing a batch."""

import pytest
from dialect_logs import of, read, text

from runner.run.dialects.base import DialectError

STAMP = "I1121 07:26:38.433734     8 solver.cpp:239] "


def log(*messages):
    return "\n".join(STAMP + message for message in messages)


def step(iteration, seconds, loss=1.0, display=10):
    return f"Iteration {iteration} (1 iter/s, {seconds}s/{display} iters), loss = {loss}"


def windows(*messages, **changes):
    found = of("window", read("caffe", log(*messages), **({"batch_per_device": 4} | changes)))
    return [(window.iterations, window.samples, window.seconds) for window in found]


def test_the_first_and_last_lines_make_no_window():
    events = read("caffe", text("caffe-1.0.log"))
    found = of("window", events)
    # Caffe's own seconds, truncated to milliseconds.
    cut = [0.091, 0.076, 0.077, 0.083, 0.062, 0.058, 0.076, 0.208, 0.247]
    assert all(0 <= window.seconds - seconds < 0.002 for window, seconds in zip(found, cut, strict=True))
    assert {(window.iterations, window.samples) for window in found} == {(10, 160)}
    (first,) = of("first_step", events)
    (warm,) = of("warmup_end", events)
    lines = text("caffe-1.0.log").splitlines()
    assert "Iteration 0 (-112.732 iter/s" in lines[int(first.t)]
    assert warm.iterations == 0
    # The next display line is 3 lines, here 3 s, later.
    assert warm.t == found[0].start == first.t + 3 - found[0].seconds


def test_timestamps_restore_the_digits_that_caffes_clock_truncates():
    """0.087 s for 2 iterations on a CPU, although the timestamps are 87.9 ms apart: 1 % too fast."""
    found = of("window", read("caffe", text("caffe_1.0.log"), batch_per_device=64))
    # 22.226701 - 22.137454, 22.314567 - 22.226701, 22.402187 - 22.314567
    assert [round(window.seconds, 6) for window in found[:3]] == [0.089247, 0.087866, 0.08762]


def test_timestamps_that_disagree_with_caffes_seconds_are_ignored():
    """Two lines that were written late."""
    late = [
        "I1121 23:59:59.000000     8 caffe.cpp:197] Use CPU.",
        "I1121 23:59:59.500000     8 solver.cpp:239] " + step(0, 1),
        "I1122 00:00:00.600000     8 solver.cpp:239] " + step(10, 0.3),
    ]
    (found,) = of("window", read("caffe", "\n".join(late), batch_per_device=4))
    assert found.seconds == 0.3
    (found,) = of("window", read("caffe", "\n".join(late).replace("0.3s", "1.1s"), batch_per_device=4))
    assert found.seconds == pytest.approx(1.1)


def test_every_display_line_has_a_loss_and_a_loss_that_is_not_finite_is_none():
    losses = of("loss", read("caffe", text("caffe-1.0.log")))
    assert [loss.first_iteration for loss in losses] == list(range(0, 101, 10))
    assert (losses[0].values, losses[-1].values) == ((2.45914,), (0.156108,))
    events = read("caffe", log(step(0, 1), step(10, 1, "nan"), step(20, 1, "-inf")), batch_per_device=4)
    assert [loss.values for loss in of("loss", events)] == [(1.0,), (None,), (None,)]


def test_windows_with_a_test_phase_are_left_out():
    found = of("window", read("caffe", text("caffe-1.0-test-phases.log"), batch_per_device=32))
    # 19 windows of 5 iterations; those that end at 25, 50 and 75 hold a test phase (0.694, 0.527 and 0.164 s).
    assert len(found) == 16
    assert not {0.694, 0.527, 0.164} & {int(window.seconds * 1000) / 1000 for window in found}
    cut = 0.444 + 0.326 + 0.429 + 0.36 + 0.382 + 0.287 + 0.312 + 0.275 + 0.084 + 7 * 0.081
    assert cut < sum(window.seconds for window in found) < cut + 16 * 0.001


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        # A solver restored at iteration 13 with display 10 first shows 20, then 30: `s/10 iters` in both, but really 7 and 10.
        ((step(20, 0.7), step(30, 1.0), step(40, 1.1)), [(10, 40, 1.0), (10, 40, 1.1)]),
        (
            ("Iteration 2 (3.8928 s), loss = 5.0", step(50, 24, display=50), step(60, 5)),
            [(48, 192, 24.0), (10, 40, 5.0)],
        ),
        # With epochs, as NVIDIA's 0.17 writes them: made up from a description of the format, because no public log has such lines.
        (
            (
                "Iteration 0 (2.1 s), loss = 7.1",
                "Iteration 100 (5.5 iter/s, 18.1s/100 iter), 12.3/45.6ep, loss = 6.9",
                "Iteration 199 (5.5 iter/s, 18s/99 iter), 24.5/45.6ep, loss = 6.8",
            ),
            [(100, 400, 18.1), (99, 396, 18.0)],
        ),
        # With the node's number in front, as NVIDIA's 0.17.3 writes them.
        (
            (
                "    [0.0] Iteration 2 (2.02 s), loss = 7.1",
                "    [0.0] Iteration 100 (31.2456 iter/s, 3.13644s/98 iter), 1.2/10.7ep, loss = 6.9",
            ),
            [(98, 392, 3.13644)],
        ),
        # Below the resolution of Caffe's clock: the next window covers both.
        ((step(0, 1), step(1, 0), step(2, 0.001), step(3, 0.002)), [(2, 8, 0.001), (1, 4, 0.002)]),
        # Another solver's line makes no second window.
        ((step(0, 1), step(10, 2), step(10, 2), step(20, 3)), [(10, 40, 2.0), (10, 40, 3.0)]),
    ],
)
def test_iterations_are_counted_from_the_previous_line_not_taken_from_the_line(messages, expected):
    assert windows(*messages) == expected


def test_warm_up_iterations_are_left_out():
    steps = [step(n, n / 10) for n in (0, 10, 20, 30)]
    assert windows(*steps, warmup=1) == [(10, 40, 2.0), (10, 40, 3.0)]
    assert windows(*steps, warmup=10) == [(10, 40, 2.0), (10, 40, 3.0)]
    assert windows(*steps, warmup=11) == [(10, 40, 3.0)]
    (warm,) = of("warmup_end", read("caffe", log(*steps), batch_per_device=4, warmup=10))
    assert warm.iterations == 10


def test_lines_of_another_solver_make_no_second_window():
    """Several solver threads of the 0.15 fork each write `Iteration N, lr = ...`."""
    found = of("window", read("caffe", text("nvcaffe-0.15-two-gpus.log"), batch_per_device=128, devices=2))
    assert [(window.iterations, window.samples, window.seconds) for window in found] == [
        (79, 79 * 256, 0.252846),
        (79, 79 * 256, 0.157149),
    ]


def test_the_batch_is_read_from_the_train_net_for_one_device_with_one_size():
    whole = text("caffe-1.0.log")
    assert {window.samples for window in of("window", read("caffe", whole))} == {160}
    accumulated = whole.replace("base_lr: 0.01\n", "base_lr: 0.01\niter_size: 4\n", 1)
    assert {window.samples for window in of("window", read("caffe", accumulated))} == {640}
    # The user's batch overrides the log's: it is the total of an iteration.
    assert {window.samples for window in of("window", read("caffe", accumulated, batch_per_device=7))} == {70}
    two = whole.replace("    batch_size: 16\n", "    batch_size: 16\n  }\n  data_param {\n    batch_size: 8\n", 1)
    with pytest.raises(DialectError, match="does not say how many samples an iteration takes; give BATCH"):
        read("caffe", two)


def test_a_test_nets_batch_is_not_the_train_nets():
    net = "I1121 07:26:38.416505     8 net.cpp:53] Initializing net from parameters: \n"
    whole = text("caffe-1.0.log")
    both = whole.replace(STAMP + "Iteration 0", net + "    batch_size: 50\n" + STAMP + "Iteration 0", 1)
    assert {window.samples for window in of("window", read("caffe", both))} == {160}


TWO_GPUS = text("caffe-1.0.log").replace("caffe.cpp:197] Use CPU.", "caffe.cpp:218] Using GPUs 0, 1")


@pytest.mark.parametrize(
    ("whole", "changes", "says"),
    [
        (TWO_GPUS, {"devices": 2}, "give BATCH"),
        (TWO_GPUS, {}, "names 2 devices, the run was asked for 1"),
        (text("caffe-before-1.0.log"), {"batch_per_device": 4}, "Caffe before 1.0 does not log its times"),
        (
            log(step(0, 1), step(10, 1), step(20, 1)),
            {"batch_per_device": 4, "warmup": 15},
            "no two lines with `iter/s` after iteration 15",
        ),
    ],
    ids=["no batch", "other devices", "no times", "too short"],
)
def test_a_log_without_its_figures_is_refused(whole, changes, says):
    with pytest.raises(DialectError, match=says):
        read("caffe", whole, **changes)
    assert (
        sum(window.samples for window in of("window", read("caffe", TWO_GPUS, devices=2, batch_per_device=16))) == 2880
    )
