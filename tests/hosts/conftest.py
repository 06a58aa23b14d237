"""One rig of four nodes for the whole session, repaired and cleaned after every test; on machines that can't run it, its tests are skipped
with the reason.

It goes down with the session, even if that is killed. A test that damages a rig permanently leases its own.
"""

import io
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import docker
import examples
import pytest
from checkout import ROOT
from environments import environment_of
from on_slurm import DLSCALE
from testbed import apptainer, slurm
from testbed.lease import leased
from testbed.tools import refuse_unfit

from runner.cluster.cleanup import Place, remove_left
from runner.core.container_spec import LABEL_RUN
from runner.core.errors import RequestError
from runner.engines.leftovers import InDocker

NODES = 4


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.hosts)


@pytest.fixture(scope="session")
def fit():
    """Skip unless this user and machine can run a rig."""
    try:
        refuse_unfit()
    except RequestError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def session_rig(fit):
    """Four nodes with `eth0`, and `eth1` in a separate network; tests use `rig`, which repairs it."""
    with leased(nodes=NODES, second="other") as rig:
        yield rig


@pytest.fixture
def rig(session_rig, engine):
    """The session's rig: all links up and unshaped, all engines and ssh servers running, no trace of a fault.

    `rig.hosts(2)` lists its first two nodes.
    """
    yield session_rig
    session_rig.repair()
    clients = [engine(node) for node in session_rig.nodes]
    for client in clients:  # all are this test's: a job cut off from its runner would continue for half a minute
        for container in client.containers.list(filters={"label": LABEL_RUN}, ignore_removed=True):
            container.remove(force=True)
    remove_left([Place(InDocker(client)) for client in clients])


@pytest.fixture
def engine():
    """Connect to a node's engine, at its socket."""
    opened = []

    def connect(node):
        client = docker.DockerClient(base_url=node.engine("unix"), timeout=60)
        opened.append(client)
        return client

    yield connect
    for client in opened:
        client.close()


@pytest.fixture(scope="session")
def tiny_image(tmp_path_factory):
    """Load an image with this machine's `sleep` and `cat` into an engine, for tests that need no framework."""
    libraries = set()
    for program in ("/bin/sleep", "/bin/cat"):
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.split()
        libraries |= {word for word in linked if word.startswith("/")}
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", dereference=True) as archive:
        for path in sorted(libraries | {"/bin/sleep", "/bin/cat"}):
            archive.add(path)

    def put(client):
        client.api.import_image_from_data(content.getvalue(), repository="tiny", tag="test")
        return "tiny:test"

    return put


@pytest.fixture(scope="module")
def cluster():
    """A Slurm of four nodes, in a directory that its own users can access."""
    try:
        slurm.refuse_unfit()
    except RequestError as error:
        pytest.skip(str(error))
    directory = Path(tempfile.mkdtemp(prefix="dlscale-slurm-"))
    with slurm.running(directory, nodes=4) as made:
        yield made
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def sif():
    """Environment of jobs in Apptainer: the program on PATH, and a cache, visible to all nodes, with the SIFs made by `images sif`."""
    try:
        environment = apptainer.environment(ROOT)
    except RequestError as error:
        pytest.skip(str(error))
    newest = f"mxnet:{examples.newest('mxnet', 'cpu')}"
    subprocess.run(
        (DLSCALE, "images", "sif", newest, f"{newest}-horovod"), env=environment, check=True, capture_output=True
    )
    return environment


@pytest.fixture(scope="session")
def environments():
    """Create the virtual environments of jobs without a container: the tests' Slurm can't reach a package index."""
    for framework in ("mxnet", "pytorch", "tensorflow"):
        environment_of(framework)
