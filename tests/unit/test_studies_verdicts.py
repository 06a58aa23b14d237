"""Published figures beside what was measured in their place, and a whole reproduction.

Prevents: a figure called reproduced on other hardware, from a run that differs in anything, from degraded runs or from one; an absolute
figure judged where only its shape can be; a run of one batch, network or GPU that stands for another; a table that names what was planned in
place of what ran; a cell that was not run without its reason.

After a wanted change, `DLSCALE_GOLDEN=write make test` writes the golden file again; read the difference before committing it.
"""

from __future__ import annotations

import json

import examples
import pytest
import studied
from goldens import expected
from made_up_source import rate, source, table
from studied import observation

from runner.core.record import Validity
from runner.core.request import Request
from runner.experiments.studies.evidence import Evidence
from runner.experiments.studies.model import Altered, Cell, CellRun, Pick, Reproduction
from runner.experiments.studies.reproduction import judge
from runner.experiments.studies.study import Study
from runner.experiments.studies.verdicts import compared

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
                "versions": {"gpu": ["1.9.1-cu112"], "cpu": ["1.9.1"]},
                "models": {"resnet50": "resnet50"},
                "batches": [32],
                "iterations": 40,
            }
        ],
    }
)
CURVE = table(rate(1, 100), rate(2, 190), rate(4, 360))


def against(published, *observations, device="gpu", cells=()):
    """Comparisons by figure and metric."""
    evidence = Evidence(
        published=published, observations=observations, cells=cells, device=device, device_name="Example CPU"
    )
    return {(one.figure, one.metric): one for one in compared(evidence, STUDY)}


def here(value, **more):
    """As three valid runs would show it, 1 % apart."""
    known = {"repeats": 3, "ci95": (0.99 * value, 1.01 * value)}
    return observation(value, **({"model": "resnet50", "gpu": "v100", "gpus": 1} | known | more))


