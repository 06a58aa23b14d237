"""HOSTS in its three forms.

Prevents: nodes in another order than the list's; a host that counts twice; a misspelt key that is silently ignored; an engine that
anybody on the network may use; an ssh option smuggled in as a host name; a plan for hardware that nobody claimed; a job that is sent over a missing
interface or adapter; more ranks than devices on a node; an interface's secondary address that is missed.
"""

from pathlib import Path

import pytest
from examples import gpu_node, node
from hypothesis import given
from hypothesis import strategies as st

from runner.cluster.hosts.model import Endpoint, GpuClaim, Host, Interface, declared_node, load_hosts, read_url, unmet
from runner.core.errors import RequestError
from runner.core.node import Hca, Nic
from runner.core.wire import Link

ROOT = Path(__file__).parents[3]

WHOLE = """\
ssh_config: rig/ssh_config
link: {rate: 1gbit, delay: 0.2ms, emulated: true}
hosts:
  - name: n2
    engine: ssh://bench@n2.example:2222/run/n2/docker.sock
    slots: 4
    cpus: 28
    memory_mib: 262144
    gpus: {count: 4, model: Tesla P100-SXM2-16GB, compute_capability: "6.0", memory_mib: 16280, nvlinks: 4}
    driver: "535.104"
    interfaces: {ethernet: {name: eno1, address: 10.1.0.2}, infiniband: ib0}
    hcas: [mlx5_0, "mlx5_1:2"]
  - name: n1
    engine: tcp://n1.example:2376
    tls: {ca: ca.pem, cert: cert.pem, key: /keys/key.pem}
    gpus: 2
  - name: n3
    engine: unix:///run/n3/docker.sock
  - name: N4
"""


