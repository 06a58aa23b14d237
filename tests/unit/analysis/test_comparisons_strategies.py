"""Prevents: ways of another training, scale, software or precision held against each other; options of Horovod pooled as repeats of one way;
an efficiency to another key's baseline; a ratio to a run that may not be used; other locked requirements that nobody is told of.
"""

from __future__ import annotations

import pytest
from records import but
from scaled import ran

from runner.analysis.comparisons.settings import strategies
from runner.core.measurement import StepParts
from runner.report import comparisons

pytestmark = pytest.mark.filterwarnings("error")  # a glyph that the font lacks is a warning

GLOO = {
    "controller": "gloo",
    "operations": "gloo",
    "fusion_threshold_mib": None,
    "cycle_time_ms": None,
    "compression": "none",
}


def horovod(devices, rate, *, status="valid", matrix="h", **options):
    changes = {"strategy": "horovod", "horovod": GLOO | options}
    return ran("lenet", devices, rate, matrix=f"{matrix}{len(options)}", status=status, **changes)


# 100 images/s on one device; on two 180 and 150 in two ways.
ALONE, DDP = ran("lenet", 1, 100), ran("lenet", 2, 180)
HOROVOD = horovod(2, 150)


def test_ways_are_held_against_the_frameworks_own_and_against_one_device():
    (found,) = strategies((HOROVOD, DDP, ALONE))
    assert [way.label for way in found.rows] == ["ddp", "horovod over gloo, gloo controller"]
    own, other = found.rows
    assert (own.ratio, own.ratio_ci95) == (None, None)
    assert other.ratio == pytest.approx(150 / 180)
    assert [way.row.throughput for way in found.rows] == pytest.approx([180, 150])
    assert [way.row.efficiency for way in found.rows] == pytest.approx([0.9, 0.75])
    assert (own.runs, other.runs) == ((DDP[1].run_id,), (HOROVOD[1].run_id,))
    assert found.name == "strategies-pytorch-1.9.1-lenet-32px-fp32-batch32-2cpu"
    assert found.setting == "lenet 32×32, batch 32 per device, fp32, 2 workers × 1 core"


def test_without_a_run_on_one_device_there_is_no_efficiency_but_a_ratio():
    (found,) = strategies((HOROVOD, DDP, ran("lenet", 1, 100, key="another")))
    assert [way.row.efficiency for way in found.rows] == [None, None]
    assert found.rows[1].ratio == pytest.approx(150 / 180)
    assert comparisons.strategies(found).tables[0].columns == (
        "strategy",
        "runs",
        "images/s ±",
        "÷ first ±",
        "validity",
    )


def test_what_horovod_is_told_makes_a_way_of_its_own():
    told = (horovod(2, 120, fusion_threshold_mib=8), horovod(2, 110, cycle_time_ms=5, compression="fp16"))
    (found,) = strategies((DDP, HOROVOD, *told))
    assert [way.label for way in found.rows] == [
        "ddp",
        "horovod over gloo, gloo controller",
        "horovod over gloo, gloo controller, cycle time 5 ms, compression fp16",
        "horovod over gloo, gloo controller, fusion threshold 8 MiB",
    ]
    assert [way.row.repeats for way in found.rows] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "bf16"},
        {"model": "alexnet"},
        {"version": "2.6.0"},
        {"techniques": ("channels-last",)},
        {"batch_per_device": 64},
        {"interconnect": "loopback"},
        {"mode": "converge"},
        {"loader_workers": 4},
    ],
    ids=str,
)
def test_what_differs_in_more_than_the_way_is_not_held_against_it(changes):
    assert strategies((DDP, ALONE, but(HOROVOD, trial=changes))) == ()


def test_other_scales_and_a_single_way_are_no_comparison():
    assert strategies(()) == ()
    assert strategies((DDP, ALONE)) == ()
    assert strategies((DDP, horovod(4, 300))) == ()
    assert strategies((ALONE, horovod(1, 90))) == ()


def test_a_way_that_may_not_be_used_has_a_line_and_no_figure():
    (found,) = strategies((DDP, ALONE, horovod(2, 999, status="invalid")))
    bad = found.rows[1]
    assert (bad.row.throughput, bad.row.efficiency, bad.ratio) == (None, None, None)
    assert f"{bad.label} invalid: made up" in found.notes
    (found,) = strategies((ran("lenet", 2, 180, status="invalid"), HOROVOD))
    assert found.rows[1].ratio is None
    assert comparisons.strategies(found).page_block().lead == "no usable run"


def test_ranks_that_do_not_wait_for_each_other_and_other_requirements_are_told():
    mxnet = {"framework": "mxnet", "strategy": "kvstore"}
    runs = [ran("lenet", 2, rate, kvstore=store, **mxnet) for store, rate in (("dist_sync", 180), ("dist_async", 200))]
    (found,) = strategies(runs)
    assert [way.label for way in found.rows] == ["kvstore dist_async", "kvstore dist_sync"]
    (note,) = found.notes
    assert note.startswith("kvstore dist_async: a rank goes on with the weights that it finds")
    (found,) = strategies((DDP, but(HOROVOD, image={"lock_sha256": "e" * 64})))
    assert found.notes == ("2 versions of the locked requirements were run: not the strategy alone differs",)


def test_the_table_says_where_a_step_goes():
    parts = StepParts(step_s=0.4, exchange_alone_s=0.05, communication_s=0.1)
    (found,) = strategies((DDP, ALONE, but(HOROVOD, measurement={"step_parts": parts})))
    table = comparisons.strategies(found).tables[0]
    assert table.columns[5:8] == ("step (ms)", "exchange alone (ms)", "communication (ms)")
    assert [row[5:8] for row in table.rows] == [("–", "–", "–"), ("400.0", "50.00", "100.0")]
    assert "| horovod over gloo, gloo controller | 1 | 150.0 | 0.833 |" in comparisons.strategies(found).markdown()
    shown = comparisons.strategies(found).page_block()
    assert shown.lead == "horovod over gloo, gloo controller: 0.833 of ddp"
    assert shown.figures[0].series[0].y == pytest.approx((180, 150))
