"""Published figures with their measured counterparts, and a whole reproduction.

Prevents: a figure called reproduced on other hardware, from a run with any difference, from degraded runs or from one run; an absolute figure
judged if only its shape can be; a run of one batch, network or GPU compared with a figure of another; a table of planned instead of actual
software; a skipped cell without its reason.

After an intended change, `DLSCALE_GOLDEN=write make test` rewrites the golden file; read the difference before committing it.
"""

from __future__ import annotations

import json

import examples
import pytest
import studied
from goldens import expected
from made_up_source import rate, source, table
from studied import observation

from runner.core.measurement import Interval
from runner.core.record import Validity
from runner.core.request import Request
from runner.experiments.studies.evidence import Evidence
from runner.experiments.studies.model import Altered, Cell, CellRun, Pick, Reproduction
from runner.experiments.studies.reproduction import compared, judge
from runner.experiments.studies.study import Study

GOLDEN = examples.ROOT / "tests" / "golden" / "studies" / "made-up.reproduction.json"
STUDY = Study.model_validate(
    {
        "id": "made-up-study",
        "source": "made-up",
        "title": "Made up",
        "same": {"gpus": {"v100": ["Tesla V100"]}, "why": "made up"},
        "tolerances": [
            {"metrics": ["throughput", "training_time"], "share": 0.15, "why": "made up"},
            {"metrics": ["speedup", "throughput_ratio", "speed_ratio"], "share": 0.1, "why": "made up"},
        ],
        "blocks": [
            {
                "id": "block",
                "says": "made up",
                "where": {"framework": "mxnet"},
                "models": {"resnet50": "resnet50"},
                "batches": [32],
                "iterations": 40,
            }
        ],
    }
)
CURVE = table(rate(1, 100), rate(2, 190), rate(4, 360))


def against(published, *observations, device="gpu", cells=()):
    """Return comparisons by figure and metric."""
    evidence = Evidence(
        published=published, observations=observations, cells=cells, device=device, device_name="Example CPU"
    )
    return {(one.figure, one.metric): one for one in compared(evidence, STUDY)}


def here(value, **more):
    """A figure of three valid runs, 1 % apart."""
    known = {"repeats": 3, "ci95": (0.99 * value, 1.01 * value)}
    return observation(value, **({"model": "resnet50", "gpu": "v100", "gpus": 1} | known | more))


SPEEDUP = {"metric": "speedup", "unit": "x"}
ELSEWHERE = {"gpu": None, "device_name": "NVIDIA H200"}
DAY = table({"id": "d", "value": 1, "bound": "<"}, metric="full_training_time", unit="days")
POWER = table({"id": "p", "value": 100}, metric="power_avg", unit="W")
TO_CPU = table({"id": "r", "value": 5, "gpus": 1, "versus": {"device": "cpu"}}, metric="speed_ratio", unit="x")
NO_BATCH = "batch (not stated there, 16, 32 here)"


def day(count):
    return here(count * 86400, metric="full_training_time", unit="s")


@pytest.mark.parametrize(
    ("tables", "observations", "figure", "verdict", "fields"),
    [
        # On the same hardware, the tolerance decides.
        *((CURVE, [here(value)], "g1", "reproduced", ()) for value in (114, 86)),
        *((CURVE, [here(value)], "g1", "differs", ()) for value in (116, 84)),
        (DAY, [day(0.9)], "d", "reproduced", ()),
        (DAY, [day(1.1)], "d", "differs", ()),
        # Other hardware, and any other difference: the rate of a run that was only shorter was called reproduced.
        (CURVE, [here(100, **ELSEWHERE)], "g1", "not comparable", ("gpu (V100 there, NVIDIA H200 here)",)),
        (CURVE, [here(100, gpu=None, degraded=3)], "g1", "not comparable", ("gpu (V100 there, Example here)",)),
        (CURVE, [here(100, gpu=None, device="cpu")], "g1", "not comparable", ("gpu (V100 there, Example here)",)),
        *(
            (CURVE, [here(100, altered=(field,))], "g1", "not comparable", (field,))
            for field in ("image_size", "iterations", "normalization")
        ),
        # With any difference, a shape agrees at most.
        (CURVE, [here(1.9, gpus=2, **SPEEDUP, altered=("optimizer",))], "g2", "shape agrees", ("optimizer",)),
        (CURVE, [here(1.8, gpus=2, **SPEEDUP | ELSEWHERE)], "g2", "shape agrees", ("gpu (V100 there, NVIDIA H200 here)",)),
        (CURVE, [here(2.9, gpus=4, **SPEEDUP | ELSEWHERE)], "g4", "shape differs", ("gpu (V100 there, NVIDIA H200 here)",)),
        # Several runs match the figure; a batch that the study chose is named once.
        (CURVE, [here(100, batch=32), here(90, batch=16)], "g1", "not comparable", (NO_BATCH,)),
        (CURVE, [here(100, batch=32, altered=("batch",)), here(90, batch=16, altered=("batch",))], "g1", "not comparable", (NO_BATCH,)),
        (POWER, [here(100, metric="power_avg", unit="W")], "p", "not comparable", ("tolerance (the study states none)",)),
        (CURVE, [here(100, extra=True)], "g1", "not measured", ()),
    ],
)  # fmt: skip
def test_a_figure_is_reproduced_only_without_differences_otherwise_its_shape_is_judged(
    tables, observations, figure, verdict, fields
):
    found = against(source(tables), *observations)
    one = found[figure, observations[0].metric]
    assert (one.verdict, one.fields, one.doubts) == (verdict, fields, ())
    if fields == (NO_BATCH,):
        assert (one.among, one.ratio) == (Interval(low=90, high=100), None)
    elif one.measured:
        assert one.among is None
        assert one.ratio == pytest.approx(one.measured.value / float(one.published) / (86400 if figure == "d" else 1))


