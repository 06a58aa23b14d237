"""Prevents counters that are read and then lost: runs a whole pass under Nsight Compute, from the launcher's command line to the profile.

Only `ncu` and the training program are stand-ins; everything between them, and the process tree, is as on a machine with GPUs.
"""

import sys

import examples
import pandas as pd
import passes
import pytest
from stand_in_ncu import make_ncu

from runner.core.record import RunPlan
from runner.engines.base import Site
from runner.engines.local import LocalEngine
from runner.plan.launch import launch
from runner.results.store import RunWriter, read_table
from runner.run.execute import Limits, execute

PAGE = (examples.ROOT / "tests" / "golden" / "ncu" / "raw-page.csv").read_text()
PROGRAM = """\
import json, os
assert os.environ["DLSCALE_COUNTERS"] == "ncu"
def say(event, **fields):
    print("::dlscale:: " + json.dumps({"event": event, "rank": 0, "t": 1.0, **fields}), flush=True)
say("loss", first_iteration=0, values=[2.3, 2.2])
say("profile_start", kind="metrics", source="cuda profiler", iteration=8, region=None, steady=True, plain_step_seconds=[0.1])
say("profile_stop", iterations=5, step_seconds=[0.1] * 5)
"""


@pytest.fixture
def workloads(tmp_path):
    """The suite's own programs, except for the training program."""
    folder = tmp_path / "workloads"
    folder.mkdir()
    for path in (examples.ROOT / "workloads").glob("*.py"):
        (folder / path.name).symlink_to(path)
    (folder / "imagenet_cnn").mkdir()
    (folder / "imagenet_cnn" / "train_mxnet.py").write_text(PROGRAM)
    return folder


def run(trial, workloads, out):
    """Execute a trial as `bench` does, into the run directory `out`; return its outcome and events."""
    site = Site(python=sys.executable, workloads=str(workloads))
    specs = launch(examples.job(trial, node=examples.gpu_node(1), site=site))
    specs = tuple(spec.model_copy(update={"cpus": ()}) for spec in specs)
    writer, heard = RunWriter(out), []
    plan = RunPlan(run_id="p", trial=trial, containers=specs, command_lines=())
    writer.create(plan)
    engine = LocalEngine(None, workloads)
    outcome = execute(engines={"here": engine}, specs=specs, writer=writer, limits=Limits(60, 60), watch=heard.append)
    writer.close_tables(plan)
    return outcome, heard


def under(program):
    counting = {"source": "ncu", "program": str(program), "folder": None}
    return passes.trial("metrics", device="gpu", ranks=1, counting=counting, cpus_per_worker=None)


def test_counters_of_kernels_reach_the_profile(tmp_path, workloads):
    """FP32 by hand: 3 ms at 81 % and 42.016 µs at 0 % are 79.88 % weighted by time, and 40.5 % as a mean of kernels."""
    trial = under(make_ncu(tmp_path, PAGE))
    outcome, events = run(trial, workloads, tmp_path / "out")
    assert (outcome.status, outcome.reason) == ("ok", None)
    found = passes.record_of(
        trial, frame=pd.DataFrame(read_table(tmp_path / "out", "kernels")), events=events, outcome=outcome
    )
    assert found.validity.status == "valid", found.validity
    assert found.profile.source == "ncu"
    assert found.profile.counters.fp32_percent == pytest.approx(81 * 3000 / 3042.016)
    assert found.profile.counters.fp32_unweighted_percent == pytest.approx(40.5)
    assert found.profile.counters.tensor_percent == 0
    assert found.profile.counters.dram_bytes_per_step == pytest.approx((201_326_592 + 134_217_728) / 5)
    assert [name.category for name in found.profile.kernels] == ["gemm", "layout"]


def test_without_permission_the_pass_is_invalid_and_refers_to_the_log(tmp_path, workloads):
    trial = under(
        make_ncu(tmp_path, "==ERROR== ERR_NVGPUCTRPERM - no permission\n==WARNING== No kernels were profiled.\n")
    )
    outcome, events = run(trial, workloads, tmp_path / "out")
    frame = read_table(tmp_path / "out", "kernels")
    found = passes.record_of(trial, frame=frame, events=events, outcome=outcome)
    assert found.validity.status == "invalid"
    assert "the end of the log says what kept ncu from reading them" in found.validity.reasons[0]
    assert "ERR_NVGPUCTRPERM" in next((tmp_path / "out" / "logs").iterdir()).read_text()
