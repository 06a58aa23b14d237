"""Prevents: two nodes or rigs with the same address, name or path; a node without a core; a hosts file that HOSTS can't read, or that
omits a shaped link; an engine that shares the machine's containers; a mistake that is not reported in one sentence.
"""

import json
import os

import pytest
import typer.testing
import yaml
from hypothesis import given
from hypothesis import strategies as st
from testbed import layout, network, teardown, tools
from testbed.cli import read_link, rig
from testbed.rig import Rig, core_groups

from runner.cluster.hosts.model import Endpoint, load_hosts
from runner.core.errors import DlscaleError, RequestError
from runner.core.wire import Link


@pytest.fixture
def two(tmp_path):
    return layout.plan(number=3, nodes=2, parent=tmp_path, second="other", core_groups=[(0, 2), (1, 3)])


@pytest.mark.parametrize(
    ("second", "bridges", "address"),
    [("none", {"eth0": "br0"}, None), ("same", {"eth0": "br0", "eth1": "br0"}, "10.77.0.111")],
)
def test_a_second_interface_may_be_in_the_firsts_network(tmp_path, second, bridges, address):
    rig = layout.plan(number=0, nodes=1, parent=tmp_path, second=second)
    assert (rig.bridges, rig.networks) == (bridges, ("10.77.0.0/24",))
    assert rig.nodes[0].addresses.get("eth1") == address


def test_the_largest_rigs_of_all_numbers_share_no_name_address_or_path(tmp_path):
    rigs = [
        layout.plan(number=number, nodes=layout.MOST_NODES, parent=tmp_path, second=second)
        for number in (*layout.USERS, *layout.TESTS)
        for second in ("same", "other")
    ]
    for second in ("same", "other"):
        nodes = [node for rig in rigs if rig.second == second for node in rig.nodes]
        addresses = [address for node in nodes for address in node.addresses.values()]
        addresses += [rig.machine_address for rig in rigs if rig.second == second]
        assert len(set(addresses)) == len(addresses)
        assert all(0 < int(part) < 255 for address in addresses for part in address.split(".")[2:] if part != "0")
        assert len({node.namespace for node in nodes}) == len({node.socket for node in nodes}) == len(nodes)
        # The kernel's limits: IFNAMSIZ, and sun_path of a Unix socket.
        assert max(len(node.port_of(interface)) for node in nodes for interface in node.addresses) <= 15
        assert max(len(f"{node.run}/containerd.sock.ttrpc") for node in nodes) <= 107
    assert not any(
        one != other and layout.prefix(other).startswith(layout.prefix(one)) for one in range(20) for other in range(20)
    )


@pytest.mark.parametrize(
    ("groups", "nodes", "shares"),
    [
        ([(0,), (1,)], 2, [(0,), (1,)]),
        ([(0,), (1,)], 4, [(0,), (1,), (0,), (1,)]),
        ([(0,), (1,), (2,)], 2, [(0,), (1, 2)]),
        ([(0, 4), (1, 5), (2, 6), (3, 7)], 2, [(0, 1, 4, 5), (2, 3, 6, 7)]),
        ([(5,)], 1, [(5,)]),
    ],
)
def test_nodes_share_the_cores_by_hand(groups, nodes, shares):
    assert [layout.share(groups, nodes=nodes, place=place) for place in range(nodes)] == shares


@given(cores=st.integers(1, 200), nodes=st.integers(1, 64))
def test_every_node_has_a_core_and_cores_are_shared_only_if_too_few(cores, nodes):
    shares = [layout.share([(cpu,) for cpu in range(cores)], nodes=nodes, place=place) for place in range(nodes)]
    assert all(shares)
    if cores >= nodes:
        assert sorted(cpu for share in shares for cpu in share) == list(range(cores))


def test_threads_of_one_core_stay_together(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 5})
    for cpu, siblings in {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3", 5: "4-5"}.items():
        topology = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{siblings}\n")
    assert core_groups(tmp_path) == ((0, 2), (1, 3), (5,))
    assert core_groups(tmp_path / "that tells no siblings") == ((0,), (1,), (2,), (3,), (5,))


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        (None, None),
        (Link(rate_mbit=1000.0, emulated=True), {"rate": "1gbit", "emulated": True}),
        (Link(rate_mbit=100.0, delay_ms=0.2, emulated=True), {"rate": "100mbit", "delay": "200us", "emulated": True}),
        (Link(delay_ms=1.0, emulated=True), {"delay": "1ms", "emulated": True}),
    ],
)
def test_the_hosts_file_is_readable_and_names_a_shaped_link(two, tmp_path, link, expected):
    text = layout.hosts_yaml(two.nodes, way="ssh", link=link, number=3)
    assert yaml.safe_load(text).get("link") == expected
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    read = load_hosts(str(path))
    assert read.link == link
    assert [host.endpoint.url for host in read.hosts] == [node.engine("ssh") for node in two.nodes]
    assert read.hosts[0].endpoint.ssh_config == tmp_path / "ssh_config"
    assert read.hosts[0].interfaces["ethernet"].name == "eth0"
    assert read.hosts[0].cpus == 2
    path.write_text(layout.hosts_yaml(two.nodes[:1], way="unix", link=link, number=3))
    assert load_hosts(str(path)).hosts[0].endpoint == Endpoint(url="unix:///run/dlscale-rig/3/n1/docker.sock")


