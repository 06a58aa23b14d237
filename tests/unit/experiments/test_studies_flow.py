"""What a study runs, reuses from file, and reports meanwhile.

Prevents: a run on file of another image, scale or link that is reused for the requested one; an invalid run that is never repeated; a failed
cell that ends the study; finished runs lost by Ctrl-C; an ETA before anything is known.
"""

import json
from datetime import datetime, timezone
from itertools import product
from types import SimpleNamespace

import examples
import pytest
from records import record
from studied import cpu_machine

from runner.core.errors import RequestError, RunFailedError
from runner.core.record import ImageUsed
from runner.core.request import Request
from runner.experiments.studies import flow
from runner.experiments.studies.model import Reproduction, StudyRequest
from runner.results.store import read_record, write_record

IMAGE = ImageUsed(reference="dlscale/mxnet:1.9.1", id="sha256:1", digest=None, lock_sha256="a" * 64)


class Bench:
    """Stands in for `bench.run`: notes the requests, and leaves a record for each scale."""

    def __init__(self, *, fails=None, stops=None, lacks=None):
        self.asked, self.fails, self.stops, self.lacks = [], fails, stops, lacks

    def __call__(self, request, *, command, name, shown, reuse, select):
        self.asked.append(request)
        if request.framework == self.stops:
            raise KeyboardInterrupt
        if request.framework == self.lacks:
            raise RequestError("no such wire")
        if request.framework == self.fails:
            raise RunFailedError("made-up reason")
        runs = []
        for scale, link in product(request.workers, request.links or (None,)):
            trial = examples.trial(
                framework=request.framework,
                version=request.version,
                model=request.model,
                world_size=scale,
                processes=scale,
                nodes=request.nodes or 1,
                link=link,
                key=f"{hash(request):016x}"[-16:],
            )
            if not select(trial):
                continue
            if found := reuse(trial, IMAGE):
                runs.append(found)
                continue
            made = record(run_id=f"{name}-{scale}-{len(self.asked)}-{len(runs)}", trial=trial)
            (request.out / made.run_id).mkdir()
            write_record(request.out / made.run_id, made)
            runs.append((request.out / made.run_id, made))
        return runs


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setattr(flow, "survey", lambda *_, **__: cpu_machine())

    def begin(stand_in, **asked):
        monkeypatch.setattr(flow.bench, "run", stand_in)
        whole = {"study": "dell-p100", "scale": "small", "bench": Request(out=tmp_path)} | asked
        whole = StudyRequest.model_validate(whole)
        return flow.reproduce(whole, command=("dlscale", "reproduce", "dell-p100"))

    return begin


def reproductions(out):
    return [
        Reproduction.model_validate_json(path.read_text(encoding="utf-8"))
        for path in sorted(out.glob("*.reproduction.json"))
    ]


def test_a_study_runs_each_request_once_and_writes_its_tables(run, tmp_path, capsys):
    bench = Bench()
    assert run(bench) == 0
    assert len(bench.asked) == len(set(bench.asked))
    assert {request.out for request in bench.asked} == {tmp_path}
    (made,) = reproductions(tmp_path)
    assert (made.study, made.scale, made.machine.name) == ("dell-p100", "small", "here")
    assert {cell.status for cell in made.cells} == {"ran", "skipped"}
    (ran,) = [cell for cell in made.cells if cell.id == "tensorflow.2gpus"]
    assert [read_record(tmp_path / name).trial.world_size for name in ran.runs] == [2]
    (text,) = tmp_path.glob("*-dell-p100.md")
    whole, printed = text.read_text(encoding="utf-8"), capsys.readouterr().out
    for only_in_the_file in ("nvcaffe.googlenet.4.ips", "4 GPUs, here are 2 CPU cores"):
        assert only_in_the_file in whole
        assert only_in_the_file not in printed
    assert "nvcaffe.googlenet.1.ips" in printed


def test_two_reproductions_of_one_second_are_both_on_file(run, tmp_path, monkeypatch):
    second = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    for made_at in (second, second.replace(microsecond=500_000)):
        monkeypatch.setattr(flow, "datetime", SimpleNamespace(now=lambda _, at=made_at: at))
        run(Bench())
    assert [made.made_at.microsecond for made in reproductions(tmp_path)] == [0, 500_000]


def test_a_cell_that_fails_does_not_end_the_study(run, tmp_path):
    assert run(Bench(fails="mxnet")) == 3
    (made,) = reproductions(tmp_path)
    status = {cell.id: (cell.status, cell.why) for cell in made.cells}
    assert status["mxnet-cpu.cpu"] == ("failed", "made-up reason")
    assert status["tensorflow-cpu.cpu"] == ("ran", None)


def test_cells_that_this_machine_cannot_run_are_skipped_without_failure(run, tmp_path):
    """A missing wire, or a network that a stand-in framework lacks, only shows in planning, before anything starts."""
    assert run(Bench(lacks="mxnet")) == 0
    (made,) = reproductions(tmp_path)
    assert {(cell.status, cell.why) for cell in made.cells if cell.block == "mxnet-cpu"} == {
        ("skipped", "no such wire")
    }


