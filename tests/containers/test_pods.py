"""Prevents a plan for Kubernetes that no cluster could run, and records that say more than is known.

A plan's `run.sh` runs unmodified. `stand_in_kubectl.py` replaces kubectl and the cluster: it starts each pod's containers on this
machine's engine, so that their output is that of real programs.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT

from runner.results.store import read_plan

HOSTS = "hosts:\n- {name: a, cpus: 1, memory_mib: 3000}\n- {name: b, cpus: 1, memory_mib: 3000}\n"
SMALL = ("--workers=2", "--model=lenet", "--batch=4", "--iterations=12", "--warmup=2", "--repeat=1", "--threads=1")


@pytest.fixture
def run(dlscale, client, tmp_path):
    """Plan, run and collect; `change` may edit the manifests between the first two."""
    (tmp_path / "hosts.yaml").write_text(HOSTS)
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "tests/stand_in_kubectl.py"} "$@"\n')
    program.chmod(0o755)
    (tmp_path / "state").mkdir()
    out = tmp_path / "plan"

    def plan_run_and_collect(*words, change=lambda text: text):
        done = dlscale("plan", "--format=k8s", f"--hosts={tmp_path / 'hosts.yaml'}", *SMALL, *words, out=out)
        assert done.code == 0, done.stderr
        for manifest in out.glob("*/kubernetes.yaml"):
            manifest.write_text(change(manifest.read_text()))
        environment = {
            **os.environ,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "STAND_IN_STATE": str(tmp_path / "state"),
        }
        ran = subprocess.run(
            ["sh", out / "run.sh"], env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return dlscale("collect", out)

    plan_run_and_collect.out = out
    yield plan_run_and_collect
    own = {"label": "dlscale.run-id=stand-in"}  # left by a `run.sh` that was interrupted
    for container in client.containers.list(all=True, filters=own):
        container.remove(force=True, v=True)
    for network in client.networks.list(filters=own):
        network.remove()


@pytest.mark.parametrize(
    ("framework", "words"),
    [
        pytest.param("pytorch", (), id="job"),
        pytest.param("mxnet", (), id="jobset"),
        pytest.param("mxnet", ("--strategy=horovod", "--kind=mpijob"), id="mpijob"),
    ],
)
def test_pods_output_becomes_records_that_claim_no_more_than_is_known(run, dlscale, client, framework, words):
    done = run(f"--framework={framework}", *words)
    assert done.code == 0, done.stderr
    one, two = (next(done_record(run.out, scale)) for scale in (1, 2))
    for record in (one, two):
        assert record.engine == "kubernetes"
        assert record.outcome.status == "ok"
        assert set(record.outcome.exit_codes.values()) == {0}
        assert record.validity.status == "degraded"
        assert (
            "no sampler looked at the pods' machines: whether others used their cores or GPUs is not known"
            in record.validity.reasons
        )
        assert record.telemetry is None
        assert record.image.id == f"docker://{client.images.get(record.image.reference).id}"
        assert record.provenance.framework == framework
    assert (two.transport.used, two.transport.emulated) == ("ethernet", "emulated: nodes of one machine")
    assert [node.host.hostname for node in two.provenance.nodes] == ["machine-0", "machine-1"]
    assert two.scaling.baseline_run_id == one.run_id
    regraded = dlscale("regrade", run.out)
    assert regraded.code == 0, regraded.stderr
    assert regraded.stdout.count(": same") == 2


def done_record(out, scale):
    from runner.results.store import read_record

    return (
        record for path in out.glob("*/record.json") if (record := read_record(path.parent)).trial.world_size == scale
    )


def test_a_failed_pod_is_named_with_its_last_line_and_its_run_has_no_figures(run):
    def die(text):
        """Make the program of the run on two pods refuse its command line."""
        return text.replace("/torchrun.py", "/torchrun.py\n        - --no-such-flag") if "node-rank" in text else text

    done = run("--framework=pytorch", change=die)
    assert done.code == 3
    (record,) = done_record(run.out, 2)
    assert (record.outcome.status, record.validity.status) == ("failed", "invalid")
    assert record.outcome.reason.startswith("pod")
    assert "unrecognized arguments" in record.outcome.reason
    assert read_plan(run.out / record.run_id).trial.world_size == 2


def test_a_run_without_pods_is_named_and_leaves_no_record(dlscale, tmp_path):
    done = dlscale(
        "plan", "--format=k8s", "--framework=pytorch", "--device=cpu", "--workers=1", *SMALL[1:], out=tmp_path / "plan"
    )
    assert done.code == 0, done.stderr
    collected = dlscale("collect", tmp_path / "plan")
    assert collected.code == 2
    assert "has no pods.json, so it has not run" in collected.stderr
    assert not list(Path(tmp_path).rglob("record.json"))
