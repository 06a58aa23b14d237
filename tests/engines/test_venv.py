"""No container engine: the main job still runs, in a locked environment of the suite's own, and says so."""

import contextlib
import json
import os
import subprocess
import sys

import examples
import psutil
import pytest
from commands import replaced
from waiting import wait_until

from runner.core.errors import NoBaseError, RequestError
from runner.core.request import Request
from runner.plan.engine import EngineChoice
from runner.run import bench
from runner.run import prepare as prepare_module

QUICK = (
    *(
        "--framework=mxnet",
        "--device=cpu",
        "--workers=1,2",
        "--model=resnet18",
        "--image-size=32",
        "--batch=4",
        "--iterations=6",
    ),
    *("--warmup=1", "--repeat=1"),
)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    out = tmp_path_factory.mktemp("venv")
    done = subprocess.run(
        [sys.executable, "-m", "runner.commands", "bench", *QUICK, f"--out={out}"],
        cwd=examples.ROOT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "DOCKER_HOST": "unix:///nowhere.sock"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done, [json.loads(path.read_text()) for path in sorted(out.glob("*/record.json"))]


def test_the_fallback_is_said_in_the_output_and_in_the_records(ended):
    done, records = ended
    assert "no Docker engine answers (its socket does not exist)" in done.stdout
    assert "no container: mxnet 1.9.1 runs in a virtual environment of the suite's own" in done.stderr
    for record in records:
        assert record["engine"] == "venv"
        assert "no Docker engine answers" in record["engine_details"]["reason"]
        assert record["image"]["id"] is None
        assert len(record["image"]["lock_sha256"]) == 64


def test_the_same_contract_holds_as_in_a_container(ended):
    _, records = ended
    assert [record["trial"]["world_size"] for record in records] == [1, 2]
    for record in records:
        assert record["outcome"]["status"] == "ok"
        assert record["validity"]["status"] in ("valid", "degraded")
        assert record["measurement"]["samples"] == record["trial"]["iterations"] * record["trial"]["global_batch"]
    norms = records[1]["measurement"]["parameter_norms"]
    assert norms["0"] == pytest.approx(norms["1"], rel=1e-6)
    assert records[1]["scaling"]["baseline_run_id"] == records[0]["run_id"]


def test_clean_kills_what_a_dead_runner_left_and_its_lease_could_not_end(tmp_path):
    """A stopped process ends nothing, and stays when its runner is killed."""
    words = replaced(QUICK, "--workers=1", "--iterations=100000")
    argv = [
        sys.executable,
        "-m",
        "runner.commands",
        "bench",
        *words,
        "--engine=venv",
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*argv, f"--out={tmp_path}"], cwd=examples.ROOT, **quiet) as runner:
        assert wait_until(lambda: any(tmp_path.glob("*/events.jsonl")) and _jobs(tmp_path), 60)
        held = _jobs(tmp_path)
        for process in held:
            process.suspend()
        runner.kill()
    (run,) = (path.parent.name for path in tmp_path.glob("*/plan.json"))
    assert all(process.is_running() for process in held)
    done = subprocess.run(
        [sys.executable, "-m", "runner.commands", "clean"], cwd=examples.ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"removed processes of {run}" in done.stdout.splitlines()
    assert wait_until(lambda: not _jobs(tmp_path), 10), _jobs(tmp_path)


def _jobs(out):
    """Processes of the jobs whose runs are in a directory, by their command lines: the lease's and its program's."""
    runs = [path.parent.name for path in out.glob("*/plan.json")]
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            told = " ".join(process.cmdline()) + process.environ().get("DLSCALE_RUN_ID", "")
            if process.pid != os.getpid() and any(run in told for run in runs) and process.status() != "zombie":
                found.append(process)
    return found


def _without_a_base(monkeypatch):
    """An engine that answers on a machine where no base image can be had."""
    real = prepare_module.prepare

    def prepare(resources, shown, *, packed_at, run):
        if resources.engine.name == "docker":
            raise NoBaseError("mmdebstrap, which builds the base, is not installed; install it")
        return real(resources, shown, packed_at=packed_at, run=run)

    monkeypatch.setattr("runner.plan.discovery.engine_of", lambda *_: EngineChoice("docker", None))
    monkeypatch.setattr(bench, "prepare", prepare)


def test_an_engine_without_a_base_falls_back_and_says_why(monkeypatch, tmp_path, capsys):
    _without_a_base(monkeypatch)
    request = Request(
        framework="mxnet",
        device="cpu",
        workers=(1,),
        model="resnet18",
        image_size=32,
        batch=2,
        iterations=4,
        warmup=1,
        repeat=1,
        out=tmp_path,
    )
    assert bench.bench(request, command=("dlscale", "bench")) == 0
    record = json.loads(next(tmp_path.glob("*/record.json")).read_text())
    assert record["engine"] == "venv"
    assert record["engine_details"]["reason"].startswith("no image can be built here: mmdebstrap")
    assert "no image can be built here" in capsys.readouterr().out


def test_an_engine_that_was_asked_for_is_never_replaced(monkeypatch, tmp_path):
    _without_a_base(monkeypatch)
    with pytest.raises(NoBaseError):
        bench.bench(Request(engine="docker", device="cpu", workers=(1,), out=tmp_path), command=("dlscale", "bench"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"framework": "caffe"}, "caffe 1.0 is packages of Debian"),
        (
            {"framework": "mxnet", "strategy": "horovod"},
            "mxnet 1.9.1 with horovod 0.28.1 is compiled when its image is built",
        ),
    ],
)
def test_what_is_nothing_without_its_image_is_refused_before_anything_starts(tmp_path, words, why):
    request = Request(engine="venv", device="cpu", workers=(1,), out=tmp_path, **words)
    with pytest.raises(RequestError, match=f"^{why}.*start Docker and ask for ENGINE=docker$"):
        bench.bench(request, command=("dlscale", "bench"))
    assert not list(tmp_path.iterdir())
