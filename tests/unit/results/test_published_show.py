"""`dlscale published`.

Prevents: figures of one network among another's; a contradiction that is not shown with its figure; an unknown name without the
nearest known names; a plot with indistinguishable curves, or with a point drawn twice; a number as text in JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from commands import ROOT, Ended, run_to_end
from made_up_source import rate, source, table

from runner.commands.published import Wanted, contradiction_text, select
from runner.core.errors import RequestError
from runner.report.picture import draw
from runner.report.published_plot import curves, curves_png, panels
from runner.results.published.derive import contradictions, scaled
from runner.results.published.load import load_all

pytestmark = pytest.mark.filterwarnings("error")  # a glyph missing in the font is a warning


def published(*words: str) -> Ended:
    return run_to_end(["published", *words])


def test_without_a_name_every_source_has_a_line():
    done = published()
    assert done.code == 0, done.stderr
    table, rest = done.stdout.split("\n\n")
    assert [line.split()[0] for line in table.splitlines()[2:]] == [each.id for each in load_all()]
    assert "nvidia-dle-mxnet-rn50 12" in " ".join(rest.split())
    assert "1457 figures and" in rest
    assert "33 sources" in rest
    assert table.splitlines()[0].index("what") <= 80 - 30


def test_many_figures_of_a_network_become_one_line_a_source_with_its_fastest_device():
    lines = published("--model=resnet50").stdout.splitlines()
    assert len(lines) < 30
    (line,) = (line for line in lines if line.startswith("tensorflow-benchmarks-2017 "))
    assert line.split()[1:6] == ["58", "219.0", "images/s:", "Tesla", "P100"]


@pytest.mark.parametrize("words", [(), ("--source=dell-emc-2016-p100",), ("--model=resnet50",)])
def test_all_fits_a_terminal_of_80_columns(words):
    assert max(map(len, published(*words).stdout.splitlines())) <= 80


def test_json_has_a_figure_and_its_contradiction_as_numbers():
    done = published("--source=nvidia-dle-mxnet-rn50", "--json")
    figures = {entry["id"]: entry for entry in json.loads(done.stdout)}
    wrong = figures["dlemx.a100.amp_over_tf32.g1"]
    assert (wrong["value"], wrong["unit"], wrong["conditions"]["model"]) == (2.18, "x", "resnet50")
    (found,) = wrong["contradictions"]
    assert found["recomputed"] == pytest.approx(3.230332)
    assert figures["dlemx.v10032gbdgx2.amp.g16"]["speedup"] == pytest.approx(21484 / 1492)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model=resnet51"], "no published figure has the model 'resnet51'; nearest: resnet50, "),
        (["--framework=mxnt"], "no published figure has the framework 'mxnt'; nearest: mxnet, "),
        (["--source=dell-emc"], "no published figure has the source 'dell-emc'; nearest: dell-emc-2016-p100, "),
        (["--source=stas00-mamf", "--model=vgg16"], "no published figure in stas00-mamf has the model 'vgg16'; nearest: none"),
        (["--model=googlenet", "--framework=pytorch"], "has both model 'googlenet' and framework 'pytorch'"),
        (["--model=wgan", "--plot=x.png"], "published figures of wgan do not cover several numbers of devices"),
    ],
)  # fmt: skip
def test_unknown_names_give_one_sentence(words, said):
    done = published(*words)
    assert done.code == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_plot_is_written_to_the_requested_path(tmp_path):
    path = tmp_path / "curves.png"
    done = published("--model=inception-v3", f"--plot={path}")
    assert done.code == 0, done.stderr
    assert path.read_bytes().startswith(b"\x89PNG")
    refused = published("--model=inception-v3", f"--plot={path}/below.png")
    assert refused.code == 2
    assert refused.stderr.strip().endswith("can't be written (Not a directory); give another file with --plot FILE.png")


def test_a_plot_needs_no_home(tmp_path):
    """Where HOME is read-only, as in many batch jobs, every bench and report printed matplotlib's advice about a cache."""
    argv = [
        sys.executable,
        "-m",
        "runner.commands",
        "published",
        "--model=inception-v3",
        f"--plot={tmp_path / 'curves.png'}",
    ]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MPL", "XDG_"))}
    done = subprocess.run(argv, cwd=ROOT, env={**env, "HOME": "/proc/none"}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, f"plot: {tmp_path}/curves.png\n")


def test_figures_match_all_filters():
    listed = select(load_all(), Wanted(model="resnet50", framework="mxnet"))
    assert {figure.conditions.model for each in listed for figure in each.figures} == {"resnet50"}
    assert {figure.conditions.framework for each in listed for figure in each.figures} == {"mxnet"}
    with pytest.raises(RequestError):
        select((), Wanted(model="resnet50"))


def test_a_contradiction_is_described_by_both_figures_and_the_note_of_the_file():
    rates = table(rate(1, 219), rate(8, 1734))
    printed = table({"id": "p", "gpus": 8, "value": 7.29, "versus": {"gpus": 1}}, metric="speedup", unit="x")
    made = source(rates, printed, contradictions=({"check": "ratio", "figures": ["p"], "why": "misprint"},))
    (found,) = contradictions(made)
    assert (
        contradiction_text(found, made)
        == "contradiction (ratio): p is printed as 7.29 x, by g8 and g1 it is 7.91781 (-7.9 %); misprint"
    )


def drawn(*rows, **conditions):
    made = source(table(*rows, **conditions))
    return curves(made, scaled(made))


def test_curves_hold_speedups_and_are_named_by_their_differences():
    rows = [
        rate(gpus, value, id=f"{precision}{gpus}", precision=precision)
        for precision, values in (("fp32", (100, 190)), ("amp", (300, 480)))
        for gpus, value in zip((1, 2), values, strict=True)
    ]
    assert [(curve.label, curve.points) for curve in drawn(*rows, batch_per_gpu=32)] == [
        ("made-up: fp32", ((1, 1.0), (2, 1.9))),
        ("made-up: amp", ((1, 1.0), (2, 1.6))),
    ]
    (alone,) = drawn(rate(1, 100), rate(2, 190))
    assert alone.label == "made-up"


def test_a_curve_that_begins_with_several_devices_begins_on_the_ideal_line():
    (curve,) = drawn(rate(8, 800), rate(16, 1200), rate(16, 1300, id="again"))
    assert curve.points == ((8, 8.0), (16, 12.0))  # the first of two figures of 16


def test_every_published_curve_is_drawn_and_distinguishable():
    found = [curve for each in load_all() for curve in curves(each, scaled(each))]
    assert len({curve.label for curve in found}) == len(found)
    top, bottom = draw(*panels(found), title="Published scaling").axes
    assert len(top.lines) == len(found) + 1  # and the ideal
    assert len(bottom.lines) == len(found) + 1
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in top.lines}
    assert len(looks) > len(found) / 2
    assert curves_png(found[:3], title="Three").startswith(b"\x89PNG")
