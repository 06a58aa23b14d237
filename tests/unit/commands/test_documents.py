"""Prevents: a generated table of docs/ that differs from the catalog, the records or the command line; a Make variable that no page names.

Prevents: a support matrix that promises what nobody ran, hides what somebody ran, or counts an invalid run.
"""

import examples
import pytest
import typer
from records import record

from runner.commands import documents
from runner.commands.cli import app
from runner.commands.documents import strategies_of, support_matrix
from runner.core.errors import DlscaleError
from runner.core.strategies import STRATEGIES
from runner.images.catalog import load_images

COMMAND = typer.main.get_command(app)
VARIABLES = documents.make_variables((examples.ROOT / "Makefile").read_text("utf-8"))


def test_the_committed_tables_are_current():
    documents.export(COMMAND, check=True)


def test_an_outdated_page_is_refused_then_rewritten_unless_it_lacks_its_marks(tmp_path, monkeypatch):
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


def test_every_make_variable_is_documented():
    page = "\n".join(documents.options(COMMAND, VARIABLES))
    sections = {section.partition("\n")[0].removeprefix("dlscale "): section for section in page.split("### ")}
    # `overhead` and `ablate` themselves refuse most variables of `bench`.
    for target in VARIABLES.keys() & sections.keys() - {"overhead", "ablate"}:
        assert [name for name in VARIABLES[target] if f"| `{name}` |" not in sections[target]] == [], target


def test_lists_of_make_variables_can_be_nested():
    makefile = "ALL := A \\\n  B\nTAKES.bench := $(ALL) C\nTAKES.plan := $(TAKES.bench)\n"
    assert documents.make_variables(makefile) == {"bench": ("A", "B", "C"), "plan": ("A", "B", "C")}


IMAGES = load_images(examples.ROOT).all_images
MXNET = next(image for image in IMAGES if image.name == "mxnet 1.9.1")
TWO = examples.trial(strategy="kvstore", kvstore="dist_sync", world_size=2, processes=2, global_batch=64)


def ran_on(*records):
    """The last cell of MXNet's row: one entry per strategy that has run."""
    (row,) = support_matrix([MXNET], records).splitlines()[2:]
    return row.strip("| ").split(" | ")[5].split("<br>")


def test_every_image_is_a_row_with_its_strategies_and_has_not_run_without_a_record():
    first, *others = support_matrix(IMAGES, []).splitlines()[2:]
    assert len([first, *others]) == len(IMAGES)
    for image, row in zip(IMAGES, [first, *others], strict=True):
        assert row.strip("| ").split(" | ")[4] == ", ".join(strategies_of(image))
        assert row.endswith("| not yet |")


def test_a_row_names_the_hardware_and_the_kvstore_of_its_records():
    cpu = record().provenance.host.cpu_model or "unknown processor"
    assert ran_on(record(trial=TWO, run_id="two"), record()) == [
        f"single: 1 CPU worker, {cpu}",
        f"kvstore (dist_sync): 2 CPU workers, {cpu}",
    ]


def test_equal_hardware_is_listed_once_and_invalid_runs_do_not_count():
    assert ran_on(record(), record(run_id="again")) == ran_on(record())
    assert ran_on(record(status="invalid")) == ["not yet"]


def test_emulated_nodes_are_marked_as_emulated():
    several = record(trial=TWO.model_copy(update={"nodes": 2}), run_id="two")
    (entry,) = ran_on(several)
    assert entry.startswith("kvstore (dist_sync): 2 CPU workers on 2 nodes, ")
    told = several.transport.model_copy(update={"emulated": "emulated 1gbit"})
    (entry,) = ran_on(several.model_copy(update={"transport": told}))
    assert entry.startswith("kvstore (dist_sync): 2 CPU workers on 2 nodes (emulated), ")


def test_a_horovod_image_has_only_horovod_and_caffe_scales_on_gpus_only():
    strategies = {(image.framework, image.device, image.extension): strategies_of(image) for image in IMAGES}
    assert strategies["mxnet", "cpu", "horovod"] == ("horovod",)
    assert strategies["caffe", "cpu", None] == ("single",)
    assert strategies["caffe", "gpu", None] == ("single", "caffe")
    assert strategies["tensorflow", "cpu", None] == ("single", "mirrored", "multiworker", "ps")
    assert {name for found in strategies.values() for name in found} == set(STRATEGIES)
