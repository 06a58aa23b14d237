"""A program that ends at once and loses what it had written or promised: the last event, a library's own log, a loader's processes."""

import subprocess
import sys
from pathlib import Path

WORKLOADS = Path(__file__).parents[3] / "workloads"
PROGRAM = """
import atexit, ctypes, sys
from leaving import leave

class Loud:
    def __del__(self):
        print("taken apart")

kept = Loud()
atexit.register(lambda: print("promised"))
print("python")
ctypes.CDLL(None).puts(b"c")
print("error", file=sys.stderr, end="")
leave()
print("came back")
"""


def test_what_was_written_and_promised_is_there_and_nothing_is_taken_apart():
    ended = subprocess.run([sys.executable, "-c", PROGRAM], cwd=WORKLOADS, capture_output=True, text=True, check=True)
    assert (sorted(ended.stdout.split()), ended.stderr) == (["c", "promised", "python"], "error")
