"""Prevents: a matrix that looks different from when it was run; a speedup lost because its baseline is in another matrix; reports of a matrix
overwritten by those of one of its runs, or reports of a folder by those of another; folders of a machine that are not drawn; a pass under a
profiler in a plot of throughput; one damaged table that prevents all other reports; a copy of a run drawn as a repeat; a record left out
silently; a traceback if there is nothing to draw.
"""

from __future__ import annotations

import io
import re
import shutil
from urllib.parse import unquote

import examples
import pytest
from commands import dlscale
from graded import leave_graded
from rich.console import Console
from swept import leave, measured, samples, traced

from runner.commands.report import matrices, report
from runner.report.publish import publish
from runner.results.find import records_under


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file())


@pytest.fixture
def runs(tmp_path):
    """A measured run and a pass at each of two batches, each in a matrix of its own, and an unusable run."""
    return leave_all(tmp_path / "runs")


def leave_all(folder, other=""):
    """Write the runs of `runs` to a folder; `other` is a prefix for the ids of further runs of the same trials."""
    for number, batch in enumerate((4, 16)):
        matrix = f"m{number}"
        name = f"{other}{matrix}-fp32-{batch}"
        run = measured(batch, 100.0 * batch, matrix=matrix, second=number, run_id=name)
        leave(folder, run, table_of_samples=samples())
        leave(folder, traced(batch, 0.25, matrix=matrix, second=number, run_id=f"{name}-profile-kernels"))
    bad = measured(64, 9000.0, matrix="bad", status="invalid", run_id=f"{other}bad-fp32-64")
    leave(folder, bad, table_of_samples=samples())
    return folder


def test_matrices_passes_and_sweeps_are_drawn(runs, tmp_path, capsys):
    out = tmp_path / "out"
    report([runs], out=out)
    assert names(out) == [
        "bad.csv",
        "bad.md",
        *(f"m0-fp32-4-profile-kernels.{kind}" for kind in ("md", "png")),
        "m0-power.png",
        *(f"m0.{kind}" for kind in ("csv", "md")),
        *(f"m1-fp32-16-profile-kernels.{kind}" for kind in ("md", "png")),
        "m1-power.png",
        *(f"m1.{kind}" for kind in ("csv", "md")),
        "report.html",
        "report.md",
        *(
            f"sweep-pytorch-2.15.0-resnet50-224px-1gpu-{figure}.png"
            for figure in ("compute", "sm-active", "throughput", "utilisation")
        ),
        "sweep-pytorch-2.15.0-resnet50-224px-1gpu.md",
    ]
    *reports, figures, kept, page = capsys.readouterr().out.splitlines()
    assert sorted([*reports, kept, page]) == [f"report: {out / name}" for name in names(out)]
    assert figures.startswith("figures: ")
    assert (kept, page) == (f"report: {out / 'report.md'}", f"report: {out / 'report.html'}")
    assert "profile" not in (out / "m0.md").read_text()