def test_slurm_allocates_the_nodes_of_the_widest_run(run, monkeypatch, capsys):
    """Figure 3 of the source has 16 GPUs on 4 nodes; the job runs the typed command."""
    asked = {"bench": Request(cluster="slurm"), "dry_run": True}
    monkeypatch.setattr(flow, "become", pytest.fail)
    assert run(Bench(), **asked) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("salloc --nodes=4 --exclusive")
    assert line.endswith("dlscale reproduce dell-p100 --hosts=slurm")


def test_a_program_that_the_source_did_not_run_is_refused(run):
    asked = Request(image="mxnet:0.7", command=("/mxnet/train_mnist.py",))
    with pytest.raises(
        RequestError, match=r"^PROGRAM=/mxnet/train_mnist.py is not a program of STUDY=dell-p100; its programs:"
    ):
        run(Bench(), bench=asked)


def test_slurm_allocates_the_nodes_of_the_chosen_cells(run, monkeypatch, capsys):
    monkeypatch.setattr(flow, "become", pytest.fail)
    assert run(Bench(), bench=Request(cluster="slurm"), dry_run=True, cells=("tensorflow.1gpus", "caffe")) == 0
    assert capsys.readouterr().out.startswith("salloc --nodes=1 ")
    with pytest.raises(RequestError, match="CELLS=nothing: no cell of STUDY=dell-p100 has this prefix"):
        run(Bench(), bench=Request(cluster="slurm"), cells=("nothing",))


def test_ctrl_c_keeps_finished_runs_and_prints_how_to_continue(run, tmp_path, capsys):
    assert run(Bench(stops="mxnet")) == 3
    (made,) = reproductions(tmp_path)
    status = {cell.id: cell.status for cell in made.cells}
    assert (status["caffe.1gpus"], status["mxnet-cpu.cpu"], status["tensorflow-cpu.cpu"]) == ("ran", "open", "open")
    assert "to continue, type the same command: dlscale reproduce dell-p100" in capsys.readouterr().out


def test_a_second_call_reuses_all_runs(run, tmp_path):
    run(Bench())
    before = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    run(Bench())
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == before


def test_cells_can_be_chosen_by_prefix(run, tmp_path):
    bench = Bench()
    run(bench, cells=("caffe", "tensorflow-cpu"))
    # A core that stands for a GPU computes with one thread, the source's own processor with one per core.
    asked = [(request.framework, request.threads) for request in bench.asked]
    assert asked == [("caffe", None), ("caffe", 1), ("tensorflow", None)]
    (made,) = reproductions(tmp_path)
    assert {cell.block for cell in made.cells} == {"caffe", "caffe-cpu", "tensorflow-cpu"}
    with pytest.raises(RequestError, match="CELLS=nothing: no cell of STUDY=dell-p100 has this prefix"):
        run(bench, cells=("nothing",))


def test_a_dry_run_starts_and_writes_nothing_and_gives_the_reasons(run, tmp_path, capsys):
    bench = Bench()
    assert run(bench, dry_run=True) == 0
    assert bench.asked == []
    assert list(tmp_path.iterdir()) == []
    assert "4 GPUs, here are 2 CPU cores" in capsys.readouterr().out


def test_the_list_has_runnable_cells_their_command_and_the_latest_verdicts(run, monkeypatch, tmp_path, capsys):
    run(Bench(), cells=("caffe",))
    monkeypatch.setattr(flow, "SUITE_ROOT", tmp_path.parent)
    tmp_path.rename(tmp_path.parent / "results")
    capsys.readouterr()
    flow.list_studies(StudyRequest(scale="small"), words=["--scale=small"], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    place = next(number for number, line in enumerate(lines) if line.startswith("dell-p100 "))
    told = " ".join(" ".join(lines[place + 1 : place + 6]).split())
    assert told.startswith("10 of 30 runs can run here, and 5 smaller ones: dlscale reproduce dell-p100 --scale=small")
    assert "small, on here: " in told
    assert "findings: 20 not testable here, 1 indicated; figures: " in told
    assert sum(line.strip() == "not run yet" for line in lines) == 4
    flow.list_studies(StudyRequest(scale="small"), as_json=True)
    own = next(one for one in json.loads(capsys.readouterr().out) if one["study"] == "dell-p100")
    assert (own["runs"], own["runs_here"], own["smaller_runs_here"]) == (30, 10, 5)
    assert own["last"]["findings"] == {"not testable here": 20, "indicated": 1}


def test_a_study_without_runnable_cells_is_refused(run):
    with pytest.raises(RequestError, match="no cell of STUDY=nyu-profiling can run on here"):
        run(Bench(), study="nyu-profiling", cells=("broadcast",))
