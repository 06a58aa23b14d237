"""The page as HTML.

Prevents: text of a record that closes its script element; a page that loads something from a network; a Plotly other than the installed
one; a point that links to another run; two figures that overwrite each other's files; a figure of an unusable run.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import Counter
from importlib import resources
from pathlib import Path

import examples
import pages
import pytest
import records
from swept import measured

from runner.commands.report import _collect, _page, report
from runner.core.console import no_console
from runner.core.errors import RequestError
from runner.core.trial import ExternalTrial
from runner.report.page import overview, render, runs
from runner.report.page.collect import Collected, with_distinct_titles
from runner.report.page.model import Block, Figure, Series
from runner.report.publish import Measured


def collected(*records_):
    found = Collected()
    found.records += [(record.run_id, record) for record in records_]
    return found


def written(page):
    return render.html(page, figures_folder="files")


def values(text):
    return json.loads(re.search(r'<script type="application/json" id="values">(.*?)</script>', text, re.DOTALL)[1])


@pytest.fixture(scope="module")
def small():
    return pages.page_of_one_matrix(title="t", made="m")


def test_no_text_of_a_record_becomes_markup():
    record = records.record()
    said = record.provenance.model_copy(update={"command": ("dlscale", pages.HOSTILE)})
    hostile = collected(record.model_copy(update={"provenance": said, "run_id": "<b>run</b>"}))
    block = Block(anchor="a", title="<i>title</i>", lead="<u>lead</u>")
    hostile.chapters["passes"].append(block)
    text = written(hostile.page(title="<s>t</s>", made="m"))
    for tag in ("<b>", "<i>", "<u>", "<s>", "<img", "window.hostile = 1</script>"):
        assert tag not in text
    assert text.count("</script>") == 3
    assert any(pages.HOSTILE[:20] in one for one in values(text)["strings"])


def test_the_page_loads_nothing_from_a_network(small):
    text = written(small)
    outside = text[: text.index('<script type="text/plain" id="plotly">')]
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", outside)
    assert "default-src 'none'" in outside
    assert "url(" not in outside
    assert "@import" not in outside


def test_plotly_is_the_installed_one(small):
    packed = re.search(r'id="plotly">([^<]*)<', written(small))[1]
    own = (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    assert gzip.decompress(base64.b64decode(packed)) == own


def test_points_link_to_their_runs_by_index(small):
    told = values(written(small))
    names = [told["strings"][cell] for cell in told["runs"]["cells"][0]]
    speedup = next(one for one in told["blocks"]["matrix-m001"]["figures"] if one["name"] == "m001-speedup")
    behind = {names[run] for run in speedup["series"][0]["runs"][1]}
    assert behind == {"m001-2-r1", "m001-2-r2"}


def test_a_curve_of_one_run_stores_it_once():
    series = Series(name="s", x=(1.0, 2.0), y=(0.1234567, 200.0), runs=(("a",), ("a",)))
    assert render._series(series, {"a": 7}) == {
        "name": "s",
        "kind": "measured",
        "x": [1, 2],
        "y": [0.123457, 200],
        "runs": [7],
        "alike": True,
    }


def test_equal_names_of_figures_and_blocks_are_numbered():
    found = collected(records.record())
    figure = Figure(name="f", title="t", x="x", y="y", series=(Series(name="s", x=(1.0,), y=(1.0,)),))
    found.chapters["passes"] += [Block(anchor="a", title="t", lead="", figures=(figure,))] * 2
    page = found.page(title="t", made="m")
    assert [one.name for one in page.figures] == ["f", "f-2"]
    assert [one.anchor for one in page.sections[0].blocks] == ["a", "a-2"]


def test_equal_titles_of_blocks_get_what_differs():
    """Prevents four headings `vgg16 train: transports` for four machines and batches."""

    def titles(*lines):
        blocks = [Block(anchor=f"a{n}", title="t", lead="", lines=two) for n, two in enumerate(lines)]
        return [block.title for block in with_distinct_titles(blocks)]

    assert titles(("vgg16, batch 32, bf16", "H200")) == ["t"]
    assert titles(("vgg16, batch 32, bf16", "H200"), ("vgg16, batch 64, bf16", "P100")) == [
        "t, batch 32, H200",
        "t, batch 64, P100",
    ]
    assert titles(("x", "y"), ("x", "y"), ()) == ["t, x, y, a0", "t, x, y, a1", "t"]


@pytest.mark.parametrize("folder", ["epyc-2core", "h200"])
def test_headings_of_the_committed_records_differ(folder):
    """Prevents seven blocks `mxnet 1.9.1: resnet18 train` in a chapter, and one title for several figures."""
    kept = Path(__file__).parents[3] / "results" / folder
    page = _page(_collect([kept], page=kept, folder_for=Path, write=False, pictures=False, console=no_console()))
    headings = [one.title for one in (*page.sections, *page.figures)]
    headings += [block.title for section in page.sections for block in section.blocks]
    assert [title for title, number in Counter(headings).items() if number > 1] == []


def two_matrices():
    """Two matrices of one machine, and a newer one of another machine, which trained something else."""
    found = Collected()
    other = measured(64, 3550.0, matrix="gpu", second=7)[1]
    old, new = [pages.scaled(n, matrix="a") for n in (1, 2)], [pages.scaled(1, matrix="b", number=9 * 10**8)]
    for matrix, own in (("a", old), ("gpu", [other]), ("b", new)):
        found.records += [(record.run_id, record) for record in own]
        found.matrix(Measured.of([(Path(record.run_id), record) for record in own]), name=matrix, watched={})
    return found.page(title="t", made="m")


def test_a_baseline_that_the_latest_matrix_reuses_is_not_compared_with_itself():
    """A run stood on both sides, with a ratio near 1."""
    found = Collected()
    old = [pages.scaled(n, matrix="a") for n in (1, 2)]
    new = [old[0], pages.scaled(2, matrix="b", number=9 * 10**8)]
    for matrix, own in (("a", old), ("b", new)):
        found.matrix(Measured.of([(Path(record.run_id), record) for record in own]), name=matrix, watched={})
    _, against, *_ = values(written(found.page(title="t", made="m")))["blocks"]["latest-run"]["tables"]
    assert (against["title"], len(against["rows"])) == ("Against the one before", 1)
    assert "2 CPU workers" in against["rows"][0][0]


def test_the_page_opens_with_the_latest_run_and_what_differs_from_the_one_before():
    page = two_matrices()
    first = values(written(page))["blocks"]["latest-run"]
    assert first["runs"] == [0]
    assert page.runs[0].run_id == "b-1-r1"
    assert page.latest.lead == "320.0 images/s on 1 worker × 1 core; no interval from 1 run, --repeat=3 gives one."
    assert [table["title"] for table in first["tables"]] == [
        "Result",
        "Against the one before",
        "What differs from the one before",
    ]
    assert first["tables"][2]["columns"] == ["fact", "before", "latest"]
    assert first["tables"][1]["columns"][2:5] == ["before", "latest", "ratio"]
    assert "workers=1,2" in first["empty"]
    assert Collected().page(title="t", made="m").latest is None


def test_blocks_of_other_machines_are_folded():
    page = two_matrices()
    assert [(block.anchor, block.elsewhere) for block in page.sections[-1].blocks] == [
        ("matrix-a", False),
        ("matrix-gpu", True),
        ("matrix-b", False),
    ]
    fastest, others, *_ = page.overview.tables
    assert [(one.title, one.folded) for one in (fastest, others)] == [
        ("Fastest cell of each network on unknown processor, 2 cores", False),
        ("Fastest cell of each network on NVIDIA H200", True),
    ]
    text = written(page)
    assert text.index('id="matrix-b"') < text.index('class="elsewhere"') < text.index('id="matrix-gpu"')


def test_chapters_without_records_are_listed_with_the_command_to_run():
    text = written(two_matrices())
    assert ("Techniques", "dlscale ablate") in two_matrices().missing
    assert "<dt>Techniques</dt><dd><code>dlscale ablate</code></dd>" in text
    assert "Scaling" not in dict(two_matrices().missing)


def test_ids_are_unique(small):
    found = re.findall(r'\sid="([^"]+)"', written(small))
    assert len(set(found)) == len(found)


def test_an_unusable_run_shows_no_figure_and_a_usable_one_does():
    usable, bad = (runs.line(records.record(status=status), link="x") for status in ("degraded", "invalid"))
    for name in ("throughput", "training time (s)", "speedup"):
        place = runs.COLUMNS.index(name)
        assert bad.cells[place] == "–"
        assert usable.cells[place] != "–"
    assert bad.reasons == ("made up",)


def test_a_run_of_an_external_program_has_a_row():
    external = ExternalTrial(
        image="mine:1",
        command=("python", "train.py"),
        dialect="mxnet",
        device="cpu",
        world_size=1,
        batch_per_device=None,
        warmup=None,
        data=None,
        cpus_per_worker=1,
        repeat=1,
        key="k",
    )
    line = runs.line(records.record().model_copy(update={"trial": external}), link="x")
    assert line.cells[runs.COLUMNS.index("framework")] == "mine:1"
    assert line.cells[runs.COLUMNS.index("model")] == "mine:1: python train.py"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (("/somewhere/.venv/bin/dlscale", "reproduce", "a b"), "dlscale reproduce 'a b'"),
        (("/somewhere/runner/commands/__main__.py", "ablate"), "dlscale ablate"),
    ],
)
def test_the_panel_has_the_command_without_the_path_of_the_program(typed, told):
    record = records.record()
    said = record.provenance.model_copy(update={"command": typed})
    facts = {one.name: one for one in runs.line(record.model_copy(update={"provenance": said}), link="x").facts}
    assert (facts["repeat it with"].value, facts["repeat it with"].command) == (told, True)
    assert facts["image"].value == "dlscale/mxnet:1.9.1"


def test_the_overview_counts_by_validity_and_names_the_fastest():
    rows = [pages.scaled(1, matrix="a"), pages.scaled(2, matrix="a"), pages.scaled(4, matrix="a", status="invalid")]
    counted = dict(overview.counts([runs.line(row, link="x") for row in rows], studies=3))
    assert (counted["runs"], counted["valid"], counted["invalid"], counted["studies"]) == (3, 2, 1, 3)
    fastest = overview.overview(rows, []).tables[0]
    assert [row[fastest.columns.index("made from")] for row in fastest.rows] == ["a-1-r1", "a-2-r1"]


def shown(records_):
    """Rows of the table of the fastest cells, as dicts, by network and devices."""
    table = overview.overview(records_, []).tables[0]
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return {(row["network"], row["devices"]): row for row in rows}


def test_the_runs_of_a_cell_are_pooled_instead_of_showing_the_best():
    """Prevents the best of several repeats as a network's figure: repeats ranged from 71 to 1,504 images/s, and 1,504 was shown.

    1280 images at 71/s and at 1,504/s: 2560 in 18.028 + 0.851 s are 135.6/s.
    """
    own = [pages.at(rate, run_id=f"r{rate}") for rate in (71.0, 1504.0)]
    (row,) = shown(own).values()
    assert (row["runs"], row["throughput ±"], row["made from"]) == ("2", "135.6 images/s", "r71.0 r1504.0")


def test_the_cell_with_the_highest_pooled_throughput_is_shown():
    """Batch 64 ran at 100 and 300/s, 150/s pooled; batch 128 at 200/s in all three runs."""
    small = [pages.at(rate, run_id=f"small{rate}", batch=64) for rate in (100.0, 300.0)]
    large = [pages.at(200.0, run_id=f"large{n}", batch=128) for n in range(3)]
    (row,) = shown([*small, *large]).values()
    assert (row["runs"], row["throughput ±"]) == ("3", "200.0 ± 0 images/s")
    assert row["cell"] == "fp32, batch 128 each, 1 core each"


def test_the_number_of_visible_gpus_does_not_split_groups():
    """Prevents a group for each number of visible GPUs: VGG-16 showed 3,550 images/s although one GPU of two reached 3,735."""
    _, alone = measured(64, 3550.0, run_id="alone")
    _, beside = measured(128, 3735.0, run_id="beside")
    two = beside.provenance.model_copy(update={"gpus": beside.provenance.gpus * 2})
    both = [alone, beside.model_copy(update={"provenance": two})]
    (row,) = shown(both).values()
    assert (row["devices"], row["throughput ±"]) == ("1 GPU", "3,735 images/s")
    assert overview.overview(both, []).tables[0].title == "Fastest cell of each network on NVIDIA H200"
    assert row["made from"] == "beside"


def test_a_cells_speedup_is_over_all_runs_of_its_baseline():
    base = [pages.scaled(1, matrix="a", repeat=n) for n in (1, 2)]
    own = shown([*base, pages.scaled(2, matrix="a")])
    assert own["resnet18 32×32 train", "2 workers × 1 core"]["speedup ±"] == "2.000"
    assert own["resnet18 32×32 train", "1 worker × 1 core"]["runs"] == "2"


def test_frameworks_are_compared_only_in_the_same_setting():
    pair = [
        pages.scaled(1, matrix="a", strategy="single"),
        records.record(run_id="b", trial=examples.trial(iterations=32, warmup=0)),
    ]
    (figure,) = overview.overview(pair, []).figures
    assert set(figure.series[0].x) == {"pytorch 2.13.0-cpu, single", "mxnet 1.9.1, single"}
    assert figure.interval == "none from fewer than 3 runs"
    apart = [pair[0], records.record(run_id="b", trial=examples.trial(batch_per_device=64, global_batch=64))]
    assert overview.overview(apart, []).figures == ()


def test_a_framework_has_its_fastest_cell_with_techniques_and_without():
    """Prevents a bar for every line of an ablation: their names overlapped and displaced other frameworks."""
    techniques = ((), ("channels-last",), ("channels-last", "compile"))
    rows = [
        pages.at(100.0 * (number + 1), run_id=f"r{number}", techniques=own) for number, own in enumerate(techniques)
    ]
    other = pages.at(50.0, run_id="other", framework="pytorch", version="2.13.0", strategy="ddp")
    (figure,) = overview.overview([*rows, other], []).figures
    assert [place for place in figure.series[0].x if place.startswith("mxnet")] == [
        "mxnet 1.9.1, single, channels-last, compile",
        "mxnet 1.9.1, single",
    ]


def test_a_damaged_study_only_removes_itself(tmp_path, capsys):
    runs_ = tmp_path / "runs"
    record = pages.converging()
    pages.leave(runs_, (record.run_id, record))
    (runs_ / "x.reproduction.json").write_text("{}")
    report([runs_], out=tmp_path / "out")
    assert (tmp_path / "out" / "report.html").is_file()
    assert "is no reproduction of a study" in capsys.readouterr().out


def test_a_missing_directory_is_not_created(tmp_path):
    with pytest.raises(RequestError, match="does not exist"):
        report([tmp_path / "gone"], out=None)
    assert not (tmp_path / "gone").exists()
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="is a file"):
        report([tmp_path / "file"], out=None)


def test_several_directories_share_a_page_in_their_parent(tmp_path):
    for machine in ("one", "two"):
        record = pages.scaled(1, matrix=machine)
        pages.leave(tmp_path / machine, (record.run_id, record))
    report([tmp_path], out=None, beside_runs=False)
    told = values((tmp_path / "report.html").read_text())
    assert (
        sorted(path.name for path in tmp_path.glob("*/*") if path.is_file()) == []
    )  # their own reports are not drawn again
    assert sorted(panel[0] for panel in told["runs"]["panels"]) == [
        "one/one-1-r1/record.json",
        "two/two-1-r1/record.json",
    ]
    (tmp_path / "report.html").unlink()
    report([tmp_path / "one", tmp_path / "two"], out=None)
    assert (tmp_path / "report.html").is_file()