def write(tmp_path, text, name="hosts.yaml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(text):
    with pytest.raises(RequestError) as caught:
        load_hosts(str(text))
    return str(caught.value)


def test_a_complete_file(tmp_path):
    hosts = load_hosts(str(write(tmp_path, WHOLE)))
    n2, n1, n3, n4 = hosts.hosts
    assert hosts.link == Link(rate_mbit=1000, delay_ms=0.2, emulated=True)
    assert [host.name for host in hosts.hosts] == ["n2", "n1", "n3", "N4"]
    assert n2.endpoint == Endpoint(
        url="ssh://bench@n2.example:2222/run/n2/docker.sock", ssh_config=tmp_path / "rig/ssh_config"
    )
    assert (n2.slots, n2.cpus, n2.memory_mib, n2.driver) == (4, 28, 262144, "535.104")
    assert n2.gpus == GpuClaim(
        count=4, model="Tesla P100-SXM2-16GB", compute_capability="6.0", memory_mib=16280, nvlinks=4
    )
    assert n2.interfaces == {
        "ethernet": Interface(name="eno1", address="10.1.0.2"),
        "infiniband": Interface(name="ib0", address=None),
    }
    assert n2.hcas == ("mlx5_0", "mlx5_1:2")
    assert (n1.endpoint.tls.ca, n1.endpoint.tls.key) == (tmp_path / "ca.pem", Path("/keys/key.pem"))
    assert n1.endpoint.ssh_config is None
    assert n1.gpus == GpuClaim(count=2)
    assert n3.endpoint == Endpoint(url="unix:///run/n3/docker.sock")
    assert n4.endpoint == Endpoint(url="ssh://N4", ssh_config=tmp_path / "rig/ssh_config")


def test_urls_are_parsed():
    whole = read_url("ssh://Bench@Node-1:2222/run/docker.sock")
    assert (whole.scheme, whole.user, whole.host, whole.port) == ("ssh", "Bench", "Node-1", 2222)
    assert whole.socket == "/run/docker.sock"
    bare = read_url("ssh://n1")
    assert (bare.user, bare.port, bare.socket) == (None, None, "/var/run/docker.sock")
    assert read_url("ssh://n1/").socket == "/var/run/docker.sock"
    assert read_url("tcp://10.0.0.1:2376").port == 2376
    assert read_url("ssh://root@[fe80::1]:22").host == "[fe80::1]"


@pytest.mark.parametrize(
    "url",
    [
        *(
            "n1",
            "http://n1:2375",
            "ssh://",
            "ssh://-oProxyCommand=id",
            "ssh://-l@n1",
            "ssh://n1:99999",
            "ssh://u:pw@n1",
        ),
        *("unix://", "unix://run/docker.sock", "tcp://n1", "tcp://n1:2376/v1", "ssh://n1?x=1", "ssh://n1:0"),
    ],
)
def test_an_invalid_engine_is_refused_with_the_valid_forms(tmp_path, url):
    said = refusal(write(tmp_path, f"hosts:\n  - name: a\n    engine: {url!r}\n"))
    assert ":3: hosts[0].engine" in said
    assert "ssh://user@host, unix:///path/docker.sock or tcp://host:2376" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hosts: []\n", (":1: hosts is []", "at least 1 item")),
        ("hosts:\n  - nam: a\n", (":2: unknown key 'nam' in hosts[0]", "'name'")),
        ("hosts:\n  - name: a\n  - name: a b\n", (":3: hosts[1].name is 'a b'", "letters, digits")),
        ("hosts:\n  - name: -oX\n", (":2: hosts[0].name is '-oX'",)),
        ("hosts:\n  - name: a\n  - name: b\n  - name: a\n", ("hosts[0] and hosts[2] are both named 'a'",)),
        ("hosts:\n  - name: a\n    slots: 0\n", (":3: hosts[0].slots is 0",)),
        ("hosts:\n  - name: a\n    slots: 4097\n", (":3: hosts[0].slots is 4097", "less than or equal to 4096")),
        ("hosts:\n  - name: a\n    gpus: 999999999\n", (":3: hosts[0].gpus is 999999999",)),
        ("hosts:\n  - name: a\n    slots: four\n", (":3: hosts[0].slots is 'four'",)),
        ("hosts:\n  - name: a\n    gpus: {number: 4}\n", (":3: unknown key 'number' in hosts[0].gpus",)),
        ("hosts:\n  - name: a\n    interfaces: {wifi: wlan0}\n", (":3: hosts[0].interfaces.wifi", "'ethernet'")),
        ("hosts:\n  - name: a\n    interfaces: {roce: {name: e0, address: 10.0.0.256}}\n", (":3:", "four numbers")),
        ("hosts:\n  - name: a\n    interfaces: {roce: an-interface-too-long}\n", (":3:", "1 to 15 characters")),
        ("hosts:\n  - name: a\n    hcas: [mlx5_0:0]\n", (":3: hosts[0].hcas[0]", "mlx5_0:1")),
        ("link: {rate: 1gbps}\nhosts: [{name: a}]\n", (":1: link.rate is '1gbps'", "1gbit or 100mbit")),
        ("link: {rate: 1000}\nhosts: [{name: a}]\n", (":1: link.rate is 1000", "1gbit or 100mbit")),
        ("link: {rat: 1gbit}\nhosts: [{name: a}]\n", (":1: unknown key 'rat' in link", "'rate'")),
        ("hosts:\n  - name: a\n    engine: tcp://a:2375\n", (":2: hosts[0]", "add tls, or write ssh://")),
        (
            "hosts:\n  - name: a\n    tls: {ca: c, cert: c, key: k}\n",
            (":2: hosts[0]", "tls is for tcp:// engines, and this one is ssh://"),
        ),
        ("hosts:\n  - name: a\n    name: b\n", (":3: is not valid YAML (key 'name' is already on line 2)",)),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, text, words):
    path = write(tmp_path, text)
    said = refusal(path)
    assert said.startswith(str(path))
    assert "\n" not in said
    for word in words:
        assert word in said


def test_this_machines_own_engine_may_lack_tls(tmp_path):
    path = write(tmp_path, "hosts:\n  - name: a\n    engine: tcp://127.0.0.1:2375\n")
    assert load_hosts(str(path)).hosts[0].endpoint.tls is None


