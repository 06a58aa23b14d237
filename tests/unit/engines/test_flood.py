"""Prevents: a runner that exhausts memory, or whose time grows faster than the output, because a program writes without end.

A child process reads the program's output through a real pipe and everything after it: splitter, event log, last lines, reason.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from runner.engines.base import LONGEST, QUEUE_LENGTH, TRUNCATED

ROOT = Path(__file__).parents[3]
MEBI = 2**20
ROOM_MIB = 60
"""More than the loaded runner needs, but less than all output at once, or than several full queues of lines."""
HEAR = f"""
import resource, sys
from pathlib import Path
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
import examples
from runner.run.dialects import auto
from runner.run.dialects.base import Facts
from runner.engines.local import LocalEngine
from runner.run.execute import Limits, execute
from runner.core.record import RunPlan; from runner.results.store import RunWriter
from runner.core.container_spec import ContainerSpec

out, program = Path(sys.argv[1]), sys.argv[2]
spec = ContainerSpec(
    name="w0", node="here", role="worker", image="i", argv=(sys.executable, "-c", program), env={{}}, user="0:0", labels={{}}
)
writer = RunWriter(out)
writer.create(RunPlan(run_id="r", trial=examples.trial(), containers=(spec,), command_lines=()))
reader = auto(Facts(batch_per_device=1, devices=1, warmup=None, container="w0"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
outcome = execute(
    engines={{"here": LocalEngine(None, Path("/"))}},
    specs=[spec],
    writer=writer,
    limits=Limits(600, 600),
    watch=lambda _: None,
    readers={{"w0": reader}},
)
writer.close()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, outcome.status, *outcome.cut, outcome.reason)
"""


@pytest.fixture
def hear(tmp_path):
    """Run a program under the runner; returns the MiB that its output took, the sentence on how it ended, and its log."""

    def run(program):
        argv = [sys.executable, "-c", HEAR, str(tmp_path / "run"), program]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        took, _, reason = done.stdout.partition(" ")
        return int(took), reason.strip(), tmp_path / "run" / "logs" / "w0.log"

    return run


def test_an_endless_line_is_cut_and_marked(hear):
    """300 MB in one line took 300 MB, with each read joined to all previous ones."""
    took, reason, log = hear("import os, sys\nfor _ in range(1200): os.write(1, b'x' * 65536)\nsys.exit(3)")
    assert took < ROOM_MIB
    assert log.read_text() == "x" * LONGEST + TRUNCATED + "\n"
    assert re.match(r"failed w0 w0: exit code 3.*; it last said: x+$", reason)


def test_countless_lines_are_kept_on_disk_only(hear):
    """Twenty million lines were queued in memory for the writer of the log."""
    took, reason, log = hear("import os\nfor _ in range(40): os.write(1, b'a line\\n' * 1000)")
    assert took < ROOM_MIB
    assert "no line is in any dialect" in reason
    assert log.stat().st_size == 40_000 * len("a line\n")


def test_many_long_lines_block_the_program_instead_of_filling_memory(hear):
    """Two queues could hold five hundred lines each, of 1 MiB."""
    took, _, log = hear("import os\nfor _ in range(300): os.write(1, b'x' * 999_999 + b'\\n')")
    assert took < ROOM_MIB + QUEUE_LENGTH
    assert log.stat().st_size == 300 * 1_000_000
