"""The machine's own framework compared with a container. Prevents: a host run that trains something else or uses other software than its record
says; a ratio between different software; an overhead whose report can't be regenerated from its files.

The suite's locked environment of PyTorch, first on PATH, stands in for the machine's own Python.
"""

import os

import pytest
from environments import environment_of

from runner.analysis.comparisons.settings import cross_checks
from runner.experiments.overhead.figures import read_overhead
from runner.results.find import records_under

pytestmark = pytest.mark.usefixtures("nothing_left")

SMALL = ("--framework=pytorch", "--model=lenet", "--batch=8", "--iterations=20", "--warmup=4", "--threads=1")


@pytest.fixture(scope="module")
def python(client):
    """A Python with PyTorch, first on PATH."""
    found = environment_of("pytorch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{found.parent}{os.pathsep}{os.environ['PATH']}")
        yield found


@pytest.fixture(scope="module")
def out(python, dlscale, tmp_path_factory):
    """One training with each of the two engines."""
    out = tmp_path_factory.mktemp("engines")
    for engine in ("docker", "host"):
        done = dlscale("bench", *SMALL, "--workers=1", f"--engine={engine}", out=out)
        assert done.code == 0, done.stderr
    return out


def test_the_machines_own_framework_trains_the_same(out, python):
    by_engine = {record.engine: record for _, record in records_under(out)}
    host, docker = by_engine["host"], by_engine["docker"]
    assert host.validity.status in ("valid", "degraded"), host.validity
    assert host.image.reference == f"torch {host.trial.version} of {python.parent / 'python3'}"
    assert (host.image.id, host.image.lock_sha256) == (None, None)
    assert host.provenance.framework_version == docker.provenance.framework_version
    assert host.engine_details.version == host.provenance.python
    assert host.measurement.samples == docker.measurement.samples == 160
    # The same weights and images from the same seed, with the same kernels.
    first, second = (next(iter(record.measurement.losses.values())) for record in (host, docker))
    assert first[:4] == pytest.approx(second[:4], rel=1e-4)


def test_the_container_is_compared_with_the_host_if_the_software_is_the_same(out):
    (found,) = cross_checks(list(records_under(out)))
    assert [row.engine for row in found.rows] == ["host", "docker"]
    by_engine = {record.engine: record.provenance for _, record in records_under(out)}
    same = by_engine["host"].python == by_engine["docker"].python
    assert found.rows[1].differs == (() if same else ("Python",))
    assert (found.rows[1].ratio is not None) is same


def test_a_framework_that_is_not_installed_is_refused_before_anything_starts(python, dlscale, tmp_path):
    done = dlscale("bench", "--framework=mxnet", "--workers=1", "--engine=host", out=tmp_path / "none")
    assert done.code == 2
    assert "ENGINE=host: " in done.stderr
    assert "has no mxnet; put a python3 first on PATH that has" in done.stderr
    assert not list((tmp_path / "none").glob("*/*"))


def test_an_overhead_leaves_everything_that_its_report_needs(python, dlscale, tmp_path):
    faster = ("--precision=bf16", "--techniques=channels-last,fused-optimizer")
    done = dlscale("overhead", *SMALL, *faster, "--engine=docker", "--beside-host", "--repeat=1", out=tmp_path / "out")
    assert done.code == 0, done.stderr
    (path,) = (tmp_path / "out").glob("overhead-*.json")
    raw = read_overhead(path)
    assert [[one.side for one in each] for each in raw.rounds] == [["suite", "unwatched", "host", "bare"]]
    records = {record.run_id: record for _, record in records_under(tmp_path / "out")}
    sides = {one.run_id: one.side for each in raw.rounds for one in each if one.run_id}
    assert set(sides) == set(records)
    for name, side in sides.items():
        record = records[name]
        assert record.engine == ("host" if side == "host" else "docker")
        assert (record.telemetry is None) is (side == "unwatched")
        trial = record.trial
        assert (trial.model, trial.batch_per_device, trial.iterations, trial.warmup) == ("lenet", 8, 20, 4)
        assert (trial.precision, trial.techniques) == ("bf16", ("channels-last", "fused-optimizer"))
    first = path.with_suffix(".csv").read_bytes()
    path.with_suffix(".csv").unlink()
    again = dlscale("report", tmp_path / "out")
    assert again.code == 0, again.stderr
    assert path.with_suffix(".csv").read_bytes() == first