@pytest.mark.parametrize(("text", "needed"), [("hello world", "`hosts:` with a list"), ("hosts: [n1]", "`name:`")])
def test_a_file_of_another_shape_is_refused_with_the_keys_that_it_needs(tmp_path, text, needed):
    """The error named a private type."""
    with pytest.raises(RequestError, match=f"expected {needed}; see examples/c4130x4.yaml$"):
        load_hosts(str(write(tmp_path, text)))


@pytest.mark.parametrize("name", ["absent.yaml", "some/hostfile"])
def test_a_missing_file_is_reported(tmp_path, name):
    assert f"HOSTS={tmp_path / name}: no such file" in refusal(tmp_path / name)


def test_a_list_on_the_command_line():
    hosts = load_hosts("b:4, a ,bench@10.0.0.7:2,localhost:1")
    assert [(host.name, host.slots, host.endpoint.url) for host in hosts.hosts] == [
        ("b", 4, "ssh://b"),
        ("a", None, "ssh://a"),
        ("10.0.0.7", 2, "ssh://bench@10.0.0.7"),
        ("localhost", 1, "unix:///var/run/docker.sock"),
    ]
    assert hosts.source == "b:4, a ,bench@10.0.0.7:2,localhost:1"


def test_an_open_mpi_hostfile(tmp_path):
    text = "# the rack\n\nn2 slots=4   # the good one\nbench@n1 slots = 2 max_slots=4\nn3\n"
    hosts = load_hosts(str(write(tmp_path, text, "hostfile")))
    assert [(host.name, host.slots, host.endpoint.url) for host in hosts.hosts] == [
        ("n2", 4, "ssh://n2"),
        ("n1", 2, "ssh://bench@n1"),
        ("n3", None, "ssh://n3"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a:4,,b:4", "'' is not a host"),
        ("a:4,a:2", "a is listed twice"),
        ("a:0", "slots of a are '0'"),
        ("a:x", "slots of a are 'x'"),
        ("a:4097", "slots of a=4097 is too large; the maximum is 4096"),
        ("a:" + "9" * 5000, "is too large"),
        ("a:", "slots of a are ''"),
        ("-oX:4", "'-oX' is not a host name"),
        ("-x@a:4", "'-x' is not a user name"),
        # The rest are files.
        ("# nobody\n", ": lists no host"),
        ("a slots=4\nb slots=x\n", ":2: slots of b are 'x'"),
        ("a slots=4\na slots=4\n", ":2: a is listed twice"),
        ("a slot=4\n", ":1: unknown setting 'slot=4'"),
        ("a:4\n", ":1: 'a:4' is not a host name"),
        ("^a\n", ":1: '^a' is not a host name"),
    ],
)
def test_mistakes_in_a_list_or_hostfile(tmp_path, text, words):
    place = str(write(tmp_path, text, "hostfile")) if "\n" in text else text
    said = refusal(place)
    assert said.removeprefix("HOSTS=").startswith(place)
    assert words in said


@given(st.text(min_size=1, max_size=30))
def test_any_text_is_either_hosts_or_one_sentence(text):
    try:
        hosts = load_hosts(text)
    except RequestError as error:
        assert "; " in str(error)
    else:
        assert len({host.name for host in hosts.hosts}) == len(hosts.hosts)


def test_a_declared_node_has_what_its_list_claims(tmp_path):
    host = load_hosts(str(write(tmp_path, WHOLE))).hosts[0]
    node = declared_node(host)
    assert node.name == "n2"
    assert node.cores == tuple(range(28))
    assert [gpu.index for gpu in node.gpus] == [0, 1, 2, 3]
    assert len({gpu.uuid for gpu in node.gpus}) == 4
    first, nics, hcas = node.gpus[0], node.nics, node.hcas
    assert (first.name, first.compute_capability, first.nvlinks) == ("Tesla P100-SXM2-16GB", "6.0", 4)
    assert [(n.name, n.kind, n.address) for n in nics] == [
        ("eno1", "ethernet", "10.1.0.2"),
        ("ib0", "infiniband", None),
    ]
    assert [(h.name, h.port, h.link_layer) for h in hcas] == [("mlx5_0", 1, "InfiniBand"), ("mlx5_1", 2, "InfiniBand")]
    assert node.ports


