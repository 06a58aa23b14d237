"""Studies in other software than the suite's images on Docker: the machine's own framework, an image that was given, Podman and Apptainer.

Prevents: an option that `bench` takes and a study drops on the way to its runs; a study that says it ran in something else than it did.
"""

import json
import os

import pytest
from commands import to_its_end
from containers.test_program_kills import ENGINES
from environments import environment_of

from runner.experiments.studies.reproduction import read_reproduction

pytestmark = pytest.mark.usefixtures("nothing_left")

CELL = "one-machine.1gpus.batch16"
SMALL = ("reproduce", "tbd-analysis", "--scale=small", "--device=cpu", f"--cells={CELL}")
MXNET = "dlscale/mxnet:1.9.1"


def ran(*words, out, env=None):
    """The one run of the cell, and what the study says of it."""
    done = to_its_end([*SMALL, *words, f"--out={out}"], out=out, env=env)
    assert done.code == 0, done.stderr[-4000:]
    (cell,) = read_reproduction(next(out.glob("*.reproduction.json"))).cells
    (record,) = done.records
    assert (cell.id, cell.status, cell.runs) == (CELL, "ran", (record.run_id,))
    return record, cell


def test_the_machines_own_framework(tmp_path):
    python = environment_of("mxnet")
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    record, cell = ran("--engine=host", "--framework=mxnet", out=tmp_path, env={"PATH": path})
    assert (record.engine, record.image.id) == ("host", None)
    assert cell.images == (f"mxnet {record.trial.version} of {python.parent / 'python3'}",)


def test_an_image_that_was_given_with_a_folder_of_this_machine(has, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    words = (f"--image={has(MXNET)}", "--framework=mxnet", f"--mount={mine}:/mnt/mine")
    record, cell = ran(*words, out=tmp_path / "out")
    assert cell.images == (MXNET,)
    plan = json.loads((tmp_path / "out" / record.run_id / "plan.json").read_text(encoding="utf-8"))
    (worker,) = (one for one in plan["containers"] if one["role"] == "worker")
    assert {"source": str(mine), "target": "/mnt/mine", "read_only": True} in worker["mounts"]


@pytest.mark.parametrize("engine", ["podman", "apptainer"])
def test_another_engine(engine, has, tmp_path):
    has(MXNET)  # which the other is filled from
    with ENGINES[engine]() as environment:
        record, cell = ran(f"--engine={engine}", out=tmp_path, env=environment)
    assert (record.engine, record.engine_details.confined) == (engine, True)
    assert cell.images == (MXNET,)
