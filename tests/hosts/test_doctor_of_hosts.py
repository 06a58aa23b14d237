"""Real nodes: their facts, what is copied to them, and each of their faults as one sentence with their name.

Prevents: a host that is reported healthy but can't be used; a fault that is blamed on the wrong node, or ends in a traceback; containers,
volumes and tunnels left behind on nodes; an image or a program that differs between a node and this machine.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from commands import run_to_end
from shifted_clock import shifted_clock
from waiting import is_running, wait_until

from runner.cluster.hosts.connectivity import check_pairs, end_of, explain
from runner.cluster.hosts.endpoint import base_image, connect
from runner.cluster.hosts.model import load_hosts
from runner.cluster.hosts.supply import programs, supply_image
from runner.cluster.hosts.survey import survey
from runner.cluster.machine.provenance import tree_sha256
from runner.core.container_spec import LABEL_RUN
from runner.core.errors import RequestError
from runner.engines import docker, volumes
from runner.engines.base import EngineError

ROOT = Path(__file__).parents[2]
N1, N2 = "n1", "n2"


@pytest.fixture(scope="session")
def here():
    """This machine's engine, the source of the nodes' images."""
    try:
        return docker.connect()
    except EngineError as error:
        pytest.skip(str(error))


@pytest.fixture
def nodes(rig, here):
    """Survey the first nodes of the rig; the connections are closed after the test."""
    with ExitStack() as undo:

        def survey_first(count=2, *, way="ssh"):
            found = survey(load_hosts(str(rig.hosts(count, way=way))), print)
            for seen in found:
                undo.callback(seen.connection.close)
            return found

        yield survey_first


def dlscale(*words, timeout=180):
    return run_to_end(words, timeout=timeout)


def doctor(hosts, *words):
    """Return the exit code, and the findings by subject."""
    done = dlscale("doctor", "--hosts", hosts, "--json", *words)
    assert "Traceback" not in done.stderr, done.stderr
    return done.code, {finding["subject"]: finding for finding in json.loads(done.stdout)}


def left(client):
    """Names of the suite's containers and volumes in an engine."""
    by_label = {"label": LABEL_RUN}
    containers = client.containers.list(all=True, filters=by_label, ignore_removed=True)
    return sorted([one.name for one in containers] + [one.name for one in client.volumes.list(filters=by_label)])


def test_a_survey_finds_the_nodes_as_the_rig_set_them_up(rig, nodes):
    found = nodes(4)
    assert [seen.host.name for seen in found] == [node.name for node in rig.nodes]
    for seen, made in zip(found, rig.nodes, strict=True):
        assert {nic.name: nic.address for nic in seen.node.nics if nic.name != "lo"} == made.addresses
        assert set(seen.local) >= set(made.addresses.values())
        assert seen.node.cores == tuple(sorted(made.cores))
        assert seen.engine.version == seen.docker.client.version()["Version"]
        assert seen.facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert seen.clock.apart_s == pytest.approx(0, abs=0.05)
        assert len(set(seen.node.ports)) == len(seen.node.ports)
        assert left(seen.docker.client) == []


def test_every_pair_of_hosts_connects_and_the_doctor_says_so(rig, here):
    code, found = doctor(rig.hosts(2))
    assert code == 0, found
    assert found["pairs"]["sentence"].startswith("all 2 hosts reach each other on eth0")
    assert {finding["level"] for finding in found.values()} <= {"ok", "warn"}


def test_a_second_interface_is_checked_separately(rig, nodes):
    found = nodes(3)
    assert check_pairs(found, [end_of(one, "eth1") for one in found]) == ()
    rig.cut_link(N2, "eth1")
    assert explain(check_pairs(found, [end_of(one, "eth1") for one in found])).startswith(
        "n2: its interface eth1 is down"
    )
    assert check_pairs(found, [end_of(one, "eth0") for one in found]) == ()


