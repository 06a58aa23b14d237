"""Whether nodes reach each other, and which is at fault if not. Runs several instances of the nodes' program on the loopback.

Prevents: a late listener called unreachable; a wire called good that passes a handshake but nothing larger; a cut link blamed on the
node at the other end; a dead engine described as a firewall.
"""

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from examples import node

from runner.cluster.hosts import connectivity_probe
from runner.cluster.hosts.connectivity import NodeEnd, Unreachable, end_of, explain
from runner.cluster.hosts.model import Endpoint, Host, Interface
from runner.core.errors import RequestError
from runner.core.node import Nic

SOURCE = Path(connectivity_probe.__file__).read_text(encoding="utf-8")


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def own(name, places, **changes):
    peers = {peer: place for peer, place in places.items() if peer != name}
    address, port = places[name]
    values = {"name": name, "iface": "lo", "address": address, "port": port, "peers": peers, "seconds": 20.0}
    return values | changes


def begin(values):
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", SOURCE, json.dumps(values)], stdout=subprocess.PIPE)


def ended(process):
    said, _ = process.communicate(timeout=60)
    return json.loads(said)


def test_three_nodes_reach_each_other_although_one_is_late():
    places = {name: ("127.0.0.1", port) for name, port in zip("abc", free_ports(3), strict=True)}
    early = [begin(own(name, places)) for name in "ab"]
    time.sleep(0.7)
    answers = [ended(process) for process in (*early, begin(own("c", places)))]
    assert [answer["results"] for answer in answers] == [
        {"b": None, "c": None},
        {"a": None, "c": None},
        {"a": None, "b": None},
    ]
    assert {answer["state"] for answer in answers} == {"unknown"}  # the kernel's state of every loopback


def test_a_node_without_answers_reports_why():
    places = {name: ("127.0.0.1", port) for name, port in zip("ab", free_ports(2), strict=True)}
    answer = ended(begin(own("a", places, seconds=0.5)))
    assert answer["results"] == {"b": "Connection refused"}


def test_a_foreign_address_or_interface_is_reported():
    (port,) = free_ports(1)
    answer = ended(begin(own("a", {"a": ("192.0.2.1", port)}, iface="none0", seconds=0.5)))
    assert "can't listen at 192.0.2.1" in answer["trouble"]
    assert answer["state"] == "missing"


def test_a_handshake_alone_is_not_enough(monkeypatch):
    """With a smaller MTU on the way, connections succeed and everything after them is lost."""
    monkeypatch.setattr(connectivity_probe, "CALL_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = connectivity_probe.call_once({"name": "a", "iface": "lo", "address": "127.0.0.1"}, "127.0.0.1", port)
    assert "large packets do not arrive" in said


def test_a_caller_that_sends_only_part_does_not_count(monkeypatch):
    monkeypatch.setattr(connectivity_probe, "CALL_S", 0.3)
    here, there = socket.socketpair()
    heard = set()
    thread = threading.Thread(target=connectivity_probe.answer, args=(there, heard))
    thread.start()
    here.sendall(b"a\n" + connectivity_probe.PAYLOAD[:1000])
    thread.join()
    assert heard == set()
    here.close()


def failed(source, target, reason="No route to host", states=("up", "up"), iface="eth0"):
    here, there = states
    return Unreachable(source, target, iface=iface, source_state=here, target_state=there, reason=reason)


GONE = "n2: nothing listens there (unix:///run/n2.sock); start its engine"
NOTICED = failed("n1", "n2", "no answer", ("up", "down"))


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ((), None),
        (
            (
                NOTICED,
                *(failed("n2", other, "Network is unreachable", ("down", "up")) for other in ("n1", "n3")),
                failed("n3", "n2", "no answer", ("up", "down")),
            ),
            "n2: its interface eth0 is down, so n1, n3 can't reach it",
        ),
        # It named the interface of the node that noticed.
        (
            (NOTICED, failed("n2", "n1", "Network is unreachable", ("down", "up"), iface="ib0")),
            "n2: its interface ib0 is down, so n1 can't reach it",
        ),
        ((failed("n1", "n2", GONE, ("up", None)), failed("n2", "n1", GONE, (None, "up"))), GONE),
        (
            tuple(failed(*pair) for pair in (("n1", "n3"), ("n3", "n1"), ("n2", "n3"), ("n3", "n2"))),
            "n3: n1, n2 and it can't reach each other (No route to host)",
        ),
        (
            (failed("n1", "n2"), failed("n2", "n1")),
            "n1 → n2 over eth0: No route to host; n2 → n1 over eth0: No route to host",
        ),
    ],
    ids=["none", "down", "its own name", "engine gone", "in every pair", "nobody can say"],
)
def test_the_node_at_fault_is_named(pairs, said):
    assert explain(pairs) == said


def nic(name, kind="ethernet", address=None):
    return Nic(name=name, state="up", speed_mbit=None, mtu=1500, kind=kind, address=address)


def seen(name="n1", interfaces=None, nics=()):
    host = Host(name=name, endpoint=Endpoint(url=f"ssh://{name}"), interfaces=interfaces or {})
    return SimpleNamespace(host=host, node=node(name=name, nics=nics))


NICS = (
    nic("lo", "loopback", "127.0.0.1"),
    nic("eno1", address="10.1.0.1"),
    nic("ib0", "infiniband", "10.2.0.1"),
    nic("eno2"),
)


@pytest.mark.parametrize(
    ("interfaces", "wire", "end"),
    [
        ({}, None, NodeEnd("eno1", "10.1.0.1")),
        ({}, "ib0", NodeEnd("ib0", "10.2.0.1")),
        ({"ethernet": Interface(name="ib0")}, None, NodeEnd("ib0", "10.2.0.1")),
        ({"infiniband": Interface(name="ib0", address="10.2.0.77")}, "infiniband", NodeEnd("ib0", "10.2.0.77")),
    ],
)
def test_a_nodes_end_of_a_wire(interfaces, wire, end):
    assert end_of(seen(interfaces=interfaces, nics=NICS), wire) == end


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        ("eth7", "n1: has no interface eth7; it has lo, eno1, ib0, eno2"),
        ("infiniband", "n1: has no interface infiniband"),
        ("eno2", "n1: interface eno2 has no address"),
        (None, "n1: none of its interfaces has an address"),
    ],
)
def test_a_missing_interface_or_address_is_refused(wire, words):
    with pytest.raises(RequestError, match=words):
        end_of(seen(nics=NICS if wire else NICS[:1]), wire)