def test_a_matrix_is_drawn_as_when_it_was_run(runs, tmp_path):
    (tmp_path / "first").mkdir()
    own = [run for run in records_under(runs) if run[1].matrix_id == "m1"]
    publish(own, out=tmp_path / "first", name="m1", console=Console(file=io.StringIO()))
    report([runs], out=tmp_path / "out")
    for name in names(tmp_path / "first"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()
    assert "m1-fp32-16-profile-kernels.png" in names(tmp_path / "first")


def test_one_run_has_reports_named_after_it_and_its_own_page(runs, capsys):
    """`dlscale report last` wrote no page."""
    report([runs / "m0-fp32-4"], out=None)
    assert names(runs) == ["m0-fp32-4-power.png", "m0-fp32-4.csv", "m0-fp32-4.md"]
    assert f"report: {runs / 'm0-fp32-4' / 'report.html'}" in capsys.readouterr().out.splitlines()[-1]
    assert "m0-fp32-4" in (runs / "m0-fp32-4" / "report.md").read_text()


def test_one_pass_is_drawn(runs):
    report([runs / "m0-fp32-4-profile-kernels"], out=None)
    assert names(runs) == [f"m0-fp32-4-profile-kernels.{kind}" for kind in ("md", "png")]
    said = (runs / "m0-fp32-4-profile-kernels.md").read_text()
    assert "resnet50 224×224, batch 4 per device, fp32" in said
    assert "NVIDIA H200 · " in said


def test_a_baseline_of_an_earlier_matrix_is_found_and_a_lost_one_is_not_an_error(tmp_path):
    one = leave_graded(tmp_path / "runs", "one", examples.trial())
    two = examples.trial(strategy="kvstore", kvstore="dist_sync", world_size=2, processes=2, global_batch=64)
    leave_graded(tmp_path / "runs", "two", two, baseline=one, seconds=0.16)
    report([tmp_path / "runs" / "two"], out=tmp_path / "out")
    # 64 images in 0.16 s against 32 in 0.123...: a speedup of 1.543.
    assert "| 1.543" in (tmp_path / "out" / "two.md").read_text()
    shutil.rmtree(tmp_path / "runs" / "one")
    report([tmp_path / "runs" / "two"], out=tmp_path / "out")
    assert "1.543" not in (tmp_path / "out" / "two.md").read_text()


def test_a_matrix_keeps_the_order_in_which_it_ran():
    late, early = measured(4, 1.0, run_id="a", second=2), measured(4, 1.0, run_id="b", second=1)
    other = measured(4, 1.0, matrix="o", second=3)
    assert matrices([late, other, early]) == {"m": [early, late], "o": [other]}


def test_a_damaged_table_only_removes_its_own_plot(runs, tmp_path, capsys):
    (runs / "m0-fp32-4" / "telemetry.parquet").write_bytes(b"nothing")
    report([runs], out=tmp_path / "out")
    assert "m0-power.png" not in names(tmp_path / "out")
    assert {"m0.md", "m1-power.png"} <= set(names(tmp_path / "out"))
    said = capsys.readouterr().out
    assert f"not drawn: {runs / 'm0-fp32-4'}: its table telemetry can't be read" in said


def test_every_folder_of_a_machine_is_drawn_next_to_its_runs_or_in_a_folder_of_its_name(tmp_path):
    machine, out = tmp_path / "machine", tmp_path / "out"
    leave_all(machine / "batches")
    leave_all(machine / "wires" / "old", other="other-")
    report([machine], out=out)
    assert names(out) == ["report.html", "report.md"]
    assert names(machine / "batches") == []
    report([machine], out=None)
    assert names(machine) == ["report.html", "report.md"]
    own = names(machine / "batches")
    assert {"m0.md", "m1-power.png", "sweep-pytorch-2.15.0-resnet50-224px-1gpu.md"} <= set(own)
    assert sorted(name.removeprefix("other-") for name in names(machine / "wires" / "old")) == own
    assert names(out / "batches") == own
    assert names(out / "wires" / "old") == names(machine / "wires" / "old")


def test_the_committed_page_is_reproducible_and_checked_against_the_records(runs):
    """`make verify` failed on a committed page because of the minute at which it was drawn."""
    report([runs], out=None)
    first = (runs / "report.md").read_bytes()
    report([runs], out=None)
    assert (runs / "report.md").read_bytes() == first
    before = sorted(runs.rglob("*"))
    assert dlscale("report", "--check", runs).code == 0
    assert sorted(runs.rglob("*")) == before
    shutil.rmtree(runs / "m0-fp32-4")
    done = dlscale("report", "--check", runs)
    assert done.code == 1
    assert f"out of date: {runs / 'report.md'}; run `dlscale report {runs}`" in done.stderr
    # Every page that differs is named at once, each with the command that rewrites it.
    other = next(path.parent for path in sorted(runs.glob("*/record.json")))
    done = dlscale("report", "--check", runs, other)
    assert f"`dlscale report {runs}; dlscale report {other}`" in done.stderr
    assert dlscale("report", "--check", runs, "--format=mllog").code == 2


def test_every_link_of_the_committed_page_has_a_file_and_every_plot_a_link(runs, tmp_path):
    machine = tmp_path / "made up"  # a name that must be escaped in a link
    shutil.copytree(runs, machine / "some (topic)")
    report([machine], out=None)
    links = re.findall(r"\]\(([^)#]+)\)", (machine / "report.md").read_text())
    places = {(machine / unquote(link)).resolve() for link in links}
    assert all(place.exists() for place in places)
    assert places >= {path.resolve() for path in (machine / "some (topic)").glob("*.png")}
    assert not any("report-figures" in link for link in links)


def test_copies_of_a_run_are_left_out_and_named(tmp_path):
    """Three repeats and a link to the last were drawn as four, and copies of a run made its interval narrower."""
    folder = tmp_path / "runs"
    for number in (1, 2, 3):
        leave_graded(folder, f"m-r{number}", examples.trial(repeat=number), seconds=0.1 + number / 100)
    done = dlscale("report", folder, f"--out={tmp_path / 'honest'}")
    assert (done.code, done.stderr) == (0, "")
    (folder / "latest").symlink_to("m-r3")
    shutil.copytree(folder / "m-r1", folder / "m-r1 (copy)")
    shutil.copytree(folder / "m-r2", folder / "backup" / "m-r2")
    done = dlscale("report", folder, f"--out={tmp_path / 'out'}")
    assert done.code == 0
    assert sorted(done.stderr.splitlines()) == [
        f"{folder / copy}: left out, it holds the same run as {folder / run}, which counts once"
        for copy, run in (("backup/m-r2", "m-r2"), ("latest", "m-r3"), ("m-r1 (copy)", "m-r1"))
    ]
    assert names(tmp_path / "out") == names(tmp_path / "honest")
    assert "| 1 worker × 1 core | 3 | " in (tmp_path / "honest" / "report.md").read_text()
    assert (tmp_path / "out" / "report.md").read_text() == (tmp_path / "honest" / "report.md").read_text()


def test_nothing_to_draw_is_one_sentence(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "record.json").write_text("{")
    done = dlscale("report", tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(f"dlscale: {tmp_path}: holds no run record")


def test_an_unwritable_place_for_reports_is_one_sentence(runs, tmp_path):
    (tmp_path / "file").touch()
    done = dlscale("report", runs, f"--out={tmp_path / 'file' / 'x'}")
    assert done.code == 2
    assert "can't be written (Not a directory); choose another OUT=DIR" in done.stderr
