"""Prevents: the suite's own time counted as the program's, or the reverse; sides that run another training than requested; figures without raw
clocks and records, or that differ when recomputed; a container's cost computed against other software; another user's run taken for a side's.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from pathlib import Path

import examples
import jsonschema
import planned
import pytest
from records import events, provenance
from swept import leave, measured
from typer.testing import CliRunner
from unit.images import test_host_software

from runner.commands import cli
from runner.commands.report import report
from runner.core.errors import RequestError, RunFailedError
from runner.core.events import FirstStep, Phase, RunStop
from runner.core.record import EVENTS, EngineDetails, ImageUsed
from runner.core.request import Request
from runner.engines import process
from runner.engines.local import LocalEngine
from runner.experiments.overhead import flow
from runner.experiments.overhead.figures import (
    Command,
    Overhead,
    Printed,
    RunOnFile,
    costs,
    overhead_figures,
    overhead_report,
    overhead_schema,
    program_s,
    read_overhead,
    rounds,
)
from runner.plan.discovery import WORKLOADS
from runner.plan.engine import EngineChoice
from runner.plan.layout import Prepared
from runner.plan.plan import plan
from runner.run import bench as benching

FIELDS = {"rank": 0, "container": "x"}


def events_of(*, first_step, stops, imported=2.0, began=10.0):
    """A program that starts at `began` by its own clock, and whose first step the runner receives at `first_step` by its clock."""
    return (
        Phase(event="phase", t=began + imported, received=0.0, name="import", seconds=imported, **FIELDS),
        FirstStep(event="first_step", t=began + 4, received=first_step, **FIELDS),
        RunStop(event="run_stop", t=stops, received=0.0, iterations=1, samples=1, parameter_norm=1.0, **FIELDS),
    )


def test_a_programs_time_is_from_process_start_to_last_event():
    found = [event for event in events(examples.trial()) if not isinstance(event, Phase | RunStop)]
    built = Phase(event="phase", t=15.0, received=0.0, name="model", seconds=9.0, **FIELDS)
    first, second = (events_of(first_step=0.0, stops=t) for t in (30.0, 31.5))
    assert program_s([*found, *first, built, second[-1]]) == 21.5


# Requests of the sides


def as_request(monkeypatch, *words):
    """Return the request of these command-line arguments."""
    caught = {}
    monkeypatch.setattr(flow, "measure_overhead", lambda request, **more: caught.update(request=request, **more))
    monkeypatch.setattr(benching, "bench", lambda request, **_: caught.update(request=request) or 0)
    done = CliRunner().invoke(cli.app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return caught


EVERYTHING = (
    *("--model=resnet50", "--batch=8", "--image-size=64", "--precision=bf16", "--iterations=30", "--warmup=3"),
    *("--techniques=channels-last,fused-optimizer", "--seed=0"),
)


@pytest.mark.parametrize(
    "words",
    [(), EVERYTHING, ("--preset=tuned", "--gpus=1"), ("--version=2.13.0-cpu",)],
    ids=["nothing", "everything", "tuned", "version"],
)
def test_each_side_runs_the_requested_trial(monkeypatch, words):
    asked = as_request(monkeypatch, "overhead", "--framework=pytorch", *words)["request"]
    looked = planned.resources("pytorch", "gpu" if asked.gpus else "cpu", workload=planned.workload_of(asked.model))
    trial = plan(asked, looked)[0]
    for hz in (10, 0):
        inner = flow.bench_arguments(asked, looked, trial, engine="docker", telemetry_hz=hz)
        again = as_request(monkeypatch, *inner)["request"]
        assert (again.framework, again.version, again.engine) == ("pytorch", looked.image.version, "docker")
        assert (again.telemetry_hz, again.idle_s, again.repeat) == (hz, 0, 1)
        assert plan(again, looked) == (trial,)


def test_every_option_of_the_training_is_passed_on():
    """A new flag of `overhead` that its sides do not get would be ignored by the measurement."""
    import typer

    flags = {name for p in typer.main.get_command(cli.app).commands["overhead"].params for name in p.opts}
    about = {"--help", "--repeat", "--out", "--beside-host", "--telemetry-hz"}
    which = {"--framework", "--version", "--model", "--engine", "--gpus", "--image", "--mount"}
    assert flags - about - which == {f"--{name.replace('_', '-')}" for name in flow.PASSED}


def test_the_host_side_gets_neither_image_nor_version():
    looked = planned.resources("pytorch")
    asked = Request(framework="pytorch", version=looked.image.version, precision="bf16", workers=(1,))
    words = flow.bench_arguments(asked, looked, plan(asked, looked)[0], engine="host", telemetry_hz=10)
    assert not [word for word in words if word.startswith(("--version", "--image", "--mount"))]
    assert {"--engine=host", "--framework=pytorch", "--precision=bf16"} <= set(words)
    there = flow.host_request(
        Request(framework="pytorch", image="hostroot:1", mounts=test_host_software.MOUNT), "pytorch"
    )
    assert (there.engine, there.image, there.mounts, there.version) == ("host", None, (), None)


@pytest.mark.parametrize(
    ("asked", "resource_changes", "beside_host", "says"),
    [
        ({}, {"framework": "caffe"}, False, "FRAMEWORK=caffe trains in its own program, which the suite only starts"),
        ({"gpus": (1, 2)}, {}, False, "GPUS=1,2: the overhead is measured on one device; ask for"),
        ({}, {"engine": EngineChoice("host", None)}, True, "--beside-host compares another engine with ENGINE=host"),
    ],
)
def test_requests_that_leave_nothing_to_measure_are_refused(asked, resource_changes, beside_host, says):
    framework = resource_changes.pop("framework", "pytorch")
    with pytest.raises(RequestError) as caught:
        flow.check_request(
            Request.model_validate(asked), planned.resources(framework, **resource_changes), beside_host=beside_host
        )
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("changes", "has"),
    [
        ({}, True),
        ({"precision": "bf16"}, True),
        ({"precision": "fp16"}, False),
        ({"device": "gpu", "precision": "tf32", "techniques": ("channels-last", "fused-optimizer")}, True),
        ({"techniques": ("channels-last", "compile")}, False),
        ({"workload": "wgan"}, False),
        ({"model": "vit-ti16", "weight_decay": 0.05}, False),
        ({"framework": "mxnet"}, True),
        ({"framework": "mxnet", "precision": "bf16"}, False),
        ({"framework": "tensorflow", "device": "gpu"}, False),
    ],
)
def test_the_bare_loop_is_a_side_only_if_it_can_do_the_same_training(changes, has):
    assert flow.has_bare_loop(examples.trial(**{"framework": "pytorch", **changes})) is has


def test_pytorchs_bare_loop_gets_the_arguments_of_the_program():
    asked = {"device": "gpu", "precision": "bf16", "techniques": ("channels-last",)}
    words = flow.bare_arguments(examples.trial(framework="pytorch", **asked))
    assert words[-3:] == ("--device=gpu", "--precision=bf16", "--techniques=channels-last")
    assert words[:-3] == flow.bare_arguments(examples.trial(framework="mxnet"))


# Figures of the sides

SAID = {"framework_version": "2.11.0", "python": "3.12.3"}


def run_on_file(name, rate, *, first_step=107.0, stops=30.0, software=None, engine="docker", status="valid"):
    """A run of 4000 samples at `rate` samples/s, whose program runs for 20 s unless `stops` says otherwise."""
    path, found = measured(100, rate, run_id=name, status=status)
    measurement = found.measurement.model_copy(update={"samples": 4000, "training_time_s": 4000 / rate})
    given = provenance(gpus=found.provenance.gpus, **{**SAID, **(software or {})})
    changed = {"measurement": measurement, "provenance": given, "engine": engine}
    return RunOnFile(path, found.model_copy(update=changed), events_of(first_step=first_step, stops=stops))


def command(side, name, *, began=100.0, took=22.5):
    return Command(side=side, began_s=began, ended_s=began + took, run_id=name)


BARE = Command(side="bare", began_s=0.0, ended_s=9.0, printed=Printed(rate_per_s=1500.0, first_step_s=5.5))
RUNS = {
    name: run_on_file(name, rate, engine="host" if name.startswith("h") else "docker")
    for name, rate in {"s1": 990.0, "u1": 1000.0, "h1": 1100.0, "s2": 980.0, "u2": 1000.0, "h2": 1000.0}.items()
}
RAW = Overhead(
    name="overhead-x",
    made_at="2026-01-01T00:00:00Z",
    command=("dlscale", "overhead"),
    commit="c" * 40,
    rounds=(
        (command("suite", "s1"), command("unwatched", "u1"), command("host", "h1"), BARE),
        (BARE, command("host", "h2"), command("unwatched", "u2"), command("suite", "s2", took=23.5)),
    ),
)


def reported(runs=RUNS):
    return overhead_report(RAW, overhead_figures(RAW, runs))


def test_every_figure_equals_the_one_computed_by_hand():
    found = overhead_figures(RAW, RUNS)
    first, second = found.rounds
    assert list(second) == ["bare", "host", "unwatched", "suite"]
    assert found.ratios_to("unwatched") == (pytest.approx(0.99), pytest.approx(0.98))
    assert found.ratios_to("host") == (pytest.approx(0.9), pytest.approx(0.98))
    assert found.ratios_to("bare") == (pytest.approx(0.66), pytest.approx(980 / 1500))
    # The command took 22.5 s and 23.5 s, its program 20 s of that: imports from 10 to 12, stop at 30.
    assert (first["suite"].outside_s, second["suite"].outside_s) == (pytest.approx(2.5), pytest.approx(3.5))
    # The first step was received at 107, 7 s after the command's start; the bare loop's ended 5.5 s after its own start.
    assert found.delays_s[0] == pytest.approx(1.5)
    # All rounds: equally many samples at 990/s and 980/s, against 1000/s; against 1100/s and 1000/s.
    both = 2 / (1 / 990 + 1 / 980)
    assert {name: ratio for name, (ratio, _) in found.together.items()} == {
        "unwatched": pytest.approx(both / 1000),
        "host": pytest.approx(both / (2 / (1 / 1100 + 1 / 1000))),
        "bare": pytest.approx(both / 1500),
    }
    assert {ci95 for _, ci95 in found.together.values()} == {None}


def test_tokens_are_counted_as_the_throughput_counts_them():
    """The rates of a language model were sequences a second, below a header of tokens/s."""
    runs = {}
    for name, run in RUNS.items():
        measured = run.record.measurement
        share = 4000 * 1024 / len(measured.windows)
        windows = tuple(window.model_copy(update={"units": share}) for window in measured.windows)
        record = run.record.model_copy(update={"measurement": measured.model_copy(update={"windows": windows})})
        runs[name] = dataclasses.replace(run, record=record)
    first, _ = overhead_figures(RAW, runs).rounds
    assert (first["suite"].rate, first["unwatched"].rate) == (pytest.approx(990 * 1024), pytest.approx(1000 * 1024))


def test_with_three_rounds_the_ratio_of_all_rounds_has_an_interval():
    """Suite 990, 980 and 990/s, bare loop always 1500/s: the variance of the logarithms is (ln 990/980)² ÷ 3, with 2 degrees of freedom."""
    found = overhead_figures(RAW.model_copy(update={"rounds": (*RAW.rounds, RAW.rounds[0])}), RUNS)
    factor = math.exp(4.30265 * math.log(990 / 980) / 3)
    ratio, ci95 = found.together["bare"]
    assert (ci95.low, ci95.high) == pytest.approx((ratio / factor, ratio * factor))
    assert costs(found).rows[2] == ("throughput ÷ bare loop", "3", "0.6600", "0.6533", "0.6600", "0.6578 ± 0.0096")


def test_the_tables_have_every_figure_and_omit_sides_that_did_not_run():
    found = overhead_figures(RAW, RUNS)
    assert [row[:5] for row in costs(found).rows] == [
        ("throughput ÷ unwatched", "2", "0.9850", "0.9800", "0.9900"),
        ("throughput ÷ host", "2", "0.9400", "0.9000", "0.9800"),
        ("throughput ÷ bare loop", "2", "0.6567", "0.6533", "0.6600"),
        ("outside of the program (s)", "2", "3.00", "2.50", "3.50"),
        ("delay of the first step (s)", "2", "1.50", "1.50", "1.50"),
    ]
    assert rounds(found).columns == (
        *("round", "suite (images/s)", "unwatched (images/s)", "÷ unwatched", "host (images/s)", "÷ host"),
        *("bare (images/s)", "÷ bare", "outside (s)", "delay (s)"),
    )
    assert rounds(found).rows[0] == (
        *("1", "990.0", "1,000.0", "0.9900", "1,100.0", "0.9000", "1,500.0", "0.6600", "2.50", "1.50"),
    )
    few = RAW.model_copy(update={"rounds": (RAW.rounds[0][:2],)})
    alone = overhead_figures(few, RUNS)
    assert rounds(alone).columns == (
        *("round", "suite (images/s)", "unwatched (images/s)", "÷ unwatched", "outside (s)"),
    )
    assert [row[0] for row in costs(alone).rows] == ["throughput ÷ unwatched", "outside of the program (s)"]


def test_the_csv_has_each_command_with_its_run():
    lines = list(csv.DictReader(io.StringIO(reported().files()["overhead-x.csv"])))
    assert [(line["round"], line["side"], line["run"]) for line in lines] == [
        *(("1", "suite", "s1"), ("1", "unwatched", "u1"), ("1", "host", "h1"), ("1", "bare", "")),
        *(("2", "bare", ""), ("2", "host", "h2"), ("2", "unwatched", "u2"), ("2", "suite", "s2")),
    ]
    names = ("rate", "command_s", "program_s", "outside_s", "first_step_s")
    assert [float(lines[0][name]) for name in names] == [pytest.approx(v) for v in (990.0, 22.5, 20.0, 2.5, 7.0)]
    assert (lines[3]["rate"], lines[3]["program_s"], lines[3]["first_step_s"]) == ("1500.0", "", "5.5")


def test_other_software_on_the_host_has_no_ratio_and_is_named():
    other = {name: run_on_file(name, 1000.0, engine="host", software={"python": "3.11.2"}) for name in ("h1", "h2")}
    found = overhead_figures(RAW, RUNS | other)
    assert (found.ratios_to("host"), found.together["host"][0], found.differs) == ((None, None), None, ("Python",))
    assert found.notes == ("not comparable with host: Python 3.12.3 beside 3.11.2",)
    assert ("throughput ÷ host", "–", "–", "–", "–", "not comparable: Python") in costs(found).rows
    assert "÷ host" not in rounds(found).columns
    assert "host (images/s)" in rounds(found).columns


def test_an_invalid_run_has_no_figure_and_a_degraded_one_is_named():
    with pytest.raises(RunFailedError, match="^s1 has no throughput: made up$"):
        overhead_figures(RAW, RUNS | {"s1": run_on_file("s1", 990.0, status="invalid")})
    found = overhead_figures(RAW, RUNS | {"u2": run_on_file("u2", 1000.0, status="degraded")})
    assert found.notes == ("u2 degraded: made up",)


# Files


def write_overhead(folder, raw=RAW, runs=RUNS):
    """Write the runs and the file of an overhead to a folder."""
    for name, one in runs.items():
        directory = leave(folder, (name, one.record))
        (directory / EVENTS).write_text("".join(event.model_dump_json() + "\n" for event in one.events))
    (folder / raw.file).write_text(raw.to_json())


def test_the_file_matches_its_schema_and_can_be_read_back(tmp_path):
    write_overhead(tmp_path, runs={})
    path = tmp_path / "overhead-x.json"
    assert read_overhead(path) == RAW
    fields = json.loads(path.read_text())
    jsonschema.validate(fields, json.loads(overhead_schema()))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**fields, "surprise": 1}, json.loads(overhead_schema()))
    path.write_text(json.dumps({**fields, "schema": 2}))
    with pytest.raises(RequestError, match=r"schema 2 is newer than this version's 1; update dlscale"):
        read_overhead(path)
    clocks = {"side": "suite", "began_s": 1.0, "ended_s": 2.0}
    alone = json.loads(BARE.model_dump_json())  # without the suite's side, the report was a traceback
    for bad in ([], *({**fields, "rounds": own} for own in ([], [[clocks]], [[alone]]))):
        path.write_text(json.dumps(bad))
        with pytest.raises(RequestError, match="is no file of `dlscale overhead`"):
            read_overhead(path)


def test_a_report_yields_the_same_figures_from_file(tmp_path):
    write_overhead(tmp_path)
    report([tmp_path], out=tmp_path / "out")
    found = reported({name: dataclasses.replace(one, directory=tmp_path / name) for name, one in RUNS.items()})
    for name, content in found.files().items():
        assert (tmp_path / "out" / name).read_text() == content
    assert "What the suite costs" in (tmp_path / "out" / "report.html").read_text()


def test_an_overhead_whose_run_is_gone_does_not_fail_the_report(tmp_path, capsys):
    write_overhead(tmp_path, runs={name: one for name, one in RUNS.items() if name != "u2"})
    report([tmp_path], out=tmp_path / "out")
    assert "not drawn: overhead-x.json: " in capsys.readouterr().out
    assert not (tmp_path / "out" / "overhead-x.md").exists()
    assert (tmp_path / "out" / "report.html").exists()


# The flow


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Commands that each leave a record and take no time; meanwhile, another run ends in the same directory."""
    ran = []

    def run(argv):
        words = argv[3:]
        ran.append(words)
        latest = run_on_file(f"run{len(ran)}", 1000.0)
        mine = latest.record.model_copy(
            update={"provenance": latest.record.provenance.model_copy(update={"command": ("dlscale", *words)})}
        )
        put_run(tmp_path, mine, latest.events)
        put_run(tmp_path, latest.record.model_copy(update={"run_id": f"another{len(ran)}"}), latest.events)

    def put_run(folder, record, said_there):
        directory = leave(folder, (record.run_id, record))
        (directory / EVENTS).write_text("".join(event.model_dump_json() + "\n" for event in said_there))

    def run_tool(engine, spec, say):
        ran.append(spec.argv)
        for line in ("images/sec 1600.000", "first step 5.500"):
            say(line)

    engine = LocalEngine(None, WORKLOADS)
    ready = Prepared(
        describer=engine,
        engines={"here": engine},
        engine_details=EngineDetails(version=None, reason=None),
        image_used=ImageUsed(reference="i", id=None, digest=None, lock_sha256=None),
        data=None,
        samplers=None,
        seconds=0.0,
    )
    monkeypatch.setattr(flow, "discover_own", lambda request: planned.resources("pytorch", out=tmp_path))
    monkeypatch.setattr(flow, "prepare", lambda *_, **__: ready)
    monkeypatch.setattr(flow, "run", run)
    monkeypatch.setattr(flow, "run_tool", run_tool)
    return ran


