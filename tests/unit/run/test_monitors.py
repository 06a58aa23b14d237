"""Prevents: a run that fails because its sampler does, a sampler's last rows that are lost, a sampler that outlives its run."""

import contextlib
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import examples
import pytest

from runner.core.events import MonitorStart, MonitorStop, Trouble
from runner.core.interrupts import Stopped
from runner.core.record import RunPlan
from runner.engines.base import EngineError
from runner.engines.local import LocalEngine
from runner.plan.launch import job
from runner.results.store import RunWriter
from runner.run.monitors import IDLE_S, monitoring

WORKLOADS = Path(__file__).parents[3] / "workloads"
EVENTS = f"""
import sys
sys.path.insert(0, {str(WORKLOADS)!r})
from events import Events
events = Events(rank=0)
"""
GOOD = """
import signal
def end(*_):
    events.rows("telemetry", {"t": [2.0], "device": ["host"]})
    events.emit("monitor_stop", samples=2, seconds=1.0, cpu_s=0.01)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
events.emit("monitor_start", node="here", hz=10, gpus=GPUS)
events.rows("telemetry", {"t": [1.0], "device": ["host"]})
while True:
    signal.pause()
"""
GPU = {"index": 0, "uuid": "GPU-0", "name": "H200"}


@pytest.fixture
def sample(tmp_path):
    """Run a program as the sampler of an empty run; returns the run directory and the sampler's events."""

    def look_on(
        program, *, idle_s=0, gpus_idle=False, counts_energy=True, engine=None, stopped=None, during=lambda: None
    ):
        script = tmp_path / "sampler.py"
        script.write_text(EVENTS + textwrap.dedent(program))
        engine = engine or LocalEngine(Path("/usr/bin/env"), WORKLOADS)
        plain = job.sampler("r1", node="here", gpus=(), hz=10, image="own", site=engine.site(None), user="0:0")
        spec = plain.model_copy(update={"argv": ("python3", str(WORKLOADS / "lease.py"), "python3", str(script))})
        plan = RunPlan(run_id="r1", trial=examples.trial(), containers=(spec,), command_lines=())
        writer = RunWriter(tmp_path / "run")
        writer.create(plan)
        heard = []
        waits = {"idle_s": idle_s, "gpus_idle": gpus_idle, "counts_energy": counts_energy}
        with monitoring(
            (spec,), engines={"here": engine}, writer=writer, watch=heard.append, stopped=stopped or Stopped(), **waits
        ):
            during()
        writer.close_tables(plan)
        return tmp_path / "run", heard

    return look_on


def test_all_rows_and_events_are_kept(sample):
    directory, heard = sample(GOOD.replace("GPUS", "[]"))
    assert [type(event) for event in heard] == [MonitorStart, MonitorStop]
    assert (directory / "telemetry.parquet").exists()
    assert len((directory / "events.jsonl").read_text().splitlines()) == 2


RAPL = ", sources={'rapl': None}"


@pytest.mark.parametrize(
    ("seen", "idle_s", "gpus_idle", "waits"),
    [
        ([GPU], 0.8, False, 0.8),
        ([GPU], 0.8, True, 0.8),  # as requested
        ([], 0.8, False, 0),
        ([GPU], None, False, IDLE_S),
        ([GPU], None, True, 0),
        (RAPL, None, True, IDLE_S),  # the host is not idle while a framework is imported
        (RAPL, 0, False, 0),
        ([], None, False, 0),
    ],
)
def test_the_run_waits_for_idle_power_if_power_can_be_measured(sample, monkeypatch, *, seen, idle_s, gpus_idle, waits):
    waited = []
    monkeypatch.setattr("runner.run.monitors.time", SimpleNamespace(monotonic=time.monotonic, sleep=waited.append))
    program = GOOD.replace("GPUS", f"[]{seen}" if seen == RAPL else repr(seen))
    _, heard = sample(program, idle_s=idle_s, gpus_idle=gpus_idle)
    assert [type(event) for event in heard] == [MonitorStart, MonitorStop]
    assert sum(waited) == pytest.approx(waits)


@pytest.mark.parametrize(
    ("counts_energy", "idle_s", "gpus_idle", "rests"),
    [
        (False, None, True, False),
        (False, None, False, True),
        (False, 0.0, True, True),
        (True, None, True, True),  # the host may be able to measure its power
    ],
)
def test_the_run_waits_for_samplers_only_if_it_needs_idle_power(
    sample, monkeypatch, *, counts_energy, idle_s, gpus_idle, rests
):
    rested = []
    monkeypatch.setattr("runner.run.monitors._wait_idle", lambda *_, **__: rested.append(True))
    sample(GOOD.replace("GPUS", repr([GPU])), idle_s=idle_s, gpus_idle=gpus_idle, counts_energy=counts_energy)
    assert rested == [True] * rests


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("sys.exit('no NVML today')", "no NVML today"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "the sampler killed (exit code 137, SIGKILL)"),
        ("print('::dlscale:: {}', flush=True)", "breaks the contract"),
        ('print(\'::dlscale-rows:: {"table": "telemetry", "rank": 0, "columns": {"watts": [1]}}\')', "no column watts"),
    ],
)
def test_a_sampler_that_dies_or_breaks_the_contract_leaves_trouble_and_the_run_continues(sample, program, reason):
    _, heard = sample(program)
    (trouble,) = (event for event in heard if isinstance(event, Trouble))
    assert reason in trouble.reason
    assert "BATCH" not in trouble.reason


class Refusing:
    """An engine that refuses to start anything."""

    name = "docker"
    site = LocalEngine(None, WORKLOADS).site

    def start(self, spec):
        raise EngineError(f"no room for {spec.name}")


def test_a_sampler_that_cannot_start_leaves_trouble_and_the_run_continues(sample):
    went_on = []
    _, heard = sample("", engine=Refusing(), during=lambda: went_on.append(True))
    assert went_on
    assert [event.reason for event in heard] == ["the sampler could not be heard: no room for dlscale-r1-monitor0"]


def test_a_stopped_run_does_not_wait_for_idle_power(sample):
    stopped = Stopped()
    stopped.by = "Ctrl-C"
    _, heard = sample(GOOD.replace("GPUS", f"[{GPU}]"), idle_s=3600, stopped=stopped)
    assert [type(event) for event in heard] == [MonitorStart, MonitorStop]


def test_no_sampler_outlives_a_run_that_raises(sample, tmp_path):
    pid = tmp_path / "pid"
    program = f"import os; open({str(pid)!r}, 'w').write(str(os.getpid()))\n" + GOOD.replace("GPUS", "[]")

    def fail():
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        sample(program, during=fail)
    assert not Path(f"/proc/{pid.read_text()}").exists()
