"""Prevents: nodes that are really one host (one network, one engine, one set of images); a link without the rate limit that it should have; a
fault that breaks more than intended.
"""

import contextlib
import json
import socket
import subprocess
import sys

import docker
import pytest
from testbed.lease import leased
from waiting import is_running, wait_until

from runner.cluster.hosts.model import load_hosts
from runner.core.errors import RequestError
from runner.core.wire import Link
from runner.engines.process import open_tunnel


def inside(node, *argv):
    """Run a program in a node's network."""
    return subprocess.run(
        ["nsenter", f"--net=/run/netns/{node.namespace}", *argv], capture_output=True, text=True, timeout=30
    )


def reaches(node, address, port):
    """Whether a node can open a TCP connection."""
    code = f"import socket; socket.create_connection(({address!r}, {port}), timeout=2)"
    return inside(node, sys.executable, "-c", code).returncode == 0


def qdiscs(namespace, device):
    said = subprocess.run(["tc", "-n", namespace, "-json", "-s", "qdisc", "show", "dev", device], capture_output=True)
    return json.loads(said.stdout)


def ssh(rig, node, *command):
    argv = [
        "/usr/bin/ssh",
        "-F",
        str(rig.layout.run / "ssh_config"),
        "-o",
        "ConnectTimeout=3",
        f"root@{node.address}",
        *command,
    ]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def tunnel(rig, node, directory):
    """Yield a client of a node's engine through an ssh tunnel, like an ssh:// endpoint."""
    local = directory / f"{node.name}.sock"
    forward = ["-nNT", "-o", "ExitOnForwardFailure=yes", "-L", f"{local}:{node.socket}"]
    argv = ["/usr/bin/ssh", "-F", str(rig.layout.run / "ssh_config"), *forward, f"root@{node.address}"]
    with contextlib.closing(open_tunnel(argv, socket=local, timeout_s=10)):
        client = docker.DockerClient(base_url=f"unix://{local}", timeout=10)
        yield client
        client.close()


def test_nodes_reach_each_other_and_the_machine(rig):
    for node in rig.nodes:
        for other in rig.nodes:
            assert reaches(node, other.address, 22), (node.name, other.name)
    with socket.create_server((rig.layout.machine_address, 0)) as server:
        assert all(reaches(node, rig.layout.machine_address, server.getsockname()[1]) for node in rig.nodes)


def test_nodes_share_no_port_interface_or_image(rig, engine, tiny_image):
    """A port taken on one node is free on the next; an image of one engine is unknown to the next."""
    first, second = rig.nodes[:2]
    tiny_image(engine(first))
    with pytest.raises(docker.errors.ImageNotFound):
        engine(second).images.get("tiny:test")
    roots = {engine(node).info()["DockerRootDir"] for node in rig.nodes}
    assert len(roots) == len(rig.nodes)
    interfaces = inside(first, "ls", "/proc/sys/net/ipv4/conf").stdout.split()
    assert sorted(interfaces) == ["all", "default", "eth0", "eth1", "lo"]


def test_every_engine_answers_at_its_socket_and_over_ssh(rig, engine, tmp_path):
    for node in rig.nodes:
        at_socket = engine(node).info()
        assert at_socket["Name"] == node.address
        with tunnel(rig, node, tmp_path) as client:
            assert client.info()["ID"] == at_socket["ID"]
        told = ssh(rig, node, "echo $DOCKER_HOST; hostname")
        assert told.stdout.split() == [node.engine("unix"), node.address], told.stderr


