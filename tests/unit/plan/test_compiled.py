"""The compilers' work, kept for the next run.

Prevents: a training that may write to any other directory of this machine, or to this one without compiling anything; one software's work
shown to another; a directory that others can read or the job cannot write to; a record that hides that nothing was compiled.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from records import but
from unit.analysis.test_settings import DOCKER, HOST
from unit.plan import test_custom_image
from unit.plan.test_custom_image import USR, request

from runner.analysis.comparisons.settings import cross_checks
from runner.analysis.grading import metrics
from runner.core.container_spec import Mount
from runner.core.events.parse import parse_line
from runner.core.measurement import CompiledGraphs
from runner.plan import discovery
from runner.plan.launch import launch
from runner.plan.layout import compiler_store, make_job
from runner.plan.plan import plan
from runner.run import prepare
from runner.run.trial_runner import make_writable

machine = test_custom_image.machine


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("DLSCALE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "compiled"


def job(**changes):
    asked = request(gpus=(1,), mounts=USR, precision="bf16", **changes)
    there = discovery.discover(asked)
    (trial,) = plan(asked, there)
    return make_job(trial, there, prepare.preview(there, packed_at=None), run_id="r")


@pytest.mark.parametrize(
    ("asked", "compiles"),
    [({"preset": "tuned"}, True), ({"warmup": 20}, False), ({"techniques": ("cuda-graphs",), "warmup": 20}, False)],
)
def test_only_a_training_that_compiles_gets_a_writable_directory(machine, cache, asked, compiles):
    found = job(**asked)
    stores = [mount for mount in found.mounts if not mount.read_only]
    assert [store.target for store in stores] == ["/dlscale/out"] * compiles
    assert [Path(store.source).parent for store in stores] == [cache] * compiles
    (container,) = launch(found)
    told = [word for word in container.argv if word.startswith("--compiled")]
    assert told == ["--compiled=/dlscale/out"] * compiles
    assert not cache.exists()  # nothing is created before a run


def test_each_software_and_engine_has_its_own_directory(machine, cache):
    trial = job(preset="tuned").trial
    stores = {
        compiler_store(trial, engine=engine, software=software)
        for engine in ("docker", "host")
        for software in ("sha256:7", "sha256:8")
    }
    assert len(stores) == 4
    assert compiler_store(trial, engine="docker", software="sha256:7") in stores


def test_the_directory_belongs_to_the_jobs_user_and_is_private(tmp_path):
    store, shown = tmp_path / "a" / "b", tmp_path / "programs"
    mounts = (
        Mount(source=str(shown), target="/programs"),
        Mount(source=str(store), target="/dlscale/out", read_only=False),
    )
    for _ in range(2):
        make_writable(mounts, user="10001:10001")
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert store.stat().st_uid == (10001 if os.getuid() == 0 else os.getuid())
    assert not shown.exists()


def test_a_record_sums_the_compiled_graphs_of_all_ranks():
    said = [
        parse_line(
            f'::dlscale:: {{"event": "compiled", "rank": {rank}, "t": 1.0, "fresh": {fresh}, "kept": {kept}}}',
            received=1.0,
            container="w0",
        )
        for rank, fresh, kept in ((0, 2, 0), (1, 0, 2))
    ]
    assert metrics.compiled(said) == CompiledGraphs(fresh=2, kept=2)
    assert metrics.compiled([]) is None


def test_first_steps_without_compilation_are_noted_in_comparisons():
    def with_graphs(run, *, fresh, kept):
        return but(run, measurement={"compiled": CompiledGraphs(fresh=fresh, kept=kept)})

    (found,) = cross_checks((with_graphs(DOCKER, fresh=0, kept=2), with_graphs(HOST, fresh=2, kept=0)))
    (note,) = found.notes
    assert note.startswith("docker, hostroot:1: 1 of 1 runs found their network compiled by an earlier one")
    assert cross_checks((DOCKER, HOST))[0].notes == ()
