"""The engine and the CPU images, each built once; without an engine the tests are skipped with the reason."""

import shutil
from pathlib import Path

import pytest
from commands import call, left_running, running
from testbed.apptainer import KEPT
from testbed.podman import own_storage

from runner.engines.base import EngineError
from runner.engines.docker import connect


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


@pytest.fixture(scope="session")
def dlscale(client):
    """Call the command line in a process of its own; small trainings unless told otherwise."""
    return call


@pytest.fixture(scope="session")
def has(client, dlscale):
    """See to it that the engine has an image of the suite: `--image` itself builds and pulls nothing."""
    from docker.errors import ImageNotFound

    def build(reference):
        try:
            client.images.get(reference)
        except ImageNotFound:
            done = dlscale("images", "build", reference.removeprefix("dlscale/"))
            assert done.code == 0, done.stderr
        return reference

    return build


@pytest.fixture(scope="session")
def podman(client):
    """What a process is started with to use a Podman with a storage of the tests' own, into which an image is loaded once."""
    if shutil.which("podman") is None:
        pytest.skip("no podman is installed")
    KEPT.mkdir(exist_ok=True)  # with the archive that a SIF is made of
    with own_storage() as variables:
        yield {**variables, "DLSCALE_CACHE": str(KEPT / "cache")}


@pytest.fixture
def start(client):
    """Start the command line and leave it running; whatever the test does, it does not outlive it."""
    with left_running() as begin:
        yield begin


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
def nothing_left(client, tmp_path_factory):
    """After the test, no container may be running of any run that this process had made."""
    yield
    assert running(client, tmp_path_factory.getbasetemp()) == []
