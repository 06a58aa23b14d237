"""Prevents hangs and orphans: after a failed rank, a silent job, a killed runner, or a full disk.

The tests run real processes through the engine `venv`.

Also prevents: events and rows of two ranks that mpirun mixed in one line, lost or reported as breaking the contract; changed output of
other programs.
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
from hypothesis import given
from hypothesis import strategies as st

from runner.core.container_spec import ContainerSpec
from runner.core.errors import RunFailedError
from runner.core.events.parse import Rows, parse_line
from runner.core.interrupts import Stopped, stop_on_signal
from runner.engines.base import EngineError, NodeGoneError
from runner.engines.local import LocalEngine
from runner.run import container_group
from runner.run.dialects.base import DialectError
from runner.run.execute import MAX_BUFFERED, Limits, LineAssembler, Output, execute, run_tool

ROOT = Path(__file__).parents[3]
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
        """There is room in memory."""


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


def run(*specs, engines=None, sheet=None, limits=GENEROUS, watch=lambda _: None, **changes):
    engines = engines or {"here": LocalEngine(None, WORKLOADS)}
    return execute(engines=engines, specs=specs, writer=sheet or Sheet(), limits=limits, watch=watch, **changes)


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


@pytest.fixture
def sleep():
    """A program that sleeps for minutes; checks that it is gone after its run."""
    marker = f"sleeper-{os.getpid()}-{time.monotonic_ns()}"
    yield f"import time; time.sleep(300) #{marker}"
    assert not wait_gone(marker)


def test_a_successful_run_separates_events_from_logs():
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


def test_a_failing_rank_ends_the_others_and_is_named_with_its_last_line(sleep):
    outcome = run(spec(sleep), spec("import sys, time; time.sleep(0.5); sys.exit('no such layer')", name="w1"))
    assert (outcome.status, outcome.reason) == ("failed", "w1: exit code 1; it last said: no such layer")


@pytest.mark.parametrize(
    ("program", "limits", "status", "flag"),
    [
        ("print('start')\nimport time; time.sleep(300)", Limits(60, 1), "silent", "--inactivity-timeout"),
        ("import time\nwhile True: print('.'); time.sleep(0.05)", Limits(1.5, 60), "timeout", "--timeout"),
    ],
)
def test_a_job_that_is_silent_or_exceeds_its_time_limit_is_ended(program, limits, status, flag):
    outcome = run(spec(program), limits=limits)
    assert outcome.status == status
    assert flag in outcome.reason


def test_a_child_in_its_own_session_does_not_survive_its_job(sleep):
    child = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {sleep!r}], start_new_session=True)"
    assert run(spec(child)).status == "ok"


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGINT, "stopped by Ctrl-C"), (signal.SIGTERM, "stopped by SIGTERM")]
)
def test_a_repeated_signal_ends_the_job_as_interrupted(sleep, number, reason):
    """Prevents a second Ctrl-C that hits the runner between the job's end and its record."""
    begun = threading.Event()

    def insist():
        begun.wait()
        for _ in range(20):
            os.kill(os.getpid(), number)
            time.sleep(0.05)

    stopped = Stopped()
    insisting = threading.Thread(target=insist)
    insisting.start()
    with stop_on_signal(stopped):
        outcome = run(spec(f"print('{EVENT}')\n{sleep}"), watch=lambda _: begun.set(), stopped=stopped)
        insisting.join()
    assert (outcome.status, outcome.reason) == ("interrupted", reason)


def test_a_run_stopped_before_its_start_starts_nothing():
    stopped = Stopped()
    stopped.by = "SIGHUP"
    outcome = run(spec("pass"), stopped=stopped)
    assert (outcome.status, outcome.reason, outcome.containers) == ("interrupted", "stopped by SIGHUP", {})


def test_an_event_that_breaks_the_contract_fails_the_run(sleep):
    outcome = run(spec(f'print(\'::dlscale:: {{"event":"window","rank":0}}\')\n{sleep}'))
    assert outcome.status == "failed"
    assert "breaks the contract" in outcome.reason


def test_helpers_that_outlive_the_workers_do_not_hang_the_run(monkeypatch, sleep):
    monkeypatch.setattr("runner.run.execute.HELPERS_GRACE_S", 0.5)
    outcome = run(spec(sleep, name="s0", role="scheduler"), spec("print('done')"))
    assert (outcome.status, outcome.reason) == ("failed", "s0 did not end although every worker had")


def test_a_daemon_is_ended_after_all_others_and_does_not_affect_the_outcome(sleep):
    outcome = run(
        spec(sleep, name="d1", role="daemon"),
        spec("import time; time.sleep(0.5)", name="s0", role="server"),
        spec("pass"),
    )
    assert (outcome.status, outcome.exit_codes) == ("ok", {"s0": 0, "w0": 0})


