"""Prevents: a generated table of docs/ that differs from the catalog, the records or the command line; a Make variable that no page names."""

import examples
import pytest
import typer

from runner.commands import documents
from runner.commands.cli import app
from runner.core.errors import DlscaleError

COMMAND = typer.main.get_command(app)
VARIABLES = documents.make_variables((examples.ROOT / "Makefile").read_text("utf-8"))


def test_the_committed_tables_are_current():
    documents.export(COMMAND, check=True)


def test_a_page_that_differs_is_refused_and_written_again_but_not_without_its_marks(tmp_path, monkeypatch):
    for page in documents.DOCS.glob("*.md"):
        (tmp_path / page.name).write_text(page.read_text("utf-8").replace("\u2265 450.80.02", "none"), "utf-8")
    monkeypatch.setattr(documents, "DOCS", tmp_path)
    with pytest.raises(DlscaleError, match=r"images\.md"):
        documents.export(COMMAND, check=True)
    documents.export(COMMAND, check=False)
    documents.export(COMMAND, check=True)
    (tmp_path / "images.md").write_text("# Images\n", "utf-8")
    with pytest.raises(DlscaleError, match="marks"):
        documents.export(COMMAND, check=False)


def test_the_variables_of_make_are_all_named():
    page = "\n".join(documents.options(COMMAND, VARIABLES))
    sections = {section.partition("\n")[0].removeprefix("dlscale "): section for section in page.split("### ")}
    # `overhead` and `ablate` refuse most variables of `bench` themselves.
    for target in VARIABLES.keys() & sections.keys() - {"overhead", "ablate"}:
        assert [name for name in VARIABLES[target] if f"| `{name}` |" not in sections[target]] == [], target


def test_a_list_of_variables_may_hold_others():
    makefile = "ALL := A \\\n  B\nTAKES.bench := $(ALL) C\nTAKES.plan := $(TAKES.bench)\n"
    assert documents.make_variables(makefile) == {"bench": ("A", "B", "C"), "plan": ("A", "B", "C")}
