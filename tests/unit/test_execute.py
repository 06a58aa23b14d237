"""Hangs and orphans: a failed rank that leaves the others waiting, a silent job, a runner that is killed, a disk that fills.

Real processes through the engine `venv`, so that what is tested is what runs.
"""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from runner.core.container_spec import ContainerSpec
from runner.core.errors import RunFailedError
from runner.core.interrupts import Stopped, held
from runner.engines.base import EngineError
from runner.engines.local import LocalEngine
from runner.run import container_group
from runner.run.execute import Limits, execute

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "workloads"
EVENT = '::dlscale:: {"event":"first_step","rank":0,"t":1.0}'
GENEROUS = Limits(wall_s=60, silence_s=60)


class Sheet:
    """A writer that keeps everything in memory."""

    def __init__(self):
        self.logs, self.events = [], []

    def log(self, container, text):
        self.logs.append((container, text))

    def event(self, event):
        self.events.append(event)

    def check(self):
        """Memory has room."""


def spec(program, *, name="w0", role="worker", node="here"):
    return ContainerSpec(
        name=name,
        node=node,
        role=role,
        image="none",
        argv=(sys.executable, str(WORKLOADS / "lease.py"), sys.executable, "-u", "-c", textwrap.dedent(program)),
        env={},
        user="0:0",
        labels={},
    )


def run(*specs, limits=GENEROUS, sheet=None, watch=lambda _: None, stopped=None):
    return execute(
        engines={"here": LocalEngine(None, WORKLOADS)},
        specs=specs,
        writer=sheet or Sheet(),
        limits=limits,
        watch=watch,
        stopped=stopped,
    )


def alive(marker):
    return [
        p.pid
        for p in psutil.process_iter(["cmdline"])
        if marker in " ".join(p.info["cmdline"] or []) and p.pid != os.getpid()
    ]


def wait_gone(marker, seconds=10):
    deadline = time.monotonic() + seconds
    while alive(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive(marker)


def test_a_good_run_keeps_events_and_logs_apart():
    sheet = Sheet()
    seen = []
    outcome = run(
        spec(f"import sys\nprint('hello')\nprint('{EVENT}')\nprint('warned', file=sys.stderr)"),
        sheet=sheet,
        watch=seen.append,
    )
    assert (outcome.status, outcome.reason, outcome.exit_codes) == ("ok", None, {"w0": 0})
    assert sorted(sheet.logs) == [("w0", "hello"), ("w0", "warned")]
    assert [event.event for event in sheet.events] == ["first_step"]
    assert seen == sheet.events
    assert seen[0].received >= outcome.started


def test_a_failing_rank_ends_the_others_and_is_named_with_its_last_words():
    marker = f"sleeper-{os.getpid()}-a"
    outcome = run(
        spec(f"import time; time.sleep(300) #{marker}", name="w0"),
        spec("import sys, time; time.sleep(0.5); sys.exit('no such layer')", name="w1"),
    )
    assert outcome.status == "failed"
    assert outcome.reason == "w1: exit code 1; it last said: no such layer"
    assert not wait_gone(marker)


def test_a_silent_job_is_ended():
    outcome = run(spec("import time; print('start'); time.sleep(300)"), limits=Limits(wall_s=60, silence_s=1))
    assert outcome.status == "silent"
    assert "--inactivity-timeout" in outcome.reason


def test_a_job_that_talks_for_ever_is_ended_too():
    outcome = run(
        spec("import time\nwhile True: print('.'); time.sleep(0.05)"), limits=Limits(wall_s=1.5, silence_s=60)
    )
    assert outcome.status == "timeout"


def test_a_child_in_a_session_of_its_own_does_not_survive_its_job():
    marker = f"stray-{os.getpid()}"
    program = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300) #{marker}'], start_new_session=True)"
    assert run(spec(program)).status == "ok"
    assert not wait_gone(marker)


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGINT, "stopped by Ctrl-C"), (signal.SIGTERM, "stopped by SIGTERM")]
)
def test_a_signal_ends_the_job_and_is_an_outcome_however_often_it_comes(number, reason):
    """A second Ctrl-C that found the runner between the job's end and its record."""
    begun = threading.Event()

    def insist():
        begun.wait()
        for _ in range(20):
            os.kill(os.getpid(), number)
            time.sleep(0.05)

    marker = f"stopped-{os.getpid()}-{number}"
    stopped = Stopped()
    insisting = threading.Thread(target=insist)
    insisting.start()
    with held(stopped):
        program = f"print('{EVENT}')\nimport time; time.sleep(300) #{marker}"
        outcome = run(spec(program), watch=lambda _: begun.set(), stopped=stopped)
        insisting.join()
    assert (outcome.status, outcome.reason) == ("interrupted", reason)
    assert not wait_gone(marker)


