"""The engine and the CPU images, each built once; without an engine the tests are skipped with the reason."""

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.engines.base import EngineError
from runner.engines.docker import connect
from runner.results import read_record
from runner.spec import LABEL_RUN

ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.containers)


@pytest.fixture(scope="session")
def client():
    try:
        return connect()
    except EngineError as error:
        pytest.skip(str(error))


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


QUICK = ("--model=resnet18", "--image-size=32", "--batch=4", "--iterations=12", "--warmup=2", "--repeat=1")


@pytest.fixture(scope="session")
def dlscale(client):
    """Call the command line in a process of its own; small trainings unless told otherwise."""

    def call(*words, out=None, timeout=900):
        argv = [sys.executable, "-m", "runner", *map(str, words)]
        if words[0] == "bench":
            argv += [
                flag for flag in QUICK if not any(str(word).startswith(flag.split("=")[0] + "=") for word in words)
            ]
        if out:
            argv.append(f"--out={out}")
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
        return Ended(done.returncode, done.stdout, done.stderr, Path(out) if out else Path())

    return call


@pytest.fixture
def start(client):
    """Start the command line and leave it running; whatever the test does, it does not outlive it."""
    started = []

    def begin(*words):
        argv = [sys.executable, "-m", "runner", *map(str, words)]
        process = subprocess.Popen(
            argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="session")
def sample(dlscale, tmp_path_factory):
    """A small set of real JPEGs, and in it one that is cut short and one that never was an image."""
    directory = tmp_path_factory.mktemp("data") / "sample"
    done = dlscale("data", "sample", directory, "--images=160")
    assert done.code == 0, done.stderr
    folder = min(path for path in directory.iterdir() if path.is_dir())
    whole = min(folder.glob("*.jpg")).read_bytes()
    (folder / "cut_short.jpg").write_bytes(whole[: len(whole) // 3])
    (folder / "no_image.jpg").write_bytes(b"GIF89a, not a JPEG at all")
    directory.chmod(0o755)  # pytest's own temporary directories are private to root
    return directory


@pytest.fixture
def nothing_left(client):
    """After the test, no container of the suite may be running."""
    yield
    assert running(client) == []


def running(client):
    """Names of the suite's running containers."""
    return [container.name for container in client.containers.list(filters={"label": LABEL_RUN}, ignore_removed=True)]


def wait_until(condition, seconds):
    """Poll a condition; its last value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return value
