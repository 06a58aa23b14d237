"""No container engine: the main job still runs, in a locked environment of the suite's own, and says so."""

import json
import os
import subprocess
import sys

import examples
import pytest

QUICK = (
    "--device=cpu",
    "--workers=1,2",
    "--model=resnet18",
    "--image-size=32",
    "--batch=4",
    "--iterations=6",
    "--warmup=1",
    "--repeat=1",
)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    out = tmp_path_factory.mktemp("venv")
    done = subprocess.run(
        [sys.executable, "-m", "runner", "bench", *QUICK, f"--out={out}"],
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