def test_only_the_rigs_key_opens_its_ssh_servers(rig, tmp_path):
    other = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    config = tmp_path / "config"
    config.write_text((rig.layout.run / "ssh_config").read_text().replace(str(rig.layout.run / "key"), str(other)))
    refused = subprocess.run(
        ["/usr/bin/ssh", "-F", str(config), f"root@{rig.nodes[0].address}", "true"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert refused.returncode == 255
    assert "Permission denied (publickey)" in refused.stderr


def test_the_hosts_files_list_the_nodes(rig):
    hosts = load_hosts(str(rig.hosts())).hosts
    assert [host.name for host in hosts] == ["n1", "n2", "n3", "n4"]
    address = rig.nodes[1].address
    socket_path = f"/run/dlscale-rig/{rig.layout.number}/n2/docker.sock"
    assert hosts[1].endpoint.url == f"ssh://root@{address}:22{socket_path}"
    assert hosts[1].endpoint.ssh_config == rig.layout.run / "ssh_config"
    assert hosts[1].interfaces["ethernet"].address == address
    assert [host.endpoint.url for host in load_hosts(str(rig.hosts(2, way="unix"))).hosts][1] == f"unix://{socket_path}"


def test_a_container_on_the_hosts_network_is_on_its_node(rig, engine, tiny_image):
    """It has its node's network, its host name, by which libraries tell hosts apart, and its share of the machine's cores."""
    for node in rig.nodes[:2]:
        image = tiny_image(engine(node))
        files = ["/proc/net/fib_trie", "/etc/hostname", "/proc/self/status"]
        told = engine(node).containers.run(image, ["/bin/cat", *files], network_mode="host", remove=True).decode()
        assert f"|-- {node.address}\n" in told
        assert f"\n{node.address}\n" in told
        cores = next(line.split()[1] for line in told.splitlines() if line.startswith("Cpus_allowed_list:"))
        assert cores in (",".join(map(str, node.cores)), f"{node.cores[0]}-{node.cores[-1]}")


def test_a_rate_limits_both_directions_of_every_link_and_is_declared(rig):
    two = rig.hosts(2)
    rig.shape(Link(rate_mbit=100.0, emulated=True))
    for node in rig.nodes:
        for namespace, device in ((node.namespace, "eth0"), (rig.layout.switch, f"{node.name}eth0")):
            (held,) = qdiscs(namespace, device)
            assert held["kind"] == "tbf"
            assert held["options"]["rate"] == 12_500_000  # bytes per second
    sent = qdiscs(rig.nodes[0].namespace, "eth0")[0]["bytes"]
    assert reaches(rig.nodes[0], rig.nodes[1].address, 22)
    assert qdiscs(rig.nodes[0].namespace, "eth0")[0]["bytes"] > sent
    for path in (rig.hosts(), two, rig.hosts(way="unix")):
        assert load_hosts(str(path)).link == Link(rate_mbit=100.0, emulated=True)
    rig.shape(Link(rate_mbit=1000.0, emulated=True))
    assert qdiscs(rig.nodes[3].namespace, "eth0")[0]["options"]["rate"] == 125_000_000
    rig.shape(None)
    assert "tbf" not in {held["kind"] for held in qdiscs(rig.nodes[0].namespace, "eth0")}
    assert load_hosts(str(two)).link is None


def test_a_delay_is_applied_or_refused_in_one_sentence(rig):
    probe = ["tc", "-n", rig.layout.switch, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    if subprocess.run(probe, capture_output=True).returncode:
        with pytest.raises(RequestError, match=r"^DELAY=1ms can't be had, since .* no netem .*; leave DELAY out"):
            rig.shape(Link(delay_ms=1.0, emulated=True))
    else:
        rig.shape(Link(rate_mbit=100.0, delay_ms=1.0, emulated=True))
        assert [held["kind"] for held in qdiscs(rig.nodes[0].namespace, "eth0")] == ["netem", "tbf"]
        assert [held["kind"] for held in qdiscs(rig.layout.switch, "n1eth0")] == ["tbf"]


def test_a_cut_link_isolates_one_node_until_it_is_repaired(rig):
    first, second, third = rig.nodes[:3]
    rig.cut_link("n1")
    assert not reaches(second, first.address, 22)
    assert reaches(second, third.address, 22)
    assert reaches(second, first.addresses["eth1"], 22) is False  # sshd listens only on eth0's address
    state = json.loads(
        subprocess.run(["ip", "-n", first.namespace, "-json", "link", "show", "eth0"], capture_output=True).stdout
    )
    assert state[0]["operstate"] == "DOWN"
    rig.restore_link("n1")
    assert wait_until(lambda: reaches(second, first.address, 22), 20)


def test_the_second_interface_is_a_separate_path(rig):
    first, second = rig.nodes[:2]
    rig.cut_link("n1", "eth0")
    code = f"import socket; socket.create_server(({first.addresses['eth1']!r}, 5000)).accept()"
    server = subprocess.Popen(["nsenter", f"--net=/run/netns/{first.namespace}", sys.executable, "-c", code])
    try:
        assert wait_until(lambda: reaches(second, first.addresses["eth1"], 5000), 10)
    finally:
        server.kill()
        server.wait()


def test_a_stopped_ssh_server_refuses_and_breaks_its_sessions(rig, tmp_path):
    node = rig.nodes[0]
    with tunnel(rig, node, tmp_path) as client:
        rig.stop_ssh("n1")
        with pytest.raises(Exception, match=r"(?i)connection|remote end"):
            client.ping()
    assert "Connection refused" in ssh(rig, node, "true").stderr
    assert ssh(rig, rig.nodes[1], "true").returncode == 0
    rig.start_ssh("n1")
    assert ssh(rig, node, "true").returncode == 0


def test_a_stopped_engine_ends_its_containers_and_can_be_restarted(rig, engine, tiny_image):
    client = engine(rig.nodes[0])
    container = client.containers.run(
        tiny_image(client), ["/bin/sleep", "1000"], network_mode="host", detach=True, stop_signal="SIGKILL"
    )
    pid = client.api.inspect_container(container.id)["State"]["Pid"]
    rig.stop_engine("n1")
    assert not rig.nodes[0].socket.exists()
    assert not is_running(pid)
    assert engine(rig.nodes[1]).ping()
    rig.start_engine("n1")
    assert client.containers.get(container.id).status == "exited"
    container.remove()


def test_a_killed_engine_leaves_its_containers_and_can_be_restarted(rig, engine, tiny_image):
    client = engine(rig.nodes[0])
    container = client.containers.run(
        tiny_image(client), ["/bin/sleep", "1000"], network_mode="host", detach=True, stop_signal="SIGKILL"
    )
    pid = client.api.inspect_container(container.id)["State"]["Pid"]
    rig.kill_engine("n1")
    with pytest.raises(Exception, match=r"(?i)connection"):
        client.ping()
    assert is_running(pid)
    rig.start_engine("n1")
    assert client.ping()
    client.containers.get(container.id).remove(force=True)


def test_a_second_interface_in_the_firsts_network(fit, tmp_path):
    with leased(nodes=2, second="same", parent=tmp_path) as rig:
        first, second = rig.nodes
        number = rig.layout.number
        assert first.addresses == {"eth0": f"10.77.{number}.11", "eth1": f"10.77.{number}.111"}
        assert f"10.77.{number}.112/24" in inside(second, "ip", "-brief", "address").stdout