@pytest.mark.parametrize("code", [0, 3])
def test_a_daemon_that_exits_early_fails_the_run_with_any_exit_code(sleep, code):
    daemon = spec(f"import sys; print('bind: address in use'); sys.exit({code})", name="d1", role="daemon")
    outcome = run(daemon, spec(sleep))
    assert outcome.status == "failed"
    assert outcome.reason == (
        f"d1: exit code {code}; it last said: bind: address in use; it exited before the containers that it serves"
    )


class Refusing(LocalEngine):
    """Refuses to start container w1."""

    def start(self, spec):
        if spec.name == "w1":
            raise EngineError("no such image")
        return super().start(spec)


class Silent(LocalEngine):
    """Runs containers, but answers no check."""

    def check(self, node):
        raise EngineError("no answer within 5 s")


class CutOff(LocalEngine):
    """Runs containers on a node that is known immediately to be unreachable."""

    def check(self, node):
        raise NodeGoneError(f"no route to {node}")


class Gone(LocalEngine):
    """Vanishes after its first container started, like an engine that is stopped."""

    def start(self, spec):
        container = super().start(spec)

        def wait():
            raise EngineError("Connection refused")

        container.wait = wait
        return container


class Unreadable:
    """A reader of a dialect whose log lacks what the figures need."""

    def feed(self, text, *, received):
        return ()

    def close(self, *, received):
        raise DialectError("the log has no times")


def test_a_log_that_its_dialect_cannot_use_fails_the_run_and_nothing_else():
    """It ended the collection of all runs of pods, which has no other net below it."""
    group = container_group.ContainerGroup({"w0": "here"})
    output = Output(group, writer=None, watch=lambda event: None, readers={"w0": Unreadable()})
    with pytest.raises(container_group.Stop, match="the log has no times") as stop:
        output.close_reader("w0", received=0.0)
    assert stop.value.status == "failed"


def test_a_tool_whose_engine_vanishes_fails_in_one_sentence():
    """It was a traceback: an engine's error is none that the command line knows."""
    with pytest.raises(RunFailedError, match="venv no longer answers for w0: Connection refused"):
        run_tool(Gone(None, WORKLOADS), spec("pass"), print)


def test_a_container_that_does_not_start_ends_the_started_ones(sleep):
    outcome = run(spec(sleep), spec("pass", name="w1"), engines={"here": Refusing(None, WORKLOADS)})
    assert outcome.reason == "venv would not start w1: no such image"


@pytest.mark.parametrize(
    ("engine", "other", "reason"),
    [
        (
            Silent,
            "import time; time.sleep(300)",
            "n2 was lost: its engine no longer answers (no answer within 5 s);",
        ),
        (
            CutOff,
            "import time; time.sleep(300)",
            "n2 was lost: its engine no longer answers (no route to n2);",
        ),
        (Gone, "pass", "n2 was lost: its engine no longer answers (Connection refused);"),
        (LocalEngine, "raise SystemExit(7)", "n2: w1: exit code 7"),
        (Refusing, "pass", "n2: venv would not start w1: no such image"),
    ],
)
def test_a_failure_on_one_node_ends_the_job_on_the_others_and_names_the_node(monkeypatch, sleep, engine, other, reason):
    monkeypatch.setattr(container_group, "BEAT_S", 0.1)
    monkeypatch.setattr(container_group, "SILENCE_S", 0.4)
    engines = {"n1": LocalEngine(None, WORKLOADS), "n2": engine(None, WORKLOADS)}
    outcome = run(spec(sleep, node="n1"), spec(other, name="w1", node="n2"), engines=engines, remote=True)
    assert outcome.status == "failed"
    assert outcome.reason.startswith(reason)
    assert outcome.lost == (("n2",) if " was lost: " in reason else ())


@pytest.mark.parametrize(
    ("roles", "order"),
    [
        # Otherwise a worker on a fast node looked up a node whose name did not exist yet.
        ({"a1": "daemon", "b1": "daemon", "a2": "worker", "b2": "worker"}, ["a1", "b1", "a2", "b2"]),
        ({"b1": "worker", "a1": "scheduler", "a2": "worker"}, ["a1", "a2", "b1"]),
    ],
)
def test_daemons_of_all_nodes_start_first_and_nodes_do_not_wait_for_each_other(roles, order):
    started = []

    class Slow(LocalEngine):
        def start(self, spec):
            time.sleep(0.3 if spec.node == "b" else 0)
            started.append(spec.name)
            return super().start(spec)

    specs = [spec("import time; time.sleep(1)", name=name, node=name[0], role=role) for name, role in roles.items()]
    run(*specs, engines={node: Slow(None, WORKLOADS) for node in "ab"})
    assert started == order


@pytest.mark.parametrize("nodes", [("n1",), ("n1", "n2")])
def test_containers_on_other_machines_get_heartbeats(monkeypatch, nodes):
    monkeypatch.setattr(container_group, "BEAT_S", 0.1)
    lease = (sys.executable, str(WORKLOADS / "lease.py"), "--heartbeat=2", sys.executable, "-c")
    argv = (*lease, "import time; time.sleep(4)")
    specs = [spec("", name=node, node=node).model_copy(update={"argv": argv}) for node in nodes]
    engines = {node: LocalEngine(None, WORKLOADS) for node in nodes}
    outcome = run(*specs, engines=engines, remote=True)
    assert outcome.status == "ok", outcome.reason
    silent = run(*specs, engines=engines)
    assert "lease: nothing heard from the runner" in silent.reason