def test_an_engine_at_a_socket_survives_a_cut_link_and_reports_it(rig, nodes):
    """The engine is still reachable, so that the interface itself can be checked."""
    found = nodes(3, way="unix")
    rig.cut_link(N2)
    said = explain(check_pairs(found, [end_of(one, None) for one in found]))
    assert said == "n2: its interface eth0 is down, so n1, n3 can't reach it"


def test_a_cut_link_that_carries_ssh(rig):
    hosts = rig.hosts(2)
    rig.cut_link(N2)
    code, found = doctor(hosts)
    assert code == 2
    assert found[N2]["level"] == "bad"
    assert found["n1 engine"]["level"] == "ok"


def test_refused_ssh(rig):
    hosts = rig.hosts(2)
    rig.stop_ssh(N2)
    code, found = doctor(hosts)
    assert code == 2
    assert "no sshd listens there" in found[N2]["sentence"]
    assert found["n1 engine"]["level"] == "ok"
    with pytest.raises(RequestError, match=r"^n2: no sshd listens there .*; start it"):
        survey(load_hosts(str(hosts)), print)


@pytest.mark.parametrize("way", ["ssh", "unix"])
def test_a_stopped_engine(rig, way):
    hosts = rig.hosts(2, way=way)
    rig.stop_engine(N1)
    code, found = doctor(hosts)
    assert code == 2
    assert "listens" in found[N1]["sentence"] or "socket" in found[N1]["sentence"]
    assert found["n2 engine"]["level"] == "ok"


def test_an_engine_that_dies_between_survey_and_check_is_named(rig, nodes):
    found = nodes(3)
    rig.kill_engine(N1)
    said = explain(check_pairs(found, [end_of(one, None) for one in found]))
    # The survey's open connection may break before the tunnel reports that nobody listens at its end.
    assert said.startswith(("n1: no engine listens at ", "n1: its engine closed the connection ")), said


def test_clocks_ten_seconds_apart(rig, tmp_path, here):
    with tempfile.TemporaryDirectory() as folder:
        near = Path(folder) / "engine.sock"
        hosts = tmp_path / "hosts.yaml"
        one, two = rig.nodes[:2]
        hosts.write_text(
            f"hosts:\n  - {{name: n1, engine: '{one.engine('unix')}'}}\n  - {{name: n2, engine: 'unix://{near}'}}\n"
        )
        with shifted_clock(two.socket, near, by_s=-10):
            code, found = doctor(hosts)
            with pytest.raises(RequestError, match=r"^n2: its clock is (9\.9|10\.0)\d\d s behind this machine's"):
                survey(load_hosts(str(hosts)), print)
    assert code == 2
    assert "its clock is" in found[N2]["sentence"]
    assert N1 not in found


def test_missing_hardware_that_the_hosts_file_claims(rig, here):
    hosts = rig.hosts(1)
    text = hosts.read_text().replace("eth0", "eth7")
    wrong = hosts.with_name("wrong.yaml")
    wrong.write_text(text)
    try:
        with pytest.raises(RequestError, match=r"^n1: the hosts file names eth7 for ethernet, which it lacks"):
            survey(load_hosts(str(wrong)), print)
    finally:
        wrong.unlink()


def test_a_missing_image_is_copied_to_the_node(nodes, here):
    found = nodes(2)
    reference = base_image().reference
    clients = [seen.docker.client for seen in found]
    clients[1].images.remove(reference, force=True)
    said = []
    ids = supply_image(
        reference, source=here, machine="here", nodes=[seen.connection for seen in found], report=said.append
    )
    assert said[0].startswith("n2: loading ")
    assert {client.images.get(reference).id for client in clients} == set(ids.values())


def test_another_image_with_the_same_name_is_replaced_and_removed(nodes, here, tiny_image):
    (seen,) = nodes(1)
    client, reference = seen.docker.client, base_image().reference
    client.images.remove(reference, force=True)
    old = client.images.get(tiny_image(client))
    old.tag(*reference.split(":"))
    client.images.remove("tiny:test", noprune=True)
    supply_image(reference, source=here, machine="here", nodes=[seen.connection], report=print)
    assert client.images.get(reference).id != old.id
    assert old.id not in {image.id for image in client.images.list(all=True)}