def test_a_nodes_engine_shares_only_the_machines_gpus_and_registries(two):
    machine = {
        "data-root": "/var/lib/docker",
        "hosts": ["unix:///var/run/docker.sock"],
        "features": {"cdi": True},
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},
        "live-restore": True,
    }
    settings = json.loads(layout.engine_config(two.nodes[0], machine=machine))
    assert settings["features"] == {"cdi": True}
    assert settings["runtimes"] == {"nvidia": {"path": "nvidia-container-runtime"}}
    assert settings["data-root"] == str(two.nodes[0].data / "docker")
    assert settings["hosts"] == ["unix:///run/dlscale-rig/3/n1/docker.sock"]
    assert settings["containerd"] == "/run/dlscale-rig/3/n1/containerd.sock"
    assert settings["cgroup-parent"] == "/dlrig3-n1"
    assert "live-restore" not in settings
    assert 'address = "/run/dlscale-rig/3/n1/containerd.sock"\n' in layout.containerd_config(two.nodes[0])


@pytest.mark.parametrize(
    ("destination", "taken"),
    [
        ("default", None),
        ("10.0.0.0/8", None),  # the machine's own wide network: ours is an unused part of it
        ("10.77.3.0/24", "10.77.3.0/24"),
        ("10.77.3.128/25", "10.77.3.0/24"),
        ("10.78.3.7", "10.78.3.0/24"),
        ("10.77.4.0/24", None),
    ],
)
def test_a_network_that_a_route_leads_into_is_taken(two, destination, taken):
    assert network.overlapping([{"dst": destination, "dev": "eth0"}], two.networks) == taken


def test_rate_and_delay_are_read_and_mistakes_named():
    assert read_link(None, None) is None
    assert read_link("1gbit", "") == Link(rate_mbit=1000.0, emulated=True)
    assert read_link("", "0.2ms") == Link(delay_ms=0.2, emulated=True)
    with pytest.raises(RequestError, match=r"^RATE=fast: .* is not a rate; write for example 1gbit"):
        read_link("fast", "1ms")
    with pytest.raises(RequestError, match=r"^DELAY=1: .* is not a delay; write for example 0\.2ms"):
        read_link("1gbit", "1")


def refusal(*words):
    """The error sentence of `make rig`."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(rig)
    result = typer.testing.CliRunner().invoke(app, words)
    assert isinstance(result.exception, DlscaleError)
    assert result.exception.exit_code == 2
    assert result.stdout == ""
    return str(result.exception)


def test_mistakes_on_the_command_line_are_one_sentence(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert refusal("--nodes=two").startswith("NODES=two is not a whole number")
    assert refusal("--nodes=").startswith("NODES is empty; type for example NODES=2")
    assert refusal("--nodes=2", "--number=10") == "NUMBER=10 asked, rigs are numbered 0 to 9"
    assert refusal("--nodes=2", "--rate=1gbps").startswith("RATE=1gbps: ")
    assert (
        refusal("--nodes=2") == "a rig is made of network namespaces and engines, which need root; type it after sudo"
    )


def test_missing_programs_are_named_with_their_debian_packages(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tools, "tool", lambda name: name if name in ("sshd", "tc", "ip") else f"/usr/sbin/{name}")
    with pytest.raises(RequestError, match=r"needs ip, sshd, tc, .* apt-get install iproute2 openssh-server"):
        tools.refuse_unfit()


def test_remains_are_named_in_a_short_sentence():
    left = teardown.Remains(
        processes=(teardown.Process(pid=7, name="dockerd", arguments="dockerd"),),
        mounts=("/run/dlscale-rig/0/n1/uts",),
        namespaces=("dlrig0-n1", "dlrig0-n2"),
        uplink="dlrig0",
    )
    assert left.summary == "process 7 (dockerd), mount /run/dlscale-rig/0/n1/uts, namespace dlrig0-n1, 2 more"
    assert not teardown.Remains()


def test_too_many_nodes_are_refused(monkeypatch):
    monkeypatch.setattr("testbed.rig.refuse_unfit", lambda: None)
    with pytest.raises(RequestError, match="NODES=65 asked of the rig, which has 1 to 64 nodes"):
        Rig.up(nodes=65)


def test_a_rig_whose_data_path_is_too_long_is_still_found(tmp_path, monkeypatch):
    """`rig --dir` with a name that is too long left its directory of sockets behind."""
    monkeypatch.setattr(layout, "RUN", tmp_path)
    here = layout.run_directory(7)
    here.mkdir()
    (here / "data").symlink_to(layout.data_directory(7, tmp_path / ("x" * 300)))
    assert teardown.find(7).directories == (here,)