@pytest.mark.parametrize("notices", ["log", "check"])
def test_a_full_disk_ends_even_a_silent_job(monkeypatch, sleep, notices):
    """Prevents a full disk that is noticed only at the next window, once 97 s later."""

    def full(*_):
        raise RunFailedError("/results/x: can't be written (No space left on device)")

    monkeypatch.setattr(Sheet, notices, full)
    outcome = run(spec(("print('line')\n" if notices == "log" else "") + sleep))
    assert (outcome.status, "No space left" in outcome.reason) == ("failed", True)


@pytest.mark.parametrize("stubborn", ["", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"])
def test_kill_9_of_the_runner_leaves_no_processes(tmp_path, stubborn):
    """Prevents orphans that hold GPUs after the runner was killed: only the lease is left to clean up."""
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


# A real chain, shortened: Open MPI 4.1.4, two ranks that write rows concurrently.
WOVEN = (
    (
        '[1,1]<stdout>:::dlscale-rows:: {"table":"kernels","rank":1,"columns":{"na[1,0]<stdout>:::dlscale-rows:: '
        '{"table":"kernels","rank":0,"columns":{"name":["a"],"op":[4]}}'
    ),
    '[1,0]<stdout>:::dlscale-[1,1]<stdout>:me":["b"],"op":[5]}}',
    '[1,0]<stdout>:rows:: {"table":"kernels","rank":0,"columns":{"name":["c"],"op":[6]}}',
)


def mpirun(fragments):
    """Print (rank, text) fragments as mpirun does: a tag before each, and after each newline within it."""
    printed = ""
    for rank, text in fragments:
        tag = f"[1,{rank}]<stdout>:"
        printed += tag + text[:-1].replace("\n", "\n" + tag) + text[-1:]
    return printed


def test_a_line_split_by_another_rank_is_reassembled():
    assembler = LineAssembler()
    found = [parse_line(text, received=0.0, container="c") for physical in WOVEN for text in assembler.feed(physical)]
    assert all(isinstance(rows, Rows) for rows in found)
    assert [(rows.rank, rows.columns) for rows in found] == [
        (0, {"name": ["a"], "op": [4]}),
        (1, {"name": ["b"], "op": [5]}),
        (0, {"name": ["c"], "op": [6]}),
    ]
    assert assembler.close() == ()


@given(fragments=st.lists(st.tuples(st.integers(0, 3), st.text(alphabet="ab\n", min_size=1, max_size=9)), max_size=30))
def test_every_ranks_output_is_the_same_as_if_it_ran_alone(fragments):
    written = dict.fromkeys(range(4), "")
    for rank, text in fragments:
        written[rank] += text
    fragments = [*fragments, *((rank, "\n") for rank, text in written.items() if text and not text.endswith("\n"))]
    assembler = LineAssembler()
    heard = {rank: [] for rank in written}
    for physical in mpirun(fragments).split("\n")[:-1]:
        for text in assembler.feed(physical):
            rank = int(text.partition("]")[0].partition(",")[2])
            heard[rank].append(text.partition(":")[2])
    assert {rank: "".join(line + "\n" for line in lines) for rank, lines in heard.items()} == {
        rank: text + ("\n" if text and not text.endswith("\n") else "") for rank, text in written.items()
    }
    assert assembler.close() == ()


def test_tags_without_line_ends_do_not_fill_memory():
    """Text that looks like the tags of further ranks was buffered without limit, waiting for their line ends."""
    assembler = LineAssembler()
    for rank in range(40_000):
        assert assembler.feed(f"[1,{rank}]<stdout>:{'x' * 1000}[2,1]<stdout>:whole") == ("[2,1]<stdout>:whole",)
    assert assembler.feed(f"[1,39999]<stdout>:{'y' * 9}") == (f"[1,39999]<stdout>:{'y' * 9}",)
    assert sum(map(len, assembler.close())) <= MAX_BUFFERED


def test_untagged_lines_pass_unmodified_and_text_before_a_tag_is_its_own_line():
    assembler = LineAssembler()
    for text in ("", "::dlscale:: {}", "[0]<stdout>:a line of horovodrun", "[rank1]: a traceback", "array[1,2]"):
        assert assembler.feed(text) == (text,)
    assert assembler.feed("mpirun says[1,0]<stdout>:hello") == ("mpirun says", "[1,0]<stdout>:hello")


def test_unterminated_lines_are_returned_at_the_end():
    assembler = LineAssembler()
    assert assembler.feed("[1,0]<stdout>:hel[1,1]<stdout>:whole") == ("[1,1]<stdout>:whole",)
    assert assembler.close() == ("[1,0]<stdout>:hel",)
    assert assembler.close() == ()
