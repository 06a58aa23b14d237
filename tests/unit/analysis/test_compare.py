"""A missed regression, or a build that fails without one.

Prevents: runs of different trials compared; a trial missed because its image, driver or commit differs, which is what a comparison is for;
invalid runs and profiling passes in a ratio; noise reported as a regression; an allowed regression that fails a build; trials of only one
side dropped silently; a run compared with itself.

A regression believed or missed because of a p-value.

Prevents: a p that disagrees with the printed tables; windows of one process counted as runs; a p that is not corrected for the number of
trials.
"""

import io
import json
import math

import examples
import numpy as np
import pytest
from commands import dlscale
from hypothesis import given
from hypothesis import strategies as st
from records import record

from runner.analysis.comparisons.identity import identity, in_words
from runner.analysis.comparisons.regression import compare, holm, verdict
from runner.analysis.grading import metrics
from runner.commands.compare_flow import read_percent
from runner.core.console import open_console
from runner.core.errors import RequestError
from runner.core.measurement import Interval
from runner.core.trial import Dataset, ProfilePass
from runner.report.compare import MOST, notes, print_compared
from runner.results.store import write_record

NAMES = ("before", "after")


def run(run_id, seconds=0.1, *, status="valid", image=None, **changes):
    """A run whose steps take `seconds`."""
    found = record(run_id=run_id, trial=examples.trial(**changes), status=status, seconds=seconds)
    return found.model_copy(update={"image": found.image.model_copy(update=image or {})})


def repeats(name, seconds, count=1, **changes):
    return [run(f"{name}-r{n}", seconds, repeat=n, **changes) for n in range(1, count + 1)]


def leave(folder, found):
    (folder / found.run_id).mkdir(parents=True)
    return write_record(folder / found.run_id, found)


def test_the_ratio_is_of_the_pooled_rates():
    """Before: 1280 images in 4 s and in 8 s, 213.3/s (the mean of the rates would be 240); after: 1280 in 8 s, 160/s."""
    found = compare([run("a1", 0.1), run("a2", 0.2, repeat=2)], [run("b", 0.2)], names=NAMES)
    (pair,) = found.pairs
    assert (pair.a.throughput, pair.b.throughput) == pytest.approx((2560 / 12, 160))
    assert pair.ratio == pytest.approx(0.75)
    assert (pair.ci95, pair.verdict) == (None, "too little")
    assert (pair.unit, pair.a.run_ids, pair.a.repeats, pair.b.windows) == ("images/s", ("a1", "a2"), 2, 20)


def test_the_slowest_comes_first_and_the_fastest_last():
    sizes = ({}, {"batch_per_device": 16}, {"batch_per_device": 8})
    before, after = (
        [
            one
            for size, seconds in zip(sizes, times, strict=True)
            for one in repeats(f"{side}{seconds}", seconds, 3, **size)
        ]
        for side, times in (("before", (0.1, 0.1, 0.1)), ("after", (0.2, 0.05, 0.3)))
    )
    found = compare(before, after, names=NAMES)
    assert [pair.b.run_ids[0] for pair in found.pairs] == ["after0.3-r1", "after0.2-r1", "after0.05-r1"]
    assert [pair.verdict for pair in found.pairs] == ["slower", "slower", "faster"]
    assert [pair.slower_than(40) for pair in found.pairs] == [True, True, False]
    assert not found.pairs[1].slower_than(60)


def test_noise_is_no_regression():
    """Three runs each that vary by a tenth, the later ones 0.1 % slower."""
    before, after = (
        [run(f"{side}{n}", mean * factor, repeat=n) for n, factor in enumerate((0.9, 1.0, 1.1), start=1)]
        for side, mean in (("a", 0.1), ("b", 0.1001))
    )
    found = compare(before, after, names=NAMES)
    assert found.pairs[0].verdict == "no difference shown"


def test_one_run_per_side_is_too_little_however_many_windows_it_has():
    """Prevents a regression concluded from the windows of one process, which all share that process's peculiarity."""
    found = compare([run("a", 0.1)], [run("b", 0.2)], names=NAMES)
    (pair,) = found.pairs
    assert (pair.ratio, pair.ci95, pair.verdict) == (pytest.approx(0.5), None, "too little")
    assert (pair.test, not pair.slower_than(0)) == (None, True)
    assert any("a side of fewer than 3 runs in 1 of 1" in note for note in notes(found))