def test_a_run_that_was_stopped_before_it_began_starts_nothing():
    stopped = Stopped()
    stopped.by = "SIGHUP"
    outcome = run(spec("pass"), stopped=stopped)
    assert (outcome.status, outcome.reason, outcome.containers) == ("interrupted", "stopped by SIGHUP", {})


def test_an_event_that_breaks_the_contract_fails_the_run_and_is_quoted():
    outcome = run(spec('print(\'::dlscale:: {"event":"window","rank":0}\')\nimport time; time.sleep(300)'))
    assert outcome.status == "failed"
    assert "breaks the contract" in outcome.reason


def test_helpers_that_outlive_the_workers_do_not_hang_the_run(monkeypatch):
    monkeypatch.setattr("runner.run.execute.HELPERS_GRACE_S", 0.5)
    outcome = run(spec("import time; time.sleep(300)", name="s0", role="scheduler"), spec("print('done')", name="w0"))
    assert outcome.status == "failed"
    assert outcome.reason == "s0 did not end although every worker had"


def test_a_daemon_is_ended_with_the_last_of_those_that_it_serves_and_its_end_is_none_of_the_outcome():
    marker = f"daemon-{os.getpid()}"
    outcome = run(
        spec(f"import time; time.sleep(300) #{marker}", name="d1", role="daemon"),
        spec("import time; time.sleep(0.5)", name="s0", role="server"),
        spec("pass", name="w0"),
    )
    assert (outcome.status, outcome.exit_codes) == ("ok", {"s0": 0, "w0": 0})
    assert not wait_gone(marker)


@pytest.mark.parametrize("code", [0, 3])
def test_a_daemon_that_dies_before_its_time_is_named_however_it_ended(code):
    marker = f"served-{os.getpid()}-{code}"
    outcome = run(
        spec(f"import sys; print('bind: address in use'); sys.exit({code})", name="d1", role="daemon"),
        spec(f"import time; time.sleep(300) #{marker}"),
    )
    assert outcome.status == "failed"
    assert outcome.reason == (
        f"d1: exit code {code}; it last said: bind: address in use; it ended before those that it serves"
    )
    assert not wait_gone(marker)


def test_a_container_that_will_not_start_ends_those_that_did():
    marker = f"first-{os.getpid()}"

    class Refusing(LocalEngine):
        def start(self, spec):
            if spec.name == "w1":
                raise EngineError("no such image")
            return super().start(spec)

    specs = (spec(f"import time; time.sleep(300) #{marker}"), spec("pass", name="w1"))
    outcome = execute(
        engines={"here": Refusing(None, WORKLOADS)}, specs=specs, writer=Sheet(), limits=GENEROUS, watch=lambda _: None
    )
    assert outcome.reason == "venv would not start w1: no such image"
    assert not wait_gone(marker)


class Silent(LocalEngine):
    """Runs containers, and answers no question."""

    def check(self):
        raise EngineError("no answer within 5 s")


class Gone(LocalEngine):
    """Goes away with its first container, as an engine that is stopped does."""

    def start(self, spec):
        container = super().start(spec)

        def wait():
            raise EngineError("Connection refused")

        container.wait = wait
        return container


def on_two_nodes(second, program, *, other):
    engines = {"n1": LocalEngine(None, WORKLOADS), "n2": second}
    specs = (spec(program, node="n1"), spec(other, name="w1", node="n2"))
    return execute(engines=engines, specs=specs, writer=Sheet(), limits=GENEROUS, watch=lambda _: None, remote=True)


@pytest.mark.parametrize(
    ("engine", "other", "why"),
    [(Silent, "import time; time.sleep(300)", "no answer within 5 s"), (Gone, "pass", "Connection refused")],
)
def test_a_lost_node_ends_the_job_on_the_others_and_is_named(monkeypatch, engine, other, why):
    monkeypatch.setattr(container_group, "BEAT_S", 0.1)
    marker = f"left-{os.getpid()}"
    outcome = on_two_nodes(engine(None, WORKLOADS), f"import time; time.sleep(300) #{marker}", other=other)
    assert outcome.status == "failed"
    assert outcome.reason.startswith(f"n2 was lost: its engine does not answer any more ({why});")
    assert not wait_gone(marker)


