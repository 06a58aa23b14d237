"""The command line in a process of its own, for tests that need an engine."""

import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runner.results import read_record
from runner.spec import LABEL_RUN

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Ended:
    """A command that has ended, and the records that it left."""

    code: int
    stdout: str
    stderr: str
    out: Path

    @property
    def records(self):
        return [read_record(path.parent) for path in sorted(self.out.glob("*/record.json"))]

    def record(self, scale):
        return next(record for record in self.records if record.trial.world_size == scale)


QUICK = ("--model=resnet18", "--batch=4", "--iterations=12", "--warmup=2", "--repeat=1")


def call(*words, out=None, timeout=900):
    """Run a command to its end; a small training unless told otherwise."""
    argv = [sys.executable, "-m", "runner", *map(str, words)]
    if words[0] == "bench":
        told = {str(word).partition("=")[0] for word in words}
        told |= {"--iterations"} if "--epochs" in told else set()
        argv += [flag for flag in QUICK if flag.partition("=")[0] not in told]
    if out:
        argv.append(f"--out={out}")
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    return Ended(done.returncode, done.stdout, done.stderr, Path(out) if out else Path())


@contextmanager
def left_running():
    """Start commands and leave them running; they do not outlive the block."""
    started = []

    def begin(*words):
        argv = [sys.executable, "-m", "runner", *map(str, words)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(argv, cwd=ROOT, text=True, **pipes))
        return started[-1]

    try:
        yield begin
    finally:
        for process in started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


def running(client):
    """Names of the suite's running containers."""
    return [container.name for container in client.containers.list(filters={"label": LABEL_RUN}, ignore_removed=True)]