def test_a_threshold_is_exceeded_if_the_whole_interval_lies_beyond_it():
    (pair,) = compare(repeats("a", 0.1, 4), repeats("b", 0.2, 4), names=NAMES).pairs
    for high, slower in ((0.9698, True), (0.9702, False)):
        assert pair.model_copy(update={"ci95": Interval(low=0.9, high=high)}).slower_than(3) is slower


@pytest.mark.parametrize(
    ("ratio", "p", "expected"),
    [
        (0.9, 0.049, "slower"),
        (0.9, 0.051, "no difference shown"),
        (1.1, 0.01, "faster"),
        (1.1, None, "too little"),
    ],
)
def test_a_verdict_needs_significance(ratio, p, expected):
    assert verdict(ratio, p) == expected


def test_the_p_of_equal_rates_by_hand():
    """Logarithms 0, 0.01, 0.02 and 0.05, 0.06, 0.07: 0.05 apart with a standard error of sqrt(2 x 1e-4 / 3), 4 degrees of freedom."""
    of_a, of_b = ([windows_at(math.exp(log)) for log in logs] for logs in ((0, 0.01, 0.02), (0.05, 0.06, 0.07)))
    t = math.log(metrics.pooled_rate(of_b) / metrics.pooled_rate(of_a)) / math.sqrt(2e-4 / 3)
    assert t == pytest.approx(6.124, rel=1e-3)
    assert metrics.equality_p(of_b, of_a) == pytest.approx(0.0036, abs=2e-5)
    assert metrics.equality_p(of_b[:2], of_a) is None
    assert metrics.equality_p(of_a[:1] * 3, of_a[:1] * 3) == 1
    assert metrics.equality_p(of_b[:1] * 3, of_a[:1] * 3) == 0


@pytest.mark.parametrize(
    ("t", "freedom", "p"),
    # Of one degree of freedom the tail is 1 - 2/pi x arctan(t); the others are 5 % points of tables.
    [(1, 1, 0.5), (12.7062, 1, 0.05), (2.7764, 4, 0.05), (2.0, 1e9, math.erfc(math.sqrt(2))), (0, 3, 1)],
)
def test_the_tail_of_students_t(t, freedom, p):
    assert metrics.student_p(t, freedom) == pytest.approx(p, abs=1e-5)