class TestVerdicts:
    @pytest.mark.parametrize(
        ("measured", "verdict"), [(114, "reproduced"), (86, "reproduced"), (116, "differs"), (84, "differs")]
    )
    def test_the_same_hardware_is_judged_by_the_tolerance(self, measured, verdict):
        found = against(source(CURVE), here(measured))["g1", "throughput"]
        assert (found.verdict, found.ratio, found.fields) == (verdict, pytest.approx(measured / 100), ())

    def test_the_interval_of_the_ratio_is_the_figures(self):
        found = against(source(CURVE), here(50, ci95=(45, 55)))["g1", "throughput"]
        assert (found.ratio_ci95.low, found.ratio_ci95.high) == (pytest.approx(0.45), pytest.approx(0.55))

    def test_another_gpu_is_not_comparable_and_named(self):
        found = against(source(CURVE), here(100, gpu=None, device_name="NVIDIA H200"))["g1", "throughput"]
        assert found.verdict == "not comparable"
        assert found.fields == ("gpu (V100 there, NVIDIA H200 here)",)
        assert found.ratio == 1

    def test_a_cpu_in_place_of_a_gpu_is_none(self):
        found = against(source(CURVE), here(100, gpu=None, device="cpu"), device="cpu")["g1", "throughput"]
        assert found.fields == ("gpu (V100 there, Example here)",)

    @pytest.mark.parametrize("field", ["image_size", "iterations", "normalization"])
    def test_a_run_that_differs_in_anything_reproduces_nothing_and_keeps_its_ratio(self, field):
        """A rate of a run that was only shorter, and of another network than the source's, were called reproduced."""
        found = against(source(CURVE), here(100, altered=(field,)))["g1", "throughput"]
        assert (found.verdict, found.fields, found.ratio) == ("not comparable", (field,), 1)

    def test_a_shape_that_differs_in_anything_agrees_at_most_and_says_in_what(self):
        found = against(source(CURVE), here(1.9, gpus=2, metric="speedup", unit="x", altered=("optimizer",)))
        assert found["g2", "speedup"].verdict == "shape agrees"
        assert found["g2", "speedup"].fields == ("optimizer",)

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
    def test_too_little_settles_nothing(self, measured, verdict, basis, doubts):
        """One degraded run of two windows was called a reproduction."""
        found = against(source(CURVE), here(measured, **basis))["g1", "throughput"]
        assert (found.verdict, found.doubts, found.fields) == (verdict, doubts, ())
        assert found.ratio == pytest.approx(measured / 100)

    def test_what_can_not_be_compared_is_not_indicated_either(self):
        found = against(source(CURVE), here(100, gpu=None, degraded=3))["g1", "throughput"]
        assert (found.verdict, found.doubts) == ("not comparable", ())

    def test_shapes_are_judged_on_other_hardware_too(self):
        curve = [here(value, gpus=gpus, gpu=None, metric="speedup", unit="x") for gpus, value in ((2, 1.8), (4, 2.9))]
        found = against(source(CURVE), *curve)
        assert float(found["g2", "speedup"].published) == pytest.approx(1.9)
        assert found["g2", "speedup"].verdict == "shape agrees"
        assert found["g4", "speedup"].verdict == "shape differs"
        assert ("g1", "speedup") not in found

    def test_a_ratio_is_made_of_the_two_runs_that_it_is_of(self):
        half = table(
            {"id": "half", "value": 0.5, "network": "eth", "versus": {"network": "ib"}},
            metric="throughput_ratio",
            unit="x",
            gpus=2,
        )
        wires = [{"id": "ib", "name": "InfiniBand", "gbit_s": 100}, {"id": "eth", "name": "Ethernet", "gbit_s": 10}]
        pair = [here(value, gpus=2, nodes=2, network=name) for name, value in (("ib", 200), ("eth", 104))]
        found = against(source(half, wires=wires), *pair)["half", "throughput_ratio"]
        assert found.measured.value == pytest.approx(0.52)
        assert found.verdict == "reproduced"

    def test_a_gpu_against_a_cpu_needs_a_gpu(self):
        ratio = table({"id": "r", "value": 5, "gpus": 1, "versus": {"device": "cpu"}}, metric="speed_ratio", unit="x")
        found = against(source(ratio), here(9, gpu=None, device="cpu"), device="cpu")["r", "speed_ratio"]
        assert found.why == "a GPU is to be held against a CPU, and here is only Example CPU"

    def test_a_figure_without_its_batch_says_so(self):
        found = against(source(CURVE), here(100, batch=32), here(90, batch=16))["g1", "throughput"]
        assert found.measured.value == 100
        assert found.verdict == "not comparable"
        assert found.fields == ("batch (not stated there, 16, 32 here)",)

    def test_a_batch_that_the_study_chose_is_named_once(self):
        chosen = [here(100, batch=batch, altered=("batch",)) for batch in (16, 32)]
        assert against(source(CURVE), *chosen)["g1", "throughput"].fields == ("batch (not stated there, 16, 32 here)",)

    @pytest.mark.parametrize(("days", "verdict"), [(0.9, "reproduced"), (1.1, "differs")])
    def test_a_bound_is_kept_or_not(self, days, verdict):
        day = table({"id": "d", "value": 1, "bound": "<"}, metric="full_training_time", unit="days")
        own = here(days * 86400, metric="full_training_time", unit="s")
        found = against(source(day), own)["d", "full_training_time"]
        assert found.verdict == verdict
        assert found.ratio == pytest.approx(days)

    def test_without_a_tolerance_nothing_is_said(self):
        power = table({"id": "p", "value": 100}, metric="power_avg", unit="W")
        found = against(source(power), here(100, metric="power_avg", unit="W"))["p", "power_avg"]
        assert found.fields == ("tolerance (the study states none)",)

    def test_extra_scales_stand_for_no_figure(self):
        assert against(source(CURVE), here(100, extra=True))["g1", "throughput"].verdict == "not measured"

    def test_what_was_not_measured_has_the_reason_of_its_cell(self):
        cell = Cell(id="c", block="block", where={"model": "resnet50", "gpus": 4}, why="4 GPUs, here are 2 CPU cores")
        found = against(source(CURVE), here(100), cells=[CellRun(cell=cell)])
        assert found["g4", "throughput"].why == "4 GPUs, here are 2 CPU cores"
        assert found["g2", "throughput"].why == "no cell of this study gives it"

    def test_specifications_are_no_figures(self):
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
    """A study of three scales on two cores, with a finding of each verdict."""
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
        """Up to ten digits: the last ones of a bootstrap are the processor's."""
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

    def test_a_cell_without_a_usable_run_failed_and_one_not_come_to_is_open(self):
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
