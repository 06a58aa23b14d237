"""Prevents: one GPU's interval applied to all GPUs of its kind; two runs on one GPU taken for two GPUs; comparisons of different trainings, or
across GPU models, drivers, versions or programs; an invalid rate among them; a run on an unknown one of several GPUs; a throttled GPU that
is not reported.
"""

from __future__ import annotations

import pytest
from records import but
from swept import H200, leave, measured

from runner.analysis.comparisons.devices import devices
from runner.analysis.comparisons.identity import cells
from runner.commands.report import check_pages, report
from runner.report import comparisons

SECOND, THIRD = (H200.model_copy(update={"uuid": f"GPU-{name}"}) for name in ("aaaa-bbbb-1", "cccc-dddd-2"))


def on(gpu, rate, *, batch=64, status="valid", provenance=None, telemetry=True, **changes):
    """A run on a GPU; `provenance`: other facts of its provenance."""
    path, record = measured(batch, rate, status=status, run_id=f"{gpu.uuid}-{batch}-{rate}", **changes)
    watched = record.telemetry and record.telemetry.model_copy(
        update={"gpus": tuple(one.model_copy(update={"uuid": gpu.uuid}) for one in record.telemetry.gpus)}
    )
    found = record.provenance.model_copy(update={"gpus": (gpu,)} | (provenance or {}))
    return path, record.model_copy(update={"telemetry": watched if telemetry else None, "provenance": found})


# At batch 64 three GPUs: 1,000, 1,010 and 1,100 images/s; at 128 two of them: 2,000 and 2,100.
SMALL = (on(H200, 1000), on(SECOND, 1010), on(THIRD, 1100))
LARGE = (on(SECOND, 2100, batch=128), on(H200, 2000, batch=128))


def test_the_fastest_gpu_is_compared_with_the_slowest():
    (found,) = devices((*SMALL, *LARGE))
    assert [training.label for training in found.trainings] == [
        f"resnet50 train, fp32, batch {batch} each, 224×224" for batch in (64, 128)
    ]
    small, large = found.trainings
    assert [gpu.uuid for gpu in small.gpus] == [H200.uuid, SECOND.uuid, THIRD.uuid]
    assert [gpu.rate for gpu in large.gpus] == pytest.approx([2000, 2100])
    assert (small.ratio, large.ratio) == pytest.approx((1.1, 1.05))
    assert found.median_ratio == pytest.approx(1.075)
    # Six GPUs in pairs passed for six that ran the same.
    assert found.lead.startswith("fastest of 2 to 3 GPUs ÷ slowest")
    assert found.lead.endswith(": median 1.075, at most 1.100; 3 GPUs in all")
    assert devices(SMALL)[0].lead.endswith("at most 1.100")
    assert found.name == "devices-pytorch-2.15.0-nvidia-h200-docker-images"


def test_each_gpu_is_compared_with_the_median_of_those_that_ran_the_same():
    (found,) = devices((*SMALL, *LARGE))
    assert [(one.uuid, one.trainings) for one in found.standings] == [(H200.uuid, 2), (SECOND.uuid, 2), (THIRD.uuid, 1)]
    slow, second, third = found.standings
    assert (slow.low, slow.high) == pytest.approx((2000 / 2050, 1000 / 1010))
    assert slow.median == pytest.approx((2000 / 2050 + 1000 / 1010) / 2)
    assert (second.low, second.high) == pytest.approx((1.0, 2100 / 2050))
    assert third.median == pytest.approx(1100 / 1010)
    assert comparisons.devices(found).tables[1].rows[2] == ("GPU-cccc-ddd", "1", "1.089", "1.089", "1.089")


def test_a_cell_of_several_gpus_has_no_interval():
    """Five runs on one GPU and three on another passed for eight of one, with an interval that excluded the second."""
    same = [on(H200, rate)[1] for rate in (1000, 1004, 1008)]
    (one,), (two,) = cells(same), cells([*same, SMALL[1][1]])
    assert (one.row.throughput_ci95 is None, len(one.runs)) == (False, 3)
    assert (two.row.throughput_ci95, len(two.runs)) == (None, 4)


def test_runs_on_one_gpu_are_its_repeats():
    again = on(H200, 1020)
    assert devices((SMALL[0], again)) == ()
    (found,) = devices((SMALL[0], again, SMALL[1]))
    (training,) = found.trainings
    assert sorted(len(gpu.runs) for gpu in training.gpus) == [1, 2]
    # 128 images in 64/1,000 + 64/1,020 seconds, not the mean of two rates.
    repeated = next(gpu for gpu in training.gpus if gpu.uuid == H200.uuid)
    assert repeated.rate == pytest.approx(128 / (64 / 1000 + 64 / 1020))


def test_a_single_run_and_the_ratio_of_selected_gpus_have_no_interval():
    """The fastest of several is selected by its result: an interval of its ratio to the slowest would not have its nominal coverage."""
    often = [on(H200, rate) for rate in (1000, 1001, 1002)]
    (found,) = devices((*often, SMALL[1]))
    table = comparisons.devices(found).tables[0]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["runs"], row["slowest's runs"], row["fastest's runs"]) == ("4", "3", "1")
    assert row["slowest (images/s) ±"] == "1,001.0 ± 2.5"  # t(2) × 1 ÷ sqrt(3)
    assert (row["fastest (images/s) ±"], row["÷ slowest"]) == ("1,010", "1.009")


@pytest.mark.parametrize(
    "other",
    [
        on(SECOND, 1010, provenance={"driver": "1.2.3"}),
        on(SECOND, 1010, provenance={"workloads_sha256": "d" * 64}),
        on(SECOND, 1010, status="invalid"),
        but(on(SECOND, 1010), image={"lock_sha256": "e" * 64}),
    ],
    ids=("driver", "programs", "invalid", "image"),
)
def test_invalid_runs_and_those_of_another_driver_program_or_image_are_not_compared(other):
    assert devices((SMALL[0], other)) == ()
    assert len(devices((SMALL[0], other, SMALL[2]))) == 1


def test_without_samplers_the_gpu_is_the_only_visible_one():
    (found,) = devices((on(H200, 1000, telemetry=False), on(SECOND, 1010, telemetry=False)))
    assert "slowest's clock (MHz)" not in comparisons.devices(found).tables[0].columns
    unknown = on(SECOND, 1010, telemetry=False, provenance={"gpus": (SECOND, THIRD)})
    assert devices((SMALL[0], unknown)) == ()
    assert devices(()) == ()


def test_a_throttled_gpu_is_reported():
    (found,) = devices((SMALL[0], on(SECOND, 1010, status="degraded")))
    table = comparisons.devices(found).tables[0]
    assert (table.columns[-1], table.rows[0][-1]) == ("degraded", "1")
    (found,) = devices(SMALL)
    assert "degraded" not in comparisons.devices(found).tables[0].columns


def test_gpus_are_compared_across_folders(tmp_path):
    for folder, run in zip(("a", "b", "b/c"), SMALL, strict=True):
        (tmp_path / folder).mkdir()
        leave(tmp_path / folder, run)
    report((tmp_path,), out=None)
    (found,) = devices(SMALL)
    assert {path: path.read_text("utf-8") for path in tmp_path.rglob("devices-*")} == {
        tmp_path / f"{found.name}.md": comparisons.devices(found).markdown()
    }
    page = (tmp_path / "report.md").read_text("utf-8")
    assert found.lead in page
    assert f"[md]({found.name}.md)" in page
    check_pages([tmp_path])
