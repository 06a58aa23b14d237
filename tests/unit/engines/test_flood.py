"""Prevents: a runner that fills the machine's memory, or takes time that grows faster than the output, because a program writes without end.

A child process hears the program through a real pipe, with all that stands behind it: splitter, event log, last lines, sentence.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from runner.engines.base import AHEAD, CUT, LONGEST

ROOT = Path(__file__).parents[3]
MEBI = 2**20
ROOM_MIB = 60
"""Above what the loaded runner takes; all output at once would be more, and so would be the lines that may wait where they were many."""
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
    """MiB that the runner took for a program's output, the sentence on how it ended, and its log."""

    def run(program):
        argv = [sys.executable, "-c", HEAR, str(tmp_path / "run"), program]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        took, _, reason = done.stdout.partition(" ")
        return int(took), reason.strip(), tmp_path / "run" / "logs" / "w0.log"

    return run


def test_a_line_without_an_end_is_cut_with_a_word(hear):
    """300 MB in one line took 300 MB, each read joined to all before it."""
    took, reason, log = hear("import os, sys\nfor _ in range(1200): os.write(1, b'x' * 65536)\nsys.exit(3)")
    assert took < ROOM_MIB
    assert log.read_text() == "x" * LONGEST + CUT + "\n"
    assert re.match(r"failed w0 w0: exit code 3.*; it last said: x+$", reason)


def test_lines_without_number_are_kept_on_disk_alone(hear):
    """Twenty million lines waited in memory for whoever wrote them down."""
    took, reason, log = hear("import os\nfor _ in range(40): os.write(1, b'a line\\n' * 1000)")
    assert took < ROOM_MIB
    assert "no line is in any dialect" in reason
    assert log.stat().st_size == 40_000 * len("a line\n")


def test_long_lines_that_are_many_wait_with_the_program(hear):
    """Five hundred lines could wait, a MiB each, twice."""
    took, _, log = hear("import os\nfor _ in range(300): os.write(1, b'x' * 999_999 + b'\\n')")
    assert took < ROOM_MIB + AHEAD
    assert log.stat().st_size == 300 * 1_000_000
