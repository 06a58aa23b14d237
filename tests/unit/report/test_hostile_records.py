"""Prevents: a record from elsewhere that controls the terminal, becomes markup, writes to other folders, or removes other records' tables."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from runner.commands import cli
from runner.core import yamlfile
from runner.core.errors import RequestError
from runner.experiments.overhead.figures import read_overhead
from runner.experiments.studies.reproduction import read_reproduction
from runner.images.build import Manifest
from runner.images.versions import VersionsFile
from runner.report.table import code, escaped, line

ROOT = Path(__file__).parents[3]
CODES = "\x1b]0;owned\x07\x1b[31mred\x9b2J\x08"
MARKUP = "<b>*x*</b> [a](http://b) `c`|d"
HAS_A_PROFILE = "results/h200/cern-wgan/20261128T143916Z-f675-pytorch-wgan-gp-1gpu-profile-kernels-r1"
COMMANDS = (
    ("report", "{in}", "--out={out}"),
    ("report", "{bad}", "--out={out}"),
    ("report", "{in}", "--format=mllog", "--out={out}"),
    ("regrade", "{in}"),
    ("compare", "{bad}", "{good}"),
    ("compare", "--markdown", "{bad}", "{good}"),
    ("compare", "--json", "{bad}", "{good}"),
    ("query", "FROM runs", "--in={in}"),
    ("query", "--csv", "FROM runs", "--in={in}"),
    ("query", "--json", "FROM runs", "--in={in}"),
    ("profile", "{in}"),
    ("profile", "--json", "{in}"),
)


@pytest.fixture
def folders(tmp_path):
    """Two runs of one training and a pass under a profiler; tests damage the first."""
    runs = sorted(path.parent for path in (ROOT / "results" / "epyc-2core").glob("*/record.json"))[:2]
    for name, run in zip(("bad", "good", "pass"), (*runs, ROOT / HAS_A_PROFILE), strict=True):
        shutil.copytree(run, tmp_path / "in" / name)
    (tmp_path / "out").mkdir()
    return {"in": tmp_path / "in", "out": tmp_path / "out", "bad": tmp_path / "in/bad", "good": tmp_path / "in/good"}


@pytest.fixture
def dlscale(folders, monkeypatch, capsys):
    """Run a command in this process; returns its exit code and its output."""
    for module, own in ((cli.console, "discard_after_hangup"), (cli.interrupts, "listen"), (cli.interrupts, "ignore")):
        monkeypatch.setattr(module, own, lambda: None)
    monkeypatch.setattr(cli.interrupts, "_received", [])

    def run(words):
        monkeypatch.setattr(sys, "argv", ["dlscale", *(word.format(**folders) for word in words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return run


def with_texts(path, put):
    """Put a text into a record's fields about machine, software and verdict, and into the words of its program."""
    fields = json.loads(path.read_text())
    fields["trial"]["model"] += put
    fields["image"]["reference"] += put
    fields["engine_details"]["reason"] = put
    fields["provenance"]["host"]["cpu_model"] += put
    fields["validity"] = {"status": "degraded", "reasons": [put]}
    if fields.get("profile"):
        for kernel in fields["profile"]["kernels"]:
            kernel["name"] += put
    path.write_text(json.dumps(fields))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_passes_escape_codes_to_a_terminal_or_a_file(folders, dlscale, words):
    """Escape codes of a container's output reached the terminal, report.md, the CSV of a query, and the page."""
    for path in folders["in"].glob("*/record.json"):
        with_texts(path, CODES)
    code, out, err = dlscale(words)
    assert code in (0, 2), err
    written = [
        path.read_text() for path in folders["out"].rglob("*.*") if path.suffix in (".md", ".csv", ".txt", ".html")
    ]
    assert not {"\x1b", "\x07", "\x08", "\x9b"} & set("".join((out, err, *written)))
    assert words[0] != "report" or written


def test_text_of_a_record_is_never_markup(folders, dlscale):
    """A run's report read a kernel's `<float>` as HTML, and `[a](b)` in a reason as a link."""
    for path in folders["in"].glob("*/record.json"):
        with_texts(path, MARKUP)
    dlscale(COMMANDS[0])
    written = [path.read_text() for path in folders["out"].rglob("*.md")]
    assert len(written) == 3
    for text in written:
        assert "<b>" not in text.replace("\\<b>", "")
        assert "[a](http" not in text.replace("\\[a\\](http", "")


