"""The command line in a separate process, for tests that need an engine.

Commands that run to completion are forked from a process that has loaded only the suite, because loading it takes longer than most commands.
"""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from runner.core.container_spec import LABEL_RUN
from runner.report import ahead
from runner.results.store import read_record

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Ended:
    """A finished command, and the records that it left."""

    code: int
    stdout: str
    stderr: str
    out: Path

    @property
    def records(self):
        return [read_record(path.parent) for path in sorted(self.out.glob("*/record.json"))]

    def record(self, scale):
        return next(record for record in self.records if record.trial.world_size == scale)


def as_valid(run, status="valid"):
    """Mark a run's record as valid, or as `status`. Otherwise, a run whose rate never settled, which happens in trainings of a second,
    would not be reused as a baseline."""
    record = Path(run, "record.json")
    record.write_text(json.dumps(json.loads(record.read_text()) | {"validity": {"status": status, "reasons": []}}))


# One thread: if another process takes a core, all threads of a training busy-wait for the one that lost it.
QUICK = ("--model=lenet", "--batch=4", "--iterations=12", "--warmup=2", "--repeat=1", "--threads=1")


LOADED = multiprocessing.get_context("forkserver")
LOADED.set_forkserver_preload(["runner.commands.cli", "runner.commands.report", *ahead.MODULES])


def in_loaded(argv, environment, folder, said, only):
    """Turn a fork of the loaded process into `python -m runner.commands` with the arguments `argv` in a folder, its output in two files."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, (path, how) in enumerate(((os.devnull, "r"), *((path, "w") for path in said))):
        with Path(path).open(how) as file:
            os.dup2(file.fileno(), number)
    sys.argv = [str(ROOT / "runner" / "commands" / "__main__.py"), *argv]
    from runner.commands.cli import main

    if only:
        from only import run_only

        run_only(only)
    main()


def without(words, names):
    """The options `words`, less those with these names."""
    return [word for word in words if word.partition("=")[0] not in names]


def names_of(words):
    return {str(word).partition("=")[0] for word in words}


def replaced(words, *by):
    """The options `words`, with those of `by` in place of their own."""
    return (*without(words, names_of(by)), *by)


def call(*words, out=None, only=None):
    """Run a command to completion as `run_to_end` does; a training is small by default."""
    argv = [*words]
    if words[0] == "bench":
        told = names_of(words)
        argv += without(QUICK, told | ({"--iterations"} if "--epochs" in told else set()))
    if out:
        argv.append(f"--out={out}")
    return run_to_end(argv, out=out, only=only)


def run_to_end(argv, *, out=None, env=None, cwd=ROOT, timeout=900, only=None):
    """Run a command to completion; `out` is its results folder, `env` its additional environment variables.

    A `bench` runs all its trainings, or only those selected by a name in `only.py`: a test that ignores the speedup needs no run on one device.

    Raises:
        TimeoutError: it did not end in time, and was killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder) / name for name in ("stdout", "stderr")]
        process = LOADED.Process(
            target=in_loaded, args=([*map(str, argv)], {**os.environ, **(env or {})}, cwd, said, only)
        )
        process.start()
        try:
            process.join(timeout)
            if process.is_alive():
                raise TimeoutError(f"{argv} did not end within {timeout} s: {said[1].read_text()}")
        finally:
            process.kill()
            process.join()
        return Ended(process.exitcode, *(path.read_text() for path in said), Path(out) if out else Path())


def dlscale(*words, env=None, cwd=ROOT):
    """Run a command without training to completion."""
    return run_to_end(words, env=env, cwd=cwd, timeout=120)


def samplers(runner):
    """Sampler processes of a command left running."""
    found = []
    for process in psutil.Process(runner.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            programs = {Path(word).name for word in process.cmdline()}
            if "monitor.py" in programs and "lease.py" not in programs:
                found.append(process)
    return found


def only(which):
    """Python's arguments for a `dlscale` that runs only some of a `bench`'s trainings, see `only.py`."""
    return (str(ROOT / "tests" / "only.py"), which)


@contextmanager
def background_commands():
    """Start commands in the background; they end with the block."""
    started = []

    def begin(*words, program=("-m", "runner.commands")):
        argv = [sys.executable, *program, *map(str, words)]
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


def of_run(run_id):
    """The engine's filter for objects of one run."""
    return {"label": f"{LABEL_RUN}={run_id}"}


def containers_of(client, folder, **which):
    """Containers of the runs whose directories are below `folder`; other tests use the same engine."""
    found = client.containers.list(filters={"label": LABEL_RUN}, ignore_removed=True, **which)
    runs = {path.name for path in Path(folder).rglob("*") if path.is_dir()} if found else set()
    return [container for container in found if container.labels[LABEL_RUN] in runs]


def running(client, folder):
    """Names of the running containers of the runs in `folder`."""
    return [container.name for container in containers_of(client, folder)]
