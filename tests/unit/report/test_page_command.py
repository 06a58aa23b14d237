"""The command line that the page shows for a run, parsed again.

Prevents: `dlscale bench` without flags for a run whose framework, network and workers were that machine's defaults; an option that the
suite refuses; a baseline whose worker has other cores than the run that it is for.
"""

from __future__ import annotations

import shlex

import examples
import pytest
import records
from planned import dataset, resources, workload_of
from typer.testing import CliRunner

from runner.commands.cli import app
from runner.plan.plan import plan
from runner.report.page.runs import rerun_command
from runner.run import bench

RUNNER = CliRunner()
EIGHT = examples.node(cores=tuple(range(8)))


def request_of(monkeypatch, words):
    """The request that a command line makes."""
    requests = []
    monkeypatch.setattr(bench, "dry_run", lambda request: requests.append(request) or 0)
    done = RUNNER.invoke(app, ["bench", "--dry-run", *words])
    assert done.exit_code == 0, done.output
    return requests[0]


def record_of(trial, here, words):
    found = records.record()
    host = found.provenance.host.model_copy(update={"usable_threads": len(here.node.cores)})
    typed = ("/somewhere/.venv/bin/dlscale", "bench", *words)
    changed = {"provenance": found.provenance.model_copy(update={"host": host, "command": typed})}
    return found.model_copy(update={**changed, "trial": trial, "engine": here.engine.name})


def comparable(trial):
    """All of a trial, including its key, except the window's length, which depends on the other scales of its sweep."""
    return trial.model_copy(update={"window": 0, "measure_s": None})


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (resources(), ""),
        (resources(node=EIGHT), ""),
        (resources(node=EIGHT), "--workers=4"),
        (resources(node=EIGHT), "--workers 1,3 --threads=1 --iterations 12 --warmup=3"),
        (resources(node=examples.node(cores=(0, 1, 2, 3, 4))), "--scaling=strong --batch=12"),
        (resources(), "--workers=3 --oversubscribe --seed=7"),
        (resources("pytorch", "gpu"), ""),
        (resources("pytorch", "gpu"), "--preset=tuned"),
        (resources("pytorch", "gpu"), "--precision=bf16 --interconnect=shm,nvlink --gpus=2"),
        (resources("mxnet", "gpu"), "--strategy=horovod --compression fp16"),
        (resources("tensorflow"), "--model=wgan --xla"),
        (
            resources("pytorch", dataset=dataset(validation_images=400)),
            "--data=/data --mode=converge --epochs=2 --batch=64",
        ),
        (resources("pytorch"), "--mode=infer"),
        (resources("pytorch", "gpu"), "--profile=kernels,memory --repeat=1"),
        (resources("pytorch", "gpu"), "--concurrent=2 --gpus=4"),
        (resources("caffe", "gpu"), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.image.framework}-{value.device}",
)
def test_the_command_of_a_run_plans_the_same_trial(monkeypatch, tmp_path, here, words):
    words = shlex.split(words.replace("--data=/data", f"--data={tmp_path}"))
    first = request_of(monkeypatch, words)
    here = resources(
        here.image.framework, here.device, node=here.node, dataset=here.dataset, workload=workload_of(first.model)
    )
    for trial in plan(first, here):
        program, command, *more = rerun_command(record_of(trial, here, words))
        assert (program, command) == ("dlscale", "bench")
        request = request_of(monkeypatch, more)
        assert (request.framework, request.model, request.precision) == (trial.framework, trial.model, trial.precision)
        assert request.version == trial.version
        assert comparable(trial) in map(comparable, plan(request, here))
