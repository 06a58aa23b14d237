"""Prevents: a technique credited with another line's gain, or with that of a precision or batch; lines of two machines, scales or networks in
one table; a faster program that learns something else; figures of an invalid line.
"""

import math

import pytest
from planned import resources
from records import but
from swept import leave, measured

from runner.analysis.comparisons.ablation import ablations, curve
from runner.commands.report import report
from runner.core.errors import RequestError
from runner.core.request import Request
from runner.experiments.ablate import grow_batch, interleaved, line_requests
from runner.report import comparisons

pytestmark = pytest.mark.filterwarnings("error")  # a missing glyph is a warning

LAST, FUSED, COMPILE = "channels-last", "fused-optimizer", "compile"
DATA = {"path": "/data/set", "images": 4000, "classes": 10, "digest": "d" * 64}
PLAIN = measured(64, 1000.0, run_id="plain")
HALF = measured(64, 2000.0, precision="bf16", run_id="half")
ONE = measured(64, 3000.0, precision="bf16", run_id="one", techniques=(LAST,))
TWO = measured(64, 4500.0, precision="bf16", run_id="two", techniques=(LAST, COMPILE))
LARGE = measured(128, 5000.0, precision="bf16", run_id="large", techniques=(LAST, COMPILE))


def losing(losses, *, seed=1, techniques=(), run_id=None):
    """A run on real images with these losses, one per step."""
    name = run_id or f"seed{seed}-{len(techniques)}"
    fields = {"data": DATA["path"], "dataset": DATA, "seed": seed, "techniques": techniques}
    return but(measured(64, 1000.0, run_id=name, **fields), measurement={"losses": {"0": tuple(losses)}})


def test_each_line_is_compared_with_the_first_and_the_previous_one():
    (found,) = ablations((TWO, LARGE, PLAIN, ONE, HALF))
    assert [line.label for line in found.rows] == [
        "fp32, plain, batch 64",
        "+ bf16",
        f"+ {LAST}",
        f"+ {COMPILE}",
        "+ batch 128",
    ]
    assert [line.ratio for line in found.rows] == [None, *map(pytest.approx, (2.0, 3.0, 4.5, 5.0))]
    assert [line.gain for line in found.rows] == [None, *map(pytest.approx, (2.0, 1.5, 1.5, 5 / 4.5))]
    assert found.name == "ablation-pytorch-2.15.0-resnet50-224px-1gpu"


def test_a_line_that_lacks_a_technique_of_the_previous_one_is_labelled_in_full():
    other = measured(64, 3100.0, precision="bf16", run_id="other", techniques=(FUSED,))
    (found,) = ablations((HALF, ONE, other))
    assert [line.label for line in found.rows][1:] == [f"+ {LAST}", f"bf16, {FUSED}, batch 64"]


def test_without_a_plain_line_the_one_with_the_fewest_techniques_comes_first():
    (found,) = ablations((TWO, ONE))
    assert [line.label for line in found.rows] == [f"bf16, {LAST}, batch 64", f"+ {COMPILE}"]
    assert [line.ratio for line in found.rows] == [None, pytest.approx(1.5)]


FULL = measured(64, 900.0, run_id="full", techniques=(FUSED,))


@pytest.mark.parametrize(
    ("runs", "found"),
    [((PLAIN, HALF), 0), ((TWO, LARGE), 0), ((ONE, LARGE), 0), ((FULL, ONE), 0), ((FULL, ONE, TWO), 1)],
    ids=["a precision", "a batch", "a batch and a technique", "a precision and a technique", "a technique"],
)
def test_runs_that_differ_in_more_than_techniques_are_no_ablation(runs, found):
    assert len(ablations(runs)) == found


def test_an_invalid_line_has_a_reason_and_no_figure():
    bad = measured(64, 9000.0, precision="bf16", run_id="bad", techniques=(LAST,), status="invalid")
    (found,) = ablations((HALF, bad, TWO))
    assert (found.rows[1].row.throughput, found.rows[1].ratio, found.rows[2].gain) == (None, None, None)
    assert found.rows[2].ratio == pytest.approx(2.25)
    assert f"+ {LAST} invalid: made up" in found.notes


def test_losses_are_compared_as_means_of_ten_steps():
    assert curve(losing([*[1.0] * 10, *[3.0, 5.0] * 5, *[9.0] * 9])[1]) == (1.0, 4.0)
    assert curve(losing([*[1.0] * 10, None, *[1.0] * 9])[1]) == (1.0,)


def zigzag(level, width):
    """Losses that differ from a level by `width`: ten steps above it, ten below."""
    return [*[level + width] * 10, *[level - width] * 10]


def test_a_line_learns_alike_if_it_is_as_close_as_another_seed():
    """Seeds at 1, 2 and 3: any two are at most 2 apart, step by step and in the mean; all lines have seed 1."""
    seeds = [losing([float(seed)] * 20, seed=seed) for seed in (1, 2, 3)]
    near = losing([2.9] * 20, techniques=(LAST,))
    higher = losing([3.1] * 20, techniques=(LAST, COMPILE))
    rough = losing(zigzag(1.0, 2.1), techniques=(LAST, COMPILE, "cuda-graphs"))
    (found,) = ablations((*seeds, near, higher, rough))
    plain, *told = [line.losses for line in found.rows]
    assert plain is None
    assert [(one.distance, one.shift) for one in told] == [
        pytest.approx((1.9, 1.9)),
        pytest.approx((2.1, 2.1)),
        pytest.approx((2.1, 0.0)),
    ]
    assert [(one.spread, one.shift_spread, one.steps) for one in told] == [(2.0, 2.0, 20)] * 3
    assert [one.within for one in told] == [True, False, False]
    assert any(
        f"+ {COMPILE}: over 20 steps its losses are 2.1 from the plain program's and +2.1" in note
        for note in found.notes
    )
    assert comparisons.ablation(found).tables[0].rows[2][-3:-1] == (
        "2.100 of 2.000, outside",
        "2.100 of 2.000, outside",
    )


