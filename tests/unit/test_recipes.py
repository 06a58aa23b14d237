"""Recipes of docs/extending that do not work as they are written: each is walked here by declaring what it asks for, and nothing else."""

import csv
import io
import re
import shutil
from pathlib import Path
from typing import get_args

import examples
import pytest
from records import record
from rich.console import Console
from summaries import summary, unusable

from runner.analysis.summarize import summarize
from runner.core import strategies
from runner.core.errors import RequestError
from runner.core.request import DialectName, Request
from runner.core.transport import carrier
from runner.core.workload import choose_workload, load_workloads
from runner.plan import launch
from runner.plan.launch import launchers
from runner.plan.strategy import Chosen, offered
from runner.plan.techniques import effective
from runner.report import matrix, terminal
from runner.run import dialects


def slowest_step(row):
    steps = [one.measurement.step_time_s for one in row.records if one.measurement.step_time_s]
    return max(1000 * step.p99 for step in steps) if steps else None


def test_a_column_is_one_declaration(monkeypatch, tmp_path):
    ran = [(tmp_path / "one", record())]
    monkeypatch.setattr(matrix, "OPTIONAL_COLUMNS", ())  # the checklist's own example may be one of them
    before = matrix.markdown(summarize(ran))
    declared = matrix.Column("p99 step (ms)", "step_p99_ms", slowest_step)
    monkeypatch.setattr(matrix, "OPTIONAL_COLUMNS", (declared,))
    found = summarize(ran)
    console = Console(file=io.StringIO(), width=120)
    terminal.print_whole(console, found)
    (line,) = csv.DictReader(io.StringIO(matrix.to_csv(found)))
    # 0.1 s a step (tests/records.py).
    assert float(line["step_p99_ms"]) == 100.0
    assert "| p99 step (ms) |" in matrix.markdown(found)
    assert "| 100" in matrix.markdown(found)
    assert "step (ms)" in console.file.getvalue()  # headers wrap
    # Where no row has the figure, tables are as they were.
    assert "p99" not in before
    assert "p99" not in matrix.markdown(summary(unusable(2, "failed")))


def test_a_strategy_is_one_entry_and_a_launcher(monkeypatch):
    for name in get_args(strategies.StrategyName):
        assert strategies.STRATEGIES[name].launcher in launchers.LAUNCHERS
    pairs = lambda job: (launchers.single(job)[0].model_copy(update={"name": "pairs"}),)  # noqa: E731
    monkeypatch.setitem(launchers.LAUNCHERS, "pairs", pairs)
    declared = strategies.Strategy(("pytorch",), "pairs", devices=("cpu",), between_cpus="gloo")
    monkeypatch.setitem(strategies.STRATEGIES, "pairs", declared)
    trial = examples.trial(framework="pytorch", world_size=2, processes=2).model_copy(update={"strategy": "pairs"})
    assert [spec.name for spec in launch.launch(examples.job(trial))] == ["pairs"]
    assert carrier(trial) == "gloo"
    images = examples.catalog("1.9.1", "2.13.0-cpu", "2.15.0").images
    assert {image.name for image in images if "pairs" in offered(image)} == {"pytorch 2.13.0-cpu"}
    workloads = [workload for workload in load_workloads(examples.ROOT) if "pytorch" in workload.frameworks("train")]
    assert all(workload.offers("pairs", "pytorch") for workload in workloads)
    monkeypatch.setitem(strategies.STRATEGIES, "pairs", strategies.Strategy(("pytorch",), "pairs", cuts=True))
    assert [workload.name for workload in workloads if workload.offers("pairs", "pytorch")] == ["language_model"]


def test_facts_of_a_strategy_decide_and_not_its_name(monkeypatch):
    """Techniques, precisions and figures had lists of names, which a new strategy was not in."""

    def declare(**facts):
        declared = strategies.Strategy(("tensorflow",), "torchrun", between_cpus="grpc", **facts)
        monkeypatch.setitem(strategies.STRATEGIES, "mirrored", declared)

    on_gpus = examples.trial(
        framework="tensorflow", strategy="mirrored", device="gpu", world_size=2, processes=2, cpus_per_worker=None
    )
    declare(parameter_servers=True)
    assert (carrier(on_gpus), on_gpus.asynchronous) == ("grpc", True)
    assert Chosen("mirrored").ip_only("gpu")
    declare()
    assert (carrier(on_gpus), on_gpus.asynchronous) == ("nccl", False)
    names = ("compile", "cuda-graphs", "one-message")
    asked = Request(techniques=names)
    assert effective(asked, strategy="mirrored") == names[:2]
    declare(tunes_exchange=True)
    assert effective(asked, strategy="mirrored") == names
    declare(splits_layers="all")
    assert effective(asked, strategy="mirrored") == ("cuda-graphs",)
    declare(sends_by_thread=True)
    assert effective(asked, strategy="mirrored") == ("compile",)


def test_a_model_is_one_entry_of_the_workload(tmp_path):
    """Its layers are tested in the images."""
    shutil.copytree(examples.ROOT / "workloads", tmp_path / "workloads")
    catalog = tmp_path / "workloads" / "imagenet_cnn" / "workload.yaml"
    entry = """\
  - name: resnet34
    image_size: 224
    min_image_size: 32
    learning_rate: 0.02
    parameters: {pytorch: 21797672}
    source: https://arxiv.org/abs/1512.03385
"""
    catalog.write_text(catalog.read_text() + entry)
    workload = choose_workload(load_workloads(tmp_path), "resnet34")
    model = workload.find_model("resnet34", framework="pytorch")
    found = (workload.name, workload.image_size(model, device="gpu"), model.frameworks)
    assert found == ("imagenet_cnn", 224, ("pytorch",))
    with pytest.raises(RequestError, match="resnet34"):
        workload.find_model("resnet34", framework="mxnet")


def test_a_dialect_is_a_name_and_a_module():
    made = {name: dialects.DIALECTS[name].__module__.rpartition(".")[2] for name in get_args(DialectName)}
    modules = {path.stem for path in Path(dialects.__file__).parent.glob("*.py")}
    assert set(made.values()) == modules - {"__init__", "base", "detection", "figures", "pattern"}
    assert all(module == name.replace("-", "_") for name, module in made.items())
    assert dialects.UNITS["nccl-tests"] == "GB/s"


def test_what_recipes_name_is_there():
    """One named `ranks_<framework>.py`, which had been moved."""
    pages = [*(examples.ROOT / "docs" / "extending").glob("*.md"), examples.ROOT / "CONTRIBUTING.md"]
    named = {
        word
        for page in pages
        for word in re.findall(r"`((?:runner|tests|workloads|images|results)/[^`\s]+)`", page.read_text())
    }
    assert len(named) > 20
    assert not [name for name in named if not any(examples.ROOT.glob(re.sub(r"<\w+>", "*", name).rstrip("/")))]