def test_programs_arrive_complete_and_readable_by_the_jobs_user(nodes):
    (seen,) = nodes(1)
    client, workloads = seen.docker.client, ROOT / "workloads"
    volumes.fill(
        client,
        name="dlscale-test-programs",
        image=base_image().reference,
        files=programs(workloads),
        labels={LABEL_RUN: "test"},
    )
    digest = Path(sys.modules[tree_sha256.__module__].__file__).read_text()
    code = digest[digest.index("def tree_sha256") : digest.index("def _online_cpus")]
    program = f"import hashlib\nfrom pathlib import Path\n{code}\nprint(tree_sha256(Path('/dlscale/workloads')))"
    try:
        said = client.containers.run(
            base_image().reference,
            ["python3", "-c", program],
            user="10001:10001",
            read_only=True,
            network_mode="none",
            remove=True,
            volumes={"dlscale-test-programs": {"bind": "/dlscale/workloads", "mode": "ro"}},
        )
        assert said.decode().strip() == tree_sha256(workloads)
        assert left(client) == ["dlscale-test-programs"]
    finally:
        volumes.remove(client, "dlscale-test-programs")
    assert left(client) == []


def test_clean_reaches_every_host(rig, nodes):
    hosts = rig.hosts(2)
    found = nodes(2)
    for seen in found:
        client = seen.docker.client
        client.volumes.create("dlscale-old-programs", labels={LABEL_RUN: "old"})
        client.containers.create(base_image().reference, "true", name="dlscale-old-worker0", labels={LABEL_RUN: "old"})
    done = dlscale("clean", "--hosts", hosts)
    assert done.code == 0, done.stderr
    # The nodes share this machine's processes, so both report jobs of other tests that they leave alone.
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("removed ")) == sorted(
        f"removed {name} on {node}" for node in (N1, N2) for name in ("dlscale-old-worker0", "dlscale-old-programs")
    )
    assert [left(seen.docker.client) for seen in found] == [[], []]
    rig.stop_ssh(N1)
    found[1].connection.client.volumes.create("dlscale-old-programs", labels={LABEL_RUN: "old"})
    done = dlscale("clean", "--hosts", hosts)
    assert done.code == 2
    assert "removed dlscale-old-programs on n2" in done.stdout
    assert "n1: no sshd listens there" in done.stderr


def ssh_children(pid):
    """Process ids of all ssh descendants of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text()
            except OSError:
                continue
            name = fields.partition("(")[2].rpartition(")")[0]
            parent = int(fields.rpartition(")")[2].split()[1])
            if parent == pid:
                found += [int(entry.name)] * (name == "ssh") + ssh_children(int(entry.name))
    return found


def test_tunnels_end_with_a_killed_runner(rig):
    """Use a real ssh, whose other end holds the leases of jobs."""
    code = (
        "import sys, time; from runner.cluster.hosts.endpoint import connect; from runner.cluster.hosts.model import load_hosts;"
        "kept = [connect(host) for host in load_hosts(sys.argv[1]).hosts]; print('up', flush=True); time.sleep(600)"
    )
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-c", code, str(rig.hosts(2))]
        child = subprocess.Popen(
            argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": folder}
        )
        try:
            assert child.stdout.readline() == "up\n"
            tunnels = ssh_children(child.pid)
            assert len(tunnels) == 2
        finally:
            child.kill()
            child.communicate()
        assert wait_until(lambda: not any(map(is_running, tunnels)), 30)


def test_a_lost_connection_is_reported(rig):
    (host,) = load_hosts(str(rig.hosts(1))).hosts
    with contextlib.closing(connect(host)) as connection:
        rig.stop_ssh(N1)
        assert wait_until(lambda: connection.lost, 60)
        assert connection.sentence(RuntimeError("boom")).startswith("n1: the connection to it is lost (")