def test_a_time_of_a_shorter_run_has_no_ratio():
    """The source's time of an epoch was divided by that of 500 iterations: 154 times as fast, of 8.6 by throughput."""
    hour = table({"id": "t", "value": 3600, "gpus": 1}, metric="training_time", unit="s")
    of = {"metric": "training_time", "unit": "s"}
    for altered, ratio in (("iterations", None), ("optimizer", 0.01)):
        one = against(source(hour), here(36, altered=(altered,), **of))["t", "training_time"]
        assert (one.measured.value, one.ratio, one.verdict) == (36, ratio, "not comparable")


def test_the_ratio_has_the_figures_interval_and_no_speedup_is_derived_for_one_device():
    found = against(source(CURVE), here(50, ci95=(45, 55)))
    own = found["g1", "throughput"].ratio_ci95
    assert (own.low, own.high) == (pytest.approx(0.45), pytest.approx(0.55))
    assert float(found["g2", "speedup"].published) == pytest.approx(1.9)
    assert ("g1", "speedup") not in found


@pytest.mark.parametrize(
    ("basis", "doubts"),
    [
        ({"degraded": 1}, ("degraded runs",)),
        ({"repeats": 1, "ci95": None}, ("1 run",)),
        ({"repeats": 2, "ci95": None}, ("2 runs",)),
        ({"ci95": None}, ("no interval",)),
        ({"degraded": 1, "repeats": 1, "ci95": None}, ("degraded runs", "1 run")),
    ],
)
@pytest.mark.parametrize(("measured", "verdict"), [(100, "indicated"), (200, "not indicated")])
def test_too_few_runs_are_inconclusive(measured, verdict, basis, doubts):
    """One degraded run of two windows was called reproduced."""
    found = against(source(CURVE), here(measured, **basis))["g1", "throughput"]
    assert (found.verdict, found.doubts, found.fields) == (verdict, doubts, ())
    assert found.ratio == pytest.approx(measured / 100)


def test_a_ratio_uses_the_two_runs_that_it_names():
    row = {"id": "half", "value": 0.5, "network": "eth", "versus": {"network": "ib"}}
    half = table(row, metric="throughput_ratio", unit="x", gpus=2)
    wires = [{"id": "ib", "name": "InfiniBand", "gbit_s": 100}, {"id": "eth", "name": "Ethernet", "gbit_s": 10}]
    pair = [here(value, gpus=2, nodes=2, network=name) for name, value in (("ib", 200), ("eth", 104))]
    found = against(source(half, wires=wires), *pair)["half", "throughput_ratio"]
    assert found.measured.value == pytest.approx(0.52)
    assert found.verdict == "reproduced"


def test_a_missing_measurement_has_its_reason():
    cell = Cell(id="c", block="block", where={"model": "resnet50", "gpus": 4}, why="4 GPUs, here are 2 CPU cores")
    found = against(source(CURVE), here(100), cells=[CellRun(cell=cell)])
    assert found["g4", "throughput"].why == "4 GPUs, here are 2 CPU cores"
    assert found["g2", "throughput"].why == "no cell of this study gives it"
    of_cpu = against(source(TO_CPU), here(9, gpu=None, device="cpu"), device="cpu")["r", "speed_ratio"]
    assert of_cpu.why == "a GPU is to be held against a CPU, and here is only Example CPU"


