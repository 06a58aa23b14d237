"""Prevents: a record lost to a second Ctrl-C, a command that SIGTERM or a closed terminal kills at work, a wrong exit code for a shell."""

import os
import signal
import subprocess
import sys
import textwrap

import examples
import pytest

from runner.core.interrupts import Stopped, stop_on_signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def command(body, *, ignored=None):
    """Start `dlscale regrade` with its body replaced, and wait until it is at work."""
    code = f"""
        import signal, sys, threading, time
        from runner.commands import cli; from runner.commands import regrade
        from runner.core.interrupts import Stopped, stop_on_signal
        def body(_):
        {textwrap.indent(textwrap.dedent(body), " " * 12)}
        regrade.regrade_all = body
        sys.argv = ["dlscale", "regrade", "."]
        cli.main()
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    process = subprocess.Popen(
        argv,
        cwd=examples.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=ignored and (lambda: signal.signal(ignored, signal.SIG_IGN)),  # noqa: PLW1509 - no threads here
    )
    assert process.stdout.readline() == "at work\n"
    return process


@pytest.mark.parametrize(("number", "name"), zip(SIGNALS, ("Ctrl-C", "SIGTERM", "SIGHUP"), strict=True))
def test_a_command_without_a_run_is_undone_and_names_the_signal(number, name):
    process = command("""
        try:
            print("at work", flush=True)
            time.sleep(60)
        finally:
            print("put back")
    """)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout, stderr) == (128 + number, "put back\n", f"dlscale: stopped by {name}\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 3), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_run_ends_in_order_and_is_reported_despite_repeated_signals(number, code):
    """A third Ctrl-C between record and table suppressed the table, and the exit code was 130."""
    process = command("""
        stopped = Stopped()
        with stop_on_signal(stopped):
            print("at work", flush=True)
            while not stopped.by:
                time.sleep(0.02)
            print("stopping", flush=True)
            time.sleep(1)
            print("its record", flush=True)
        time.sleep(1)
        print("its table", flush=True)
        return 3
    """)
    for said in ("stopping\n", "its record\n"):
        process.send_signal(number)
        assert process.stdout.readline() == said
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout, stderr) == (code, "its table\n", "")


def test_signals_that_nohup_ignores_stay_ignored():
    process = command(
        """
        with stop_on_signal(Stopped()):
            print("at work", flush=True)
            sys.stdin.readline()
        return 0
        """,
        ignored=signal.SIGHUP,
    )
    process.send_signal(signal.SIGHUP)
    assert (process.communicate(timeout=30)[1], process.returncode) == ("", 0)


def test_the_first_signal_is_named_and_handlers_are_restored():
    before = [signal.getsignal(number) for number in SIGNALS]
    stopped = Stopped()
    with stop_on_signal(stopped):
        assert stopped.by is None
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
    assert stopped.reason == "stopped by SIGHUP"
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_command_stopped_while_loading_reports_it_in_one_line(name, code):
    """Ctrl-C in the first second printed a traceback; during a finalizer, as here, the command even continued. After scancel, salloc
    turned SIGTERM into a bug's exit code."""
    program = """
        import os, runpy, signal, sys
        class Stopped:
            def __del__(self):
                os.kill(os.getpid(), signal.NAME)
        class Stopping:
            def find_spec(self, name, *_):
                if name == "runner.commands.cli":
                    Stopped()
        sys.meta_path.insert(0, Stopping())
        runpy.run_module("runner.commands", run_name="__main__")
    """
    argv = [sys.executable, "-c", textwrap.dedent(program).replace("NAME", name)]
    done = subprocess.run(argv, cwd=examples.ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (
        code,
        "",
        f"dlscale: stopped by {'Ctrl-C' if name == 'SIGINT' else name}\n",
    )


def test_a_signal_during_a_finalizer_still_ends_the_command():
    """Python printed the interrupt and continued; the command exited with 0."""
    process = command("""
        class Stopped:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)
        print("at work", flush=True)
        Stopped()
        time.sleep(60)
        return 0
    """)
    _, said = process.communicate()
    assert (process.returncode, said) == (130, "dlscale: stopped by Ctrl-C\n")


def test_a_finished_command_keeps_its_exit_code_despite_later_signals():
    """A second Ctrl-C after the record made the exit code -2."""
    process = command("""
        def late():
            threading.main_thread().join()
            print("done", flush=True)
            time.sleep(0.5)
        threading.Thread(target=late).start()
        print("at work", flush=True)
        return 3
    """)
    assert process.stdout.readline() == "done\n"
    for number in SIGNALS:
        process.send_signal(number)
    _, said = process.communicate()
    assert (process.returncode, said) == (3, "")
