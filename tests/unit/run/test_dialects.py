"""Prevents: a dialect that matches foreign lines; a truncated log that ends in a traceback; a log in no dialect that passes, or fails
without saying what was tried; a launcher's prefix that hides every line; events that a record cannot hold."""

from itertools import pairwise

import pytest
from dialect_logs import GOLDEN, WHOLE, facts, of, read, text
from hypothesis import given
from hypothesis import strategies as st
from unit.run.test_dialects_pattern import WHOLE as BY_PATTERNS

from runner.analysis.grading import measure
from runner.core.events.parse import Line, parse_events, untag
from runner.run.dialects import DIALECTS, auto
from runner.run.dialects.base import DialectError, FiguresReader

NOISE = [
    "",
    "   ",
    "2019-02-13 23:02:18.452487: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1356] Found device 0",
    "server2:23920:24013 [7] NCCL INFO comm 0x7f5780001ca0 rank 15 nranks 32 - Init COMPLETE",
    "Epoch[0] Validation-accuracy=0.808193",
    "Epoch[0] Rank[0] Batch[40]\taccuracy=0.1\tlr=0.5",
    "Model: resnet50",
    "# comment",
    '::dlscale:: {"event": "first_step", "rank": 0, "t": 1.0}',
    "100 200 float sum",
    "5 images/sec",
]


def test_every_log_is_tested_except_the_one_without_figures():
    logs = {path.name for path in GOLDEN.glob("*.log")}
    assert logs == WHOLE.keys() | BY_PATTERNS.keys() | {"caffe-before-1.0.log"}
    sources = (GOLDEN / "SOURCES.md").read_text(encoding="utf-8")
    assert not [name for name in logs if f"`{name}`" not in sources]


# samples ÷ seconds, each figure computed from the log by hand. Dialects do not remove the transient at the start (metrics does), so all
# windows are summed.
@pytest.mark.parametrize(
    ("name", "samples", "seconds"),
    [
        ("caffe-1.0.log", 9 * 10 * 16, 39.417157 - 38.433734),
        ("caffe_1.0.log", 6 * 2 * 64, 22.665326 - 22.137454),
        ("nvcaffe-0.15-two-gpus.log", 2 * 79 * 128 * 2, 0.252846 + 0.157149),
        ("nvcaffe-0.16.log", (48 + 50 + 50) * 32, 21.292 + 23.8068 + 24.5194),
        ("mxnet-0.7-node.log", 3 * 50 * 256, 12800 / 78.21 + 12800 / 78.07 + 12800 / 77.89),
        ("tf_cnn_benchmarks-1-gpu.log", 100 * 32, 100 * 32 / 180.4),
        ("tf_cnn_benchmarks-horovod-2-gpus.log", 90 * 128, 90 * 64 / 11.2),
        ("horovod-pytorch-4-gpus.log", 100 * 32 * 4, 320 * (1 / 108.3 + 1 / 107.3 + 1 / 109.3 + 1 / 108.7 + 2 / 107.6)
            + 320 * (1 / 108.8 + 1 / 108.6 + 1 / 107.5 + 1 / 108.3)),
    ],
)  # fmt: skip
def test_windows_have_the_samples_and_seconds_of_the_log(name, samples, seconds):
    dialect, changes = WHOLE[name]
    events = read(dialect, text(name), **changes)
    windows = of("window", events)
    assert sum(window.samples for window in windows) == samples
    assert sum(window.seconds for window in windows) == pytest.approx(seconds, rel=1e-9)
    (stop,) = of("run_stop", events)
    assert stop.samples == samples
    assert stop.iterations == sum(window.iterations for window in windows)


