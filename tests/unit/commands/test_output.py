"""Prevents: work that stops half-way, without a word, because nobody reads what it prints: `dlscale report | head -1`, a closed ssh."""

import os
import subprocess
import sys
import textwrap

import examples
import pytest

CODE = """
    import sys
    from pathlib import Path
    from rich.console import Console
    from runner.commands import cli; from runner.commands import regrade
    def body(directory):
        sys.stdin.readline()
        for stream in (sys.stdout, sys.stderr):
            for number in range(3):
                Console(file=stream).print("line", number)
            stream.write("x" * 100_000)
            stream.flush()
        (directory / "done").touch()
        return 4
    regrade.regrade_all = body
    sys.argv = ["dlscale", "regrade", sys.argv[1]]
    cli.main()
"""


def pipe():
    return os.pipe()


def terminal():
    return os.openpty()


@pytest.mark.parametrize("opened", [pipe, terminal])
def test_a_command_finishes_its_work_when_nobody_reads_it(tmp_path, opened):
    reading, writing = opened()
    argv = [sys.executable, "-c", textwrap.dedent(CODE), str(tmp_path)]
    process = subprocess.Popen(argv, cwd=examples.ROOT, stdin=subprocess.PIPE, stdout=writing, stderr=writing)
    os.close(writing)
    os.close(reading)
    process.communicate(b"go on\n", timeout=60)
    assert process.returncode == 4
    assert (tmp_path / "done").exists()


def test_what_is_read_arrives_whole(tmp_path):
    argv = [sys.executable, "-c", textwrap.dedent(CODE), str(tmp_path)]
    done = subprocess.run(argv, cwd=examples.ROOT, input="go on\n", capture_output=True, text=True)
    assert done.stdout == done.stderr == "line 0\nline 1\nline 2\n" + "x" * 100_000