def test_escaped_text_is_not_markup_and_stays_in_its_cell():
    assert (
        escaped("# a *b* _c_ `d` [e](f) <g> | h\\ \n- i")
        == "\\# a \\*b\\* \\_c\\_ \\`d\\` \\[e\\](f) \\<g> \\| h\\\\  - i"
    )
    assert escaped("resnet50_v1 < 2, 1.5 > 1") == "resnet50_v1 < 2, 1.5 > 1"
    assert escaped("\x1b[1mbold") == "bold"  # not `\[1mbold`, whose escape code was broken by the escaping
    assert escaped("\x1b]0;never ends\nthe rest") == " the rest"
    assert line(["a|b", "c\nd"]) == "| a\\|b | c d |"
    assert code("a `b` \x1b[1mc") == "`a b c`"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "change",
    [
        ('"schema": 1', '"schema": 2, "not_known_yet": []'),
        ('"training_time_s": ', '"training_time_s": NaN, "was": '),
        ('"training_time_s": ', '"training_time_s": 1e999, "was": '),
        ('"seed": ', '"seed": 99999999999999999999, "was": '),
    ],
    ids=["newer", "nan", "infinite", "huge"],
)
def test_an_unreadable_record_is_one_sentence_and_the_others_are_read(folders, dlscale, words, change):
    """A number of more than 64 bits gave a traceback in `query`, one of a thousand digits a traceback in `report`."""
    path = folders["bad"] / "record.json"
    path.write_text(path.read_text().replace(*change, 1))
    exit_code, out, err = dlscale(words)
    alone = "{in}" not in "".join(words)
    assert exit_code == (2 if alone or words[0] == "regrade" else 0)
    said = [text for text in (*out.splitlines(), *err.splitlines()) if str(path) in text]
    assert len(said) == 1
    assert "Traceback" not in err
    if not alone and words[0] == "query":
        assert "dcb6-mxnet-resnet18-1cpu-r2" in out


def test_names_in_other_files_can_not_leave_their_folder(tmp_path):
    """Ids of records were made safe, but files of overheads, studies, archives and catalogs name files too."""
    overhead = json.loads(next((ROOT / "results/h200/overhead").glob("overhead-*.json")).read_text())
    path = tmp_path / "overhead-x.json"
    for change in (
        {"name": "../x"},
        {"name": "/elsewhere/x"},
        {"rounds": [[{"side": "suite", "began_s": 0, "ended_s": 1, "run_id": "../x"}]]},
    ):
        path.write_text(json.dumps(overhead | change))
        with pytest.raises(RequestError, match="name|run_id"):
            read_overhead(path)
    study = json.loads((ROOT / "tests/golden/studies/made-up.reproduction.json").read_text())
    path = tmp_path / "x.reproduction.json"
    for change in ({"study": "../x"}, {"cells": [study["cells"][0] | {"runs": ["../x"]}]}):
        path.write_text(json.dumps(study | change))
        with pytest.raises(RequestError, match="study|runs"):
            read_reproduction(path)
    with pytest.raises(ValueError, match="file"):
        Manifest.model_validate({"images": [{"file": "../x", "sha256": "", "reference": "", "id": ""}]})


@pytest.mark.parametrize("room", ["images", "bases", "suites"])
def test_a_catalog_can_not_name_a_folder_above_its_own(tmp_path, room):
    """With `images: {../../x: ...}` in versions.yaml, `images render` wrote a Dockerfile outside of its folder."""
    catalog = yaml.safe_load((ROOT / "images" / "versions.yaml").read_text())
    catalog[room]["../../x"] = next(iter(catalog[room].values()))
    path = tmp_path / "versions.yaml"
    path.write_text(yaml.safe_dump(catalog))
    with pytest.raises(RequestError, match=room):
        yamlfile.load(path, VersionsFile)


def test_an_argument_that_parses_as_a_number_stays_text(folders, dlscale):
    """`sleep infinity` in a command line made a record unreadable."""
    path = folders["good"] / "record.json"
    fields = json.loads(path.read_text())
    fields["provenance"]["command"] = ["dlscale", "bench", "--image=x", "--", "sleep", "infinity"]
    path.write_text(json.dumps(fields))
    code, _, complaints = dlscale(("query", "SELECT run_id FROM runs", "--in={in}"))
    assert (code, complaints) == (0, "")