@pytest.mark.parametrize(
    ("name", "throughput"),
    [
        # Steady from the first window: all samples ÷ all seconds.
        ("tf_cnn_benchmarks-1-gpu.log", 180.4),
        ("horovod-pytorch-4-gpus.log", 432.785),  # the log's mean of rates says 432.8
        ("horovod-tensorflow2-8-gpus.log", 4800.11),
        # 90 steps of 64 on two GPUs in 90 x 64 / 11.2 s: its first window, of one iteration at 11.8 each, changes no rate.
        ("tf_cnn_benchmarks-horovod-2-gpus.log", 22.4),
    ],
)
def test_measured_throughput_equals_the_hand_computed_one(name, throughput):
    dialect, changes = WHOLE[name]
    found = measure.measure(read(dialect, text(name), **changes), started=0.0, unit="images/s")
    assert found.throughput.value == pytest.approx(throughput, rel=1e-6)
    assert found.throughput.unit == "images/s"
    assert found.steady.steady
    assert found.parameter_norms == {"0": None}


def test_a_log_that_is_slow_most_of_the_time_is_not_steady_and_counts_in_full():
    """The first 8 of its 16 windows are 81 % of the seconds; without them, 737 images/s became 1,950."""
    found = measure.measure(
        read("caffe", text("caffe-1.0-test-phases.log"), batch_per_device=32), started=0.0, unit="images/s"
    )
    # 160 samples a window: 40.433670 to 41.994870, 42.689056 to 43.946303, 44.474200 to 44.803558, 44.968386 to 45.295405.
    assert found.throughput.value == pytest.approx(2560 / (1.5612 + 1.257247 + 0.329358 + 0.327019), rel=1e-6)
    assert (found.steady.steady, found.steady.left_out_s) == (False, 0.0)


@pytest.mark.parametrize("name", WHOLE)
def test_the_dialect_is_detected_without_losing_events_and_no_other_dialect_matches_a_line(name):
    dialect, changes = WHOLE[name]
    lines = text(name).splitlines()
    reader = auto(facts(**changes))
    events = [event for n, line in enumerate(lines) for event in reader.feed(line, received=float(n))]
    assert [*events, *reader.close(received=float(len(lines)))] == read(dialect, text(name), **changes)
    assert reader.name == dialect
    for other in DIALECTS.keys() - {dialect}:
        reader = DIALECTS[other](facts(**changes))
        heard = [event for line in lines for event in reader.feed(line, received=0.0)]
        assert (reader.found, heard) == (False, [])


@pytest.mark.parametrize("tag", ["[1,0]<stdout>:", "[0]<stderr>:", "Tue Sep  8 09:24:20 2020[0]<stdout>:", "[rank0]:"])
@pytest.mark.parametrize("name", [name for name in WHOLE if "<stdout>:" not in text(name)])
def test_a_launchers_prefix_changes_nothing(name, tag):
    dialect, changes = WHOLE[name]
    tagged = "\n".join(tag + line for line in text(name).splitlines())
    assert read(dialect, tagged, **changes) == read(dialect, text(name), **changes)


@pytest.mark.parametrize("name", WHOLE)
@given(data=st.data())
def test_foreign_lines_in_between_are_skipped(name, data):
    dialect, changes = WHOLE[name]
    lines = text(name).splitlines()
    places = data.draw(st.lists(st.tuples(st.integers(0, len(lines)), st.sampled_from(NOISE)), max_size=5))
    reader = DIALECTS[dialect](facts(**changes))
    events = []
    for n, line in enumerate(lines):
        for place, noise in places:
            if place == n:
                assert reader.feed(noise, received=float(n)) == ()
        events += reader.feed(line, received=float(n))
    assert [*events, *reader.close(received=float(len(lines)))] == read(dialect, text(name), **changes)


@pytest.mark.parametrize("name", [*WHOLE, "caffe-before-1.0.log"])
@given(data=st.data())
def test_a_truncated_log_yields_valid_events_or_a_dialect_error(name, data):
    dialect, changes = WHOLE.get(name, ("caffe", {}))
    whole = text(name)
    cut = whole[data.draw(st.integers(0, len(whole))) : data.draw(st.integers(0, len(whole)))]
    warmup = data.draw(st.one_of(st.none(), st.integers(0, 200)))
    try:
        events = read(dialect, cut, **changes, warmup=warmup)
    except DialectError as error:
        assert str(error)
        assert "\n" not in str(error)
        return
    windows = of("window", events)
    assert windows or of("bandwidth", events)
    assert all(window.seconds > 0 and window.samples > 0 and window.iterations > 0 for window in windows)
    assert measure.measure(events, started=0.0, unit="images/s").samples == sum(window.samples for window in windows)