def test_specifications_are_not_compared():
    peak = table({"id": "peak", "value": 14}, metric="fp32_peak", unit="TFLOP/s") | {"kind": "spec"}
    assert against(source(peak)) == {}


def rounded(value):
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def made_up_cell(id_, where, **more):
    request = Request(framework="mxnet", version="1.9.1", model="resnet50", workers=(where["gpus"],), batch=32)
    own = {"request": request, "pick": Pick(devices=where["gpus"])}
    return Cell(id=id_, block="block", where=where, **own | more)


def made_up():
    """A study of three scales on two cores, with a finding for each verdict."""
    predicates = {
        "rises": {"type": "monotonic", "over": "gpus", "direction": "increasing", "levels": [1, 2, 4]},
        "doubles": {"type": "ratio", "num": {"gpus": 2}, "den": {"gpus": 1}, "value": 2, "rel_tol": 0.05},
        "busy": {"type": "bound", "metric": "gpu_utilisation_avg", "op": "<", "value": 100, "unit": "%"},
    }
    about = {"says": "made up", "basis": "stated", "where": "p. 1"}
    findings = tuple(
        {"id": name, **about, "predicate": {"metric": "throughput"} | predicate}
        for name, predicate in predicates.items()
    )
    runs = []
    for gpus in (1, 2, 4):
        where = {"framework": "mxnet", "version": "0.7.0", "model": "resnet50", "gpus": gpus, "nodes": 1}
        if gpus > 2:
            cell = made_up_cell(f"block.{gpus}gpus", where, request=None, pick=None, why="4 GPUs, here are 2 CPU cores")
            runs.append(CellRun(cell=cell))
        else:
            planned = (Altered(field="version", published="0.7.0", here="planned"),)
            cell = made_up_cell(f"block.{gpus}gpus", where, altered=planned)
            runs.append(studied.ran(cell, studied.machine(), repeats=1))
    return judge(
        STUDY,
        published=source(CURVE, findings=findings),
        runs=runs,
        machine=studied.machine().model_copy(update={"images": ()}),
        scale="small",
        made_at=studied.NOW,
        git="c" * 40,
    )


class TestReproduction:
    def test_golden(self):
        """Compared to ten digits: the last ones of a bootstrap depend on the processor."""
        found = made_up()
        text = json.dumps(rounded(json.loads(found.model_dump_json(exclude_defaults=True))), indent=1) + "\n"
        assert text == expected(GOLDEN, text)
        assert Reproduction.model_validate_json(found.model_dump_json()) == found

    def test_every_cell_has_an_outcome_and_every_finding_a_verdict(self):
        found = made_up()
        assert [(one.id, one.status) for one in found.cells] == [
            ("block.1gpus", "ran"),
            ("block.2gpus", "ran"),
            ("block.4gpus", "skipped"),
        ]
        assert {one.finding.id: (one.verdict, one.doubts) for one in found.judgements} == {
            "rises": ("indicated", ("1 run",)),
            "doubles": ("not indicated", ("1 run",)),
            "busy": ("not testable here", ()),
        }
        assert "CPU workers of Example CPU stand for the source's GPUs" in found.notes[-1]

    def test_windows_are_kept_only_for_findings_over_time(self):
        assert not [one for one in made_up().observations if one.iterations is not None]
        dell = studied.reproduced("dell-p100", studied.machine(), repeats=1)
        assert {one.metric for one in dell.observations if one.iterations is not None} == {"throughput"}

    def test_a_cell_without_usable_runs_failed_and_one_that_did_not_start_is_open(self):
        cell = made_up_cell("c", {"model": "resnet50", "gpus": 1})
        (run,) = studied.ran(cell, studied.machine(), repeats=1).runs
        invalid = run.model_copy(update={"validity": Validity(status="invalid", reasons=("lost a rank",))})
        runs = [
            CellRun(cell=cell, runs=(invalid,)),
            CellRun(cell=cell),
            CellRun(cell=cell, why="the image could not be built"),
        ]
        found = judge(
            STUDY, published=source(CURVE), runs=runs, machine=studied.machine(), scale="small", made_at=studied.NOW
        )
        assert [(one.status, one.why) for one in found.cells] == [
            ("failed", "lost a rank"),
            ("open", None),
            ("failed", "the image could not be built"),
        ]