REQUEST = Request(framework="pytorch", device="cpu", workers=(1,), repeat=2)


def test_rounds_alternate_and_leave_their_times_and_reports(machine, tmp_path):
    flow.measure_overhead(REQUEST, beside_host=True, command=("dlscale", "overhead", "--beside-host"))
    (path,) = tmp_path.glob("overhead-*.json")
    raw = read_overhead(path)
    assert [[one.side for one in own] for own in raw.rounds] == [
        ["suite", "unwatched", "host", "bare"],
        ["bare", "host", "unwatched", "suite"],
    ]
    # The bare loop is started fourth and fifth; the run of another command belongs to no side.
    assert [one.run_id for own in raw.rounds for one in own] == [
        *("run1", "run2", "run3", None),
        *(None, "run6", "run7", "run8"),
    ]
    assert raw.rounds[0][3].printed == Printed(rate_per_s=1600.0, first_step_s=5.5)
    assert raw.command == ("dlscale", "overhead", "--beside-host")
    assert [words[-2] for words in (machine[0], machine[1], machine[2])] == ["--idle=0"] * 3
    assert [next(w for w in words if w.startswith("--telemetry")) for words in machine[:3]] == [
        *("--telemetry-hz=10", "--telemetry-hz=0", "--telemetry-hz=10"),
    ]
    assert [next(w for w in words if w.startswith("--engine")) for words in machine[:3]] == [
        *("--engine=docker", "--engine=docker", "--engine=host"),
    ]
    assert f"{WORKLOADS}/imagenet_cnn/bare_pytorch.py" in machine[3]
    assert path.with_suffix(".csv").is_file()
    assert path.with_suffix(".md").is_file()