def test_a_failed_container_on_one_of_several_nodes_is_named_with_its_node():
    outcome = on_two_nodes(LocalEngine(None, WORKLOADS), "import time; time.sleep(300)", other="raise SystemExit(7)")
    assert outcome.reason == "n2: w1: exit code 7"


def test_an_engine_that_will_not_start_is_named_with_its_node():
    class Refusing(LocalEngine):
        def start(self, spec):
            raise EngineError("no such image")

    marker = f"begun-{os.getpid()}"
    outcome = on_two_nodes(Refusing(None, WORKLOADS), f"import time; time.sleep(300) #{marker}", other="pass")
    assert outcome.reason == "n2: venv would not start w1: no such image"
    assert not wait_gone(marker)


def test_containers_on_several_nodes_hear_from_the_runner(monkeypatch):
    monkeypatch.setattr(container_group, "BEAT_S", 0.1)

    def beating(node):
        lease = (sys.executable, str(WORKLOADS / "lease.py"), "--heartbeat=2", sys.executable, "-c")
        return spec("", name=node, node=node).model_copy(update={"argv": (*lease, "import time; time.sleep(4)")})

    engines = {node: LocalEngine(None, WORKLOADS) for node in ("n1", "n2")}
    specs = (beating("n1"), beating("n2"))
    outcome = execute(engines=engines, specs=specs, writer=Sheet(), limits=GENEROUS, watch=lambda _: None, remote=True)
    assert outcome.status == "ok", outcome.reason


def test_one_container_on_another_machine_hears_from_the_runner_too(monkeypatch):
    monkeypatch.setattr(container_group, "BEAT_S", 0.1)
    lease = (sys.executable, str(WORKLOADS / "lease.py"), "--heartbeat=2", sys.executable, "-c")
    alone = spec("", node="n1").model_copy(update={"argv": (*lease, "import time; time.sleep(4)")})
    engines = {"n1": LocalEngine(None, WORKLOADS)}
    sheet = {"writer": Sheet(), "limits": GENEROUS, "watch": lambda _: None}
    assert execute(engines=engines, specs=(alone,), **sheet, remote=True).status == "ok"
    silent = execute(engines=engines, specs=(alone,), **sheet)
    assert "lease: nothing heard from the runner" in silent.reason


def test_a_disk_that_fills_ends_the_job():
    class Full(Sheet):
        def log(self, container, text):
            raise RunFailedError("/results/x: can't be written (No space left on device)")

    marker = f"full-{os.getpid()}"
    outcome = run(spec(f"print('line')\nimport time; time.sleep(300) #{marker}"), sheet=Full())
    assert (outcome.status, "No space left" in outcome.reason) == ("failed", True)
    assert not wait_gone(marker)


def test_a_disk_that_fills_ends_a_job_that_says_nothing():
    """A full disk that was noticed 97 s later, at the next window."""

    class Full(Sheet):
        def check(self):
            raise RunFailedError("/results/x: can't be written (No space left on device)")

    marker = f"full-and-silent-{os.getpid()}"
    outcome = run(spec(f"import time; time.sleep(300) #{marker}"), sheet=Full())
    assert (outcome.status, "No space left" in outcome.reason) == ("failed", True)
    assert not wait_gone(marker)


@pytest.mark.parametrize("stubborn", ["", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"])
def test_kill_9_of_the_runner_leaves_no_process(tmp_path, stubborn):
    """Orphans holding GPUs after the runner was killed: nothing of the runner is left to clean up, the lease alone does."""
    marker = f"orphan-{os.getpid()}-{len(stubborn)}"
    job = f"{stubborn}import os, time\nprint('up', flush=True)\nif os.fork(): time.sleep(300) #{marker}\nelse: os.setsid(); time.sleep(300)"
    runner = textwrap.dedent(f"""
        import sys; sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]
        import test_execute as t
        class Telling(t.Sheet):
            def log(self, container, text): print(text, flush=True)
        t.run(t.spec({job!r}), sheet=Telling())
    """)
    process = subprocess.Popen([sys.executable, "-c", runner], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    assert len(alive(f"#{marker}")) >= 2
    process.kill()
    process.wait()
    assert not wait_gone(f"#{marker}", 12)
