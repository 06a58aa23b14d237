"""The engine and the CPU images, each built once; without an engine, the tests are skipped with the reason."""

import shutil
from pathlib import Path

import pytest
from commands import background_commands, call, running
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
    """Call the command line in a separate process; trainings are small by default."""
    return call


@pytest.fixture(scope="session")
def ensure_image(client, dlscale):
    """Ensure that the engine has an image of the suite: `--image` itself builds and pulls nothing."""
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
    """Environment variables for a Podman with separate storage, into which an image is loaded once."""
    if shutil.which("podman") is None:
        pytest.skip("no podman is installed")
    KEPT.mkdir(exist_ok=True)  # along with the archive from which a SIF is made
    with own_storage() as variables:
        yield {**variables, "DLSCALE_CACHE": str(KEPT / "cache")}


@pytest.fixture
def start(client):
    """Start the command line in the background; it ends with the test."""
    with background_commands() as begin:
        yield begin


@pytest.fixture(scope="session")
def sample(dlscale, tmp_path_factory):
    """A small set of real JPEGs, including a truncated file and one that is not an image."""
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
    """After the test, no container of a run that this process started may still be running."""
    yield
    assert running(client, tmp_path_factory.getbasetemp()) == []