def test_rounds_before_a_failure_stay_on_file(machine, monkeypatch, tmp_path):
    of_first_round = 4
    good = flow.run

    def failing(argv):
        if len(machine) > of_first_round:
            raise process.CommandError(argv, 3, "dlscale: a run failed")
        good(argv)

    monkeypatch.setattr(flow, "run", failing)
    with pytest.raises(RunFailedError, match="^side host failed: dlscale: a run failed$"):
        flow.measure_overhead(REQUEST, beside_host=True, command=("dlscale", "overhead"))
    (path,) = tmp_path.glob("overhead-*.json")
    assert len(read_overhead(path).rounds) == 1


def test_a_command_without_a_record_is_an_error(machine, monkeypatch):
    monkeypatch.setattr(flow, "run", lambda _: None)
    with pytest.raises(RunFailedError, match="left no record there"):
        flow.measure_overhead(REQUEST, beside_host=False, command=("dlscale", "overhead"))


def test_a_host_without_the_framework_is_refused_before_any_run(machine, monkeypatch):
    asked = []

    def look(request):
        asked.append(request.engine)
        if request.engine == "host":
            raise RequestError("ENGINE=host: /usr/bin/python3 has no torch")
        return planned.resources("pytorch", out=Path("/nowhere"))

    monkeypatch.setattr(flow, "discover_own", look)
    with pytest.raises(RequestError, match="has no torch"):
        flow.measure_overhead(REQUEST, beside_host=True, command=("dlscale", "overhead"))
    assert asked == [None, "host"]
    assert machine == []