@pytest.mark.parametrize("name", WHOLE)
def test_windows_lie_end_to_end_and_all_events_survive_serialization(name):
    dialect, changes = WHOLE[name]
    events = read(dialect, text(name), **changes)
    windows = of("window", events)
    assert [window.index for window in windows] == list(range(len(windows)))
    for one, following in pairwise(windows):
        assert following.start == pytest.approx(one.start + one.seconds, abs=1e-9)
    assert list(parse_events(event.model_dump_json() for event in events)) == events


def test_a_log_in_another_dialect_is_refused_with_its_first_line():
    with pytest.raises(DialectError) as error:
        read("caffe", "\n\nhello world\nEpoch 1 done\n")
    assert str(error.value) == (
        "no line is in dialect caffe; the first line that was tried: 'hello world'; choose another with --dialect, describe "
        "the log with --pattern, or let the program write events"
    )
    with pytest.raises(DialectError, match=f"tried: '{'x' * 57}[.]{{3}}'; choose another"):
        read("caffe", "x" * 400)
    with pytest.raises(DialectError, match="the log is empty"):
        read("mxnet", "")


def test_a_log_in_no_dialect_is_refused_with_its_first_line_and_all_names():
    reader = auto(facts())
    for line in ("starting up", "step 1: 3.5 it/s"):
        assert reader.feed(line, received=0.0) == ()
    with pytest.raises(DialectError) as error:
        reader.close(received=1.0)
    every = "any dialect (caffe, mxnet, tf_cnn_benchmarks, horovod, nccl-tests); the first line that was tried: 'starting up'"
    assert every in str(error.value)


def test_only_measured_windows_and_all_losses_of_the_suites_own_programs_are_kept():
    """Prevents warm-up or the log's tail counted as measured, and a run with two begin or end events."""
    reader = FiguresReader(DIALECTS["caffe"](facts(batch_per_device=64, warmup=2)), iterations=8)
    events = [event for line in text("caffe_1.0.log").splitlines() for event in reader.feed(line, received=1.0)]
    assert reader.close(received=2.0) == ()
    assert {event.event for event in events} == {"window", "loss"}
    assert [window.iterations for window in of("window", events)] == [2, 2, 2, 2]
    # The first is from iteration 2 to iteration 4: 22.314567 - 22.226701.
    assert of("window", events)[0].seconds == pytest.approx(0.087866, abs=1e-6)
    assert [loss.first_iteration for loss in of("loss", events)] == [0, 2, 4, 6, 8, 10, 12, 14]
    with pytest.raises(DialectError, match="no line is in dialect caffe"):
        FiguresReader(DIALECTS["caffe"](facts()), iterations=1).close(received=2.0)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[1,3]<stdout>:Iter #0", Line("Iter #0", 3)),
        ("[3]<stderr>: two", Line(" two", 3)),
        ("[prterun-node1-4711@1,12]<stdout>:x", Line("x", 12)),
        ("Tue Sep  8 09:24:20 2020[0]<stdout>:x", Line("x", 0)),
        ("Tue Sep 18 09:24:20 2020 [1,2]<stdout>:x", Line("x", 2)),
        ("[default7]:x", Line("x", 7)),
        ("[0]: x", Line("[0]: x", None)),
        ("a [1,0]<stdout>:x", Line("a [1,0]<stdout>:x", None)),
    ],
)
def test_prefixes_of_launchers(text, line):
    assert untag(text) == line


@pytest.mark.parametrize(
    ("command", "value"),
    [
        ((), 10),
        (("python", "x.py"), 10),
        (("python", "x.py", "--num-iters", "5"), 5),
        (("python", "x.py", "--num_iters=5"), 5),
        (("sh", "-c", "cd /examples && python x.py --num-iters 5"), 5),
        (("python", "x.py", "--num-iters"), 10),
        (("python", "x.py", "--num-iters", "five"), 10),
        (("python", "x.py", "--num-iters-more", "5"), 10),
    ],
)
def test_options_of_the_command(command, value):
    assert facts(command=command).option("--num-iters", 10) == value
