"""Studies in other software than the suite's images on Docker: the machine's own framework, a custom image, Podman and Apptainer, and
the source's own program, replaced by a stand-in that writes its log.

Prevents: an option that `bench` accepts but a study drops; a study that claims to have run in other software than it did; a
source's program that gets another batch than it had, or whose rate is compared with nothing.
"""

import json
import os

import pytest
from commands import ROOT, run_to_end
from containers.test_program_kills import with_apptainer
from environments import environment_of

from runner.experiments.studies.reproduction import read_reproduction

pytestmark = pytest.mark.usefixtures("nothing_left")

CELL = "one-machine.1gpus.batch16"
SMALL = ("reproduce", "tbd-analysis", "--scale=small", "--device=cpu", f"--cells={CELL}")
MXNET = "dlscale/mxnet:1.9.1"
PERIOD = ROOT / "tests" / "containers" / "foreign" / "period"


def ran(*words, out, env=None):
    """Run the cell: its only run, and the study's entry for it."""
    done = run_to_end([*SMALL, *words, f"--out={out}"], out=out, env=env)
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


def test_a_custom_image_with_a_mount(ensure_image, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    words = (f"--image={ensure_image(MXNET)}", "--framework=mxnet", f"--mount={mine}:/mnt/mine")
    record, cell = ran(*words, out=tmp_path / "out")
    assert cell.images == (MXNET,)
    plan = json.loads((tmp_path / "out" / record.run_id / "plan.json").read_text(encoding="utf-8"))
    (worker,) = (one for one in plan["containers"] if one["role"] == "worker")
    assert {"source": str(mine), "target": "/mnt/mine", "read_only": True} in worker["mounts"]


def test_the_sources_own_program_runs_with_its_flags_and_its_log_is_read(ensure_image, tmp_path):
    """The stand-in logs six windows of 50 batches, like MXNet 0.7's program; a batch in Table 2 is 144."""
    (tmp_path / "imagenet").mkdir()
    tmp_path.chmod(0o755)
    program = "/mnt/period/train_imagenet.py"
    argv = ("reproduce", "dell-p100", "--scale=small", "--device=cpu", "--cells=mxnet-googlenet.1gpus")
    mine = (f"--image={ensure_image(MXNET)}", f"--mount={PERIOD}:/mnt/period", f"--program={program}")
    out = tmp_path / "out"
    done = run_to_end([*argv, *mine, f"--data={tmp_path / 'imagenet'}", f"--out={out}"], out=out)
    assert done.code == 0, done.stderr[-4000:]
    (record,) = done.records
    flags = (
        "--network=googlenet",
        "--batch-size=144",
        "--data-shape=256",
        "--data-dir=/dlscale/data",
        "--num-epochs=1",
    )
    assert record.trial.command == ("python", program, *flags)
    speeds = (78.21, 78.07, 77.89, 78.4, 78.11, 77.95)
    assert record.measurement.samples == 6 * 50 * 144
    assert record.measurement.training_time_s == pytest.approx(sum(50 * 144 / speed for speed in speeds))
    made = read_reproduction(next(out.glob("*.reproduction.json")))
    (cell,) = made.cells
    assert (cell.status, cell.runs) == ("ran", (record.run_id,))
    there = {one.field: (one.published, one.here) for one in cell.altered}
    assert there["version"] == ("0.7.0", MXNET)
    assert there["data"] == ("ILSVRC2012", "those of imagenet")
    assert not {"framework", "learning rate", "batch"} & there.keys()
    figure = next(one for one in made.comparisons if one.figure == "mxnet.googlenet.1.ips")
    assert figure.measured.unit == "images/s"
    assert figure.ratio == pytest.approx(record.measurement.throughput.value / 220)
    assert figure.verdict == "not comparable"
    again = run_to_end([*argv, *mine, f"--data={tmp_path / 'imagenet'}", f"--out={out}"], out=out)
    assert (again.code, len(again.records)) == (0, 1), "it is on file"


@pytest.mark.parametrize("engine", ["podman", "apptainer"])
def test_another_engine(engine, ensure_image, request, tmp_path):
    ensure_image(MXNET)  # the image that the other engine loads
    environment = with_apptainer() if engine == "apptainer" else request.getfixturevalue("podman")
    record, cell = ran(f"--engine={engine}", out=tmp_path, env=environment)
    assert (record.engine, record.engine_details.confined) == (engine, True)
    assert cell.images == (MXNET,)