def test_a_line_that_learns_slightly_less_in_every_step_is_outside():
    """Seeds whose curves cross are far apart in each step but not in the mean: a line half as far in each step, but always above, differs."""
    seeds = [losing(zigzag(1.0, width), seed=seed) for seed, width in ((1, 0.0), (2, 0.4), (3, -0.4))]
    (found,) = ablations((*seeds, losing([1.1] * 20, techniques=(LAST,))))
    told = found.rows[1].losses
    assert told.distance < told.spread
    assert not told.within


@pytest.mark.parametrize(
    ("seeds", "seed", "told"),
    [((1, 2, 3), 1, (0, 0)), ((1, 2, 3), 4, None), ((1, 2), 1, None)],
    ids=["its own seed", "a seed that the plain program did not have", "two seeds are too few"],
)
def test_losses_are_compared_with_a_plain_run_of_the_same_seed(seeds, seed, told):
    plain = [losing([float(own)] * 20, seed=own) for own in seeds]
    (found,) = ablations((*plain, losing([1.0] * 20, seed=seed, techniques=(LAST,))))
    losses = found.rows[1].losses
    assert (losses and (losses.distance, losses.shift)) == told


def test_losses_of_an_invalid_line_are_not_compared():
    seeds = [losing([float(seed)] * 20, seed=seed) for seed in (1, 2, 3)]
    broken = losing([*[1.0] * 10, *[math.inf] * 10], techniques=(LAST,))
    (found,) = ablations((*seeds, but(broken, validity={"status": "invalid", "reasons": ("a loss is not finite",)})))
    assert (found.rows[1].losses, found.rows[1].row.throughput) == (None, None)


def test_report_draws_the_ablation_next_to_the_runs_and_on_the_page(tmp_path):
    for run in (PLAIN, HALF, ONE, TWO):
        leave(tmp_path, run)
    report([tmp_path], out=None)
    text = (tmp_path / "ablation-pytorch-2.15.0-resnet50-224px-1gpu.md").read_text(encoding="utf-8")
    (found,) = ablations((PLAIN, HALF, ONE, TWO))
    assert text == comparisons.ablation(found).markdown()
    assert f"| \\+ {COMPILE} | 1 | 4,500 | 4.500 | 1.500 | valid |" in text
    assert 'id="ablations"' in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert comparisons.ablation(found).page_block().lead.startswith("4.500 × the first line")


def test_each_planned_line_adds_one_technique():
    on = resources("pytorch", "gpu")
    lines = list(line_requests(Request(gpus=(1,)), on, scale=1, batches=(512,)))
    assert [len(line.techniques) for line in lines] == [0, 0, 1, 2, 3, 4, 5, 6, 7, 7]
    assert [line.precision for line in lines[:3]] == ["fp32", "bf16", "bf16"]
    assert lines[-1].batch == 512
    assert lines[-2].techniques[-1] == "cuda-graphs"
    several = list(line_requests(Request(gpus=(2,), precision="tf32"), on, scale=2, batches=()))
    assert {line.precision for line in several} == {"tf32"}
    assert several[-1].techniques[-4:] == ("cuda-graphs", "local-statistics", "one-message", "bf16-gradients")


def test_without_techniques_there_is_nothing_to_run():
    with pytest.raises(RequestError, match="not offered by FRAMEWORK=caffe"):
        list(line_requests(Request(), resources("caffe"), scale=1, batches=()))


def test_every_round_runs_every_line_and_on_real_data_three_plain_seeds():
    lines = (Request(batch=1), Request(batch=2))
    assert [line.batch for line in interleaved(lines, Request(repeat=2))] == [1, 2, 1, 2]
    told = [(line.batch, line.seed) for line in interleaved(lines, Request(repeat=1, seed=7, data="/data"))]
    assert told == [(1, 7), (1, 8), (1, 9), (2, 7)]


@pytest.mark.parametrize(
    ("rates", "ran"),
    [
        # 1.05 and 1.02 are gains, 1.005 is none; a batch that does not fit has no rate.
        ({64: 1000.0, 128: 1050.0, 256: 1071.0, 512: 1076.0}, [128, 128, 256, 256, 512, 512]),
        ({64: 1000.0, 128: 900.0}, [128, 128]),
        ({64: 1000.0, 128: None}, [128, 128]),
        ({64: None}, []),
    ],
)
def test_the_batch_grows_while_throughput_gains(rates, ran):
    done = []

    def run(line):
        batch = line.batch or 64
        done.append(batch)
        rate = rates[batch]
        return [measured(batch, rate or 1.0, run_id=str(len(done)), status="valid" if rate else "invalid")]

    before = run(Request())
    grow_batch(Request(), before, resources("pytorch", "gpu"), run, repeat=2)
    assert done[1:] == ran