def test_equal_sides_differ_in_at_most_one_family_of_twenty():
    """Windows of a process vary less than processes; ranked, they showed a difference in a third of such families of ten pairs."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(200):
        families = [
            [[windows_at(math.exp(rate), spread=0.002, rng=rng) for rate in rng.normal(0, 0.005, 3)] for _ in range(2)]
            for _ in range(10)
        ]
        wrong += min(holm([metrics.equality_p(*sides) for sides in families])) < 0.05
    assert wrong <= 16  # of 10 expected at most, the 97th percentile


def windows_at(rate, *, spread=0.0, rng=None):
    """Twelve windows of one run at about this rate, of one second each."""
    rates = rate * np.exp(rng.normal(0, spread, 12)) if rng else np.full(12, rate)
    return metrics.GlobalWindows(rates, np.ones(12))


OTHERWISE = (
    *({"batch_per_device": 16}, {"precision": "bf16"}, {"world_size": 2}, {"model": "vgg16"}, {"mode": "infer"}),
    *({"image_shape": (3, 64, 64)}, {"interconnect": "shm"}, {"settings": {"n-critic": 5}}, {"xla": True}),
)
LOOKED_FOR = ({"iterations": 20}, {"version": "2.0"}, {"seed": 7}, {"threads": 2})


@pytest.mark.parametrize("change", [*OTHERWISE, *LOOKED_FOR], ids=str)
def test_runs_of_different_trials_are_no_pair_and_runs_of_one_trial_are(change):
    found = compare([run("a")], [run("b", **change)], names=NAMES)
    assert len(found.pairs) == (change in LOOKED_FOR)
    assert [alone.side for alone in found.unpaired] == ([] if found.pairs else ["A", "B"])
    for alone in found.unpaired[:1]:
        assert alone.differs[0] == next(iter(change)).replace("_", " ")


def test_inference_with_several_batches_in_flight_is_not_paired_with_one_at_a_time():
    """The rate of a host that waits for each batch was compared with that of a device with four in flight, as a gain of 2.1."""
    waits, busy = run("a", mode="infer"), run("b", mode="infer")
    busy = busy.model_copy(update={"measurement": busy.measurement.model_copy(update={"in_flight": 4})})
    found = compare([waits], [busy], names=NAMES)
    assert not found.pairs
    assert found.unpaired[0].differs == ("batches in flight",)
    assert "4 batches in flight" in in_words(identity(busy))
    assert "flight" not in in_words(identity(waits))


def test_data_sets_are_compared_by_content():
    """The same images have another path on another machine."""
    data = [
        Dataset(path=path, images=10, classes=2, digest=digest)
        for path, digest in (("/a", "x"), ("/b", "x"), ("/a", "y"))
    ]
    first, elsewhere, other = (identity(run("r", data=each.path, dataset=each)) for each in data)
    assert first == elsewhere != other


def test_other_differences_are_listed():
    found = compare(
        [run("a", image={"reference": "mxnet:1", "lock_sha256": None})],
        [run("b", image={"reference": "mxnet:2"}, threads=2)],
        names=NAMES,
    )
    told = {each.what: (each.a, each.b) for each in found.pairs[0].differences}
    assert told == {
        "image": (("mxnet:1",), ("mxnet:2",)),
        "lock": (("unknown",), ("a" * 12,)),
        "threads": (("1",), ("2",)),
    }


def test_sides_of_the_same_values_in_other_shares_differ():
    """Three runs of one thread and one of two were compared with one and three: nothing differed, and B was faster."""
    one, two = (
        [run(f"{side}{n}", threads=threads) for n, threads in enumerate(of)]
        for side, of in (("a", (1, 1, 1, 2)), ("b", (1, 2, 2, 2)))
    )
    (told,) = compare(one, two, names=NAMES).pairs[0].differences
    assert (told.what, told.a, told.b) == ("threads", ("1 (3 runs)", "2 (1 run)"), ("1 (1 run)", "2 (3 runs)"))
    assert compare(one, [*one], names=NAMES).pairs[0].differences == ()


def test_the_screen_only_counts_unpaired_trials_if_there_are_many():
    """Prevents a line of hundreds of characters for each trial of only one side."""
    sizes = range(1, MOST + 2)
    before, after = [run("a")], [run("b"), *(run(f"only{size}", batch_per_device=size) for size in sizes)]
    screen = open_console(width=80, file=io.StringIO())
    print_compared(screen, compare(before, after, names=NAMES), ())
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("only in B" in line for line in lines) == 1
    assert sum("only in B" in note for note in notes(compare(before, after, names=NAMES))) == len(sizes)


def test_invalid_runs_and_passes_are_left_out_and_degraded_ones_say_why():
    traced = ProfilePass(kind="kernels", after=None, iterations=5, region=None)
    doubted = run("a", status="degraded")
    found = compare([doubted, run("x", status="invalid"), run("p", profile=traced)], [run("b")], names=NAMES)
    (pair,) = found.pairs
    assert pair.a.run_ids == ("a",)
    assert (pair.a.doubts, pair.b.doubts) == (("made up",), ())
    assert any(note.endswith("degraded in A: made up") for note in notes(found))
    assert [(out.run_id, out.reason) for out in found.left_out] == [
        ("x", "invalid: made up"),
        ("p", "a pass under a profiler, which has no rate"),
    ]


def test_a_trial_in_words_has_its_non_default_settings():
    words = in_words(identity(run("a", xla=True, settings={"n-critic": 5}, interconnect="shm")))
    assert words == (
        "mxnet resnet18 train, fp32, 1 CPU worker (unknown cpu), batch 32 each, 32×32, xla, interconnect shm, n-critic 5"
    )


def test_a_threshold_is_a_percentage():
    assert read_percent("2.5%") == 2.5
    for text in ("3", "0.03", "-3%", "100%", "three%", ""):
        with pytest.raises(RequestError, match="write for example 3%"):
            read_percent(text)


@pytest.fixture
def sides(tmp_path):
    """Three repeats before, and three after that take a quarter longer: 0.8 times as fast."""
    for side, seconds in (("before", 0.1), ("after", 0.125)):
        for found in repeats(side, seconds, 3):
            leave(tmp_path / side / "machine", found)
    return tmp_path


def test_a_regression_fails_a_build(sides):
    done = dlscale("compare", sides / "before", sides / "after", "--fail-on-regression", "3%")
    assert done.code == 4
    assert "1 trial is more than 3 % slower" in done.stderr
    assert "-20.0 %" in done.stderr
    assert "slower" in done.stdout


@pytest.mark.parametrize(
    ("a", "b", "threshold"),
    [
        ("before", "after", ["--fail-on-regression=20%"]),
        ("before", "after", []),
        ("after", "before", ["--fail-on-regression=3%"]),
    ],
    ids=["allowed", "not asked", "faster"],
)
def test_an_allowed_regression_or_none_does_not_fail_a_build(sides, a, b, threshold):
    assert dlscale("compare", sides / a, sides / b, *threshold).code == 0


def test_json_has_every_figure(sides):
    done = dlscale("compare", sides / "before", f"{sides}/aft*", "--json")
    (pair,) = json.loads(done.stdout)["pairs"]
    assert pair["ratio"] == pytest.approx(0.8)
    assert (pair["verdict"], pair["a"]["run_ids"]) == ("slower", ["before-r1", "before-r2", "before-r3"])
    assert pair["test"]["p"] <= pair["test"]["p_holm"] < 0.05


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("before", "nowhere"), "does not exist; name a run directory"),
        (("", ""), "two sides are compared, before and after; name both"),
        (("before", "before"), "3 runs of A="),
        (("before", "empty"), "holds no record.json"),
        (("before", "other"), "differ in precision; name runs of one trial"),
        (("before", "after", "--fail-on-regression=3"), "is not a share below 100%"),
        (("before", "after", "--fail-on-regression=100%"), "is not a share below 100%"),
        (("before", "after", "--json", "--markdown"), "exclude each other"),
    ],
)
def test_a_usage_error_is_one_sentence(sides, words, says):
    (sides / "empty").mkdir()
    leave(sides / "other", run("other", precision="bf16"))
    done = dlscale("compare", *(word if word[:1] in ("", "-") else sides / word for word in words))
    assert done.code == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_damaged_record_is_named(sides):
    """It is not dropped silently: it may be the slower one."""
    path = sides / "before" / "machine" / "before-r2" / "record.json"
    path.write_text("{")
    done = dlscale("compare", sides / "before", sides / "after")
    assert done.code == 0
    assert "is not a run record" in done.stdout


def test_a_copy_of_a_run_is_no_repeat(tmp_path):
    """A copy of a side's only run lowered p and hid that the side has one run."""
    leave(tmp_path / "before", run("a", 0.1))
    leave(tmp_path / "after", run("b", 0.12))
    honest = dlscale("compare", tmp_path / "before", tmp_path / "after", "--markdown")
    leave(tmp_path / "after" / "backup", run("b", 0.12))
    done = dlscale("compare", tmp_path / "before", tmp_path / "after", "--markdown")
    assert (done.code, done.stdout) == (0, honest.stdout)
    assert "a side of fewer than 3 runs in 1 of 1" in done.stdout
    assert f"{tmp_path / 'after' / 'backup' / 'b'}: left out, it holds the same run as" in done.stderr


def test_holm_by_hand():
    """0.01 × 4, 0.02 × 3, 0.03 × 2, and 0.04 is not below its predecessor's 0.06."""
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx((0.06, 0.04, 0.06, 0.06))
    assert holm([0.6, 0.7]) == (1.0, 1.0)
    assert holm([]) == ()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_between_no_correction_and_bonferroni(ps):
    for p, corrected in zip(ps, holm(ps), strict=True):
        assert p <= corrected <= min(1, p * len(ps))