def test_a_plan_needs_the_cpus_and_the_gpus_compute_capability(tmp_path):
    _, n1, _, n4 = load_hosts(str(write(tmp_path, WHOLE))).hosts
    with pytest.raises(RequestError, match="N4 was not contacted, and its CPUs are not listed"):
        declared_node(n4)
    with pytest.raises(RequestError, match="claims 2 GPUs without their compute_capability"):
        declared_node(n1.model_copy(update={"cpus": 8}))


def test_the_example_is_the_papers_cluster():
    """Table 1 of the paper: four nodes, each with two 14-core processors, 256 GB and four P100 with 16 GB."""
    hosts = load_hosts(str(ROOT / "examples" / "c4130x4.yaml"))
    nodes = [declared_node(host) for host in hosts.hosts]
    assert len(nodes) == 4
    assert {len(node.gpus) for node in nodes} == {4}
    assert {len(node.cores) for node in nodes} == {28}
    assert {node.memory_mib for node in nodes} == {262144}
    assert {gpu.compute_capability for node in nodes for gpu in node.gpus} == {"6.0"}
    assert {host.interfaces["infiniband"].name for host in hosts.hosts} == {"ib0"}
    assert len({host.interfaces["infiniband"].address for host in hosts.hosts}) == 4


def test_a_list_may_be_longer_than_a_file_name():
    """Testing whether such a "path" exists raises an error of the operating system (ENAMETOOLONG)."""
    names = [f"node-{index:03}" for index in range(200)]
    assert [host.name for host in load_hosts(",".join(f"{name}:4" for name in names)).hosts] == names


NICS = (
    Nic(name="lo", state="unknown", speed_mbit=None, mtu=65536, kind="loopback", address="127.0.0.1"),
    Nic(name="eno1", state="up", speed_mbit=10000, mtu=1500, kind="ethernet", address="10.1.0.1"),
)
HCAS = (Hca(name="mlx5_0", port=1, state="ACTIVE", link_layer="InfiniBand", rate="100 Gb/sec (4X EDR)"),)


def host(**claims):
    return Host(name="n1", endpoint=Endpoint(url="ssh://n1"), **claims)


def said(the_host, the_node):
    return unmet(the_host, the_node, local=("10.1.0.1", "10.1.0.99", "127.0.0.1"))


def test_a_node_that_meets_all_claims():
    claims = host(
        slots=4,
        cpus=16,
        gpus=GpuClaim(count=4),
        interfaces={"ethernet": Interface(name="eno1", address="10.1.0.99")},
        hcas=("mlx5_0", "mlx5_0:1"),
    )
    assert said(claims, gpu_node(4, nics=NICS, hcas=HCAS)) == ()


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"interfaces": {"infiniband": Interface(name="ib0")}}, "names ib0 for infiniband, which it lacks"),
        (
            {"interfaces": {"ethernet": Interface(name="eno1", address="10.9.9.9")}},
            "gives eno1 the address 10.9.9.9, which it lacks; it has 10.1.0.1, 10.1.0.99, 127.0.0.1",
        ),
        ({"hcas": ("mlx5_1",)}, "the adapter mlx5_1, which it lacks; it has mlx5_0:1"),
        ({"hcas": ("mlx5_0:2",)}, "the adapter mlx5_0:2"),
        ({"gpus": GpuClaim(count=8)}, "claims 8 GPUs, and it has 4"),
        ({"cpus": 64}, "claims 64 cpus, and it has 16"),
        ({"slots": 17}, "gives it 17 slots, and it has 16 devices"),
    ],
)
def test_unmet_claims_are_named(claims, words):
    (sentence,) = said(host(**claims), gpu_node(4, nics=NICS, hcas=HCAS))
    assert sentence.startswith("n1: ")
    assert words in sentence


def test_the_reason_for_missing_gpus_is_reported():
    (sentence,) = said(host(gpus=GpuClaim(count=4)), node(gpu_reason="its engine hands out none"))
    assert "it has 0 (its engine hands out none)" in sentence
