"""The doctor's findings on hosts.

Prevents: an unusable host among green lines; nodes with different drivers or MTUs that look alike; an untested wire called good; the next
step lost between the layers.
"""

from types import SimpleNamespace

import pytest
from examples import gpu_node, node

from runner.cluster.doctor import common_findings, host_findings, pair_findings, refused
from runner.cluster.hosts.connectivity import Unreachable
from runner.cluster.hosts.model import Endpoint, Host, Hosts, Interface
from runner.cluster.hosts.survey import Clock
from runner.cluster.machine.nvml import PairAnswer
from runner.commands import doctor
from runner.core.errors import RequestError
from runner.core.node import Hca, Nic
from runner.engines.base import EngineFacts


def look(name="n1", **changes):
    the_host = Host(name=name, endpoint=Endpoint(url=f"ssh://{name}"), interfaces={"ethernet": Interface(name="eth0")})
    values = {
        "host": the_host,
        "node": node(name=name, nics=(nic("eth0"), nic("br0"))),
        "engine": EngineFacts(name="docker", available=True, version="28.2.2"),
        "clock": Clock(0.002, 0.003),
        "health": (),
        "nvidia_pci": (),
        "pairs": (),
        "connection": SimpleNamespace(place="ssh://n1"),
    }
    return SimpleNamespace(**(values | changes))


def nic(name, **changes):
    values = {"name": name, "state": "up", "speed_mbit": None, "mtu": 1500, "kind": "virtual", "address": "10.1.0.1"}
    return Nic.model_validate(values | changes)


def by_subject(findings):
    return {finding.subject: finding for finding in findings}


def judged(images=None, refusals=(), **changes):
    return by_subject(host_findings(look(**changes), images=images or {}, refusals=refusals))


def test_hosts_of_which_none_answers_are_all_named(monkeypatch):
    """With nobody to ask further, the doctor died of an empty pool of threads."""

    def refuse(host):
        raise RequestError(f"{host.name}: no sshd listens there")

    monkeypatch.setattr(doctor, "connect", refuse)
    monkeypatch.setattr(doctor, "_images_here", dict)
    hosts = Hosts(
        hosts=tuple(Host(name=name, endpoint=Endpoint(url=f"ssh://{name}")) for name in ("n1", "n2")), source=""
    )
    found = doctor.findings_of(hosts, wire=None, say=lambda _: None)
    assert [(one.level, one.subject[:2]) for one in found] == [("bad", "n1"), ("bad", "n2")]


def test_a_healthy_host_has_only_ok_findings():
    found = judged()
    assert {finding.level for finding in found.values()} == {"ok"}
    assert found["n1 engine"].sentence == "answers at ssh://n1, version 28.2.2"
    assert found["n1 clock"].sentence == "0.002 s ahead of this machine's (± 0.003 s)"
    assert found["n1 interface eth0"].sentence == "virtual, up, speed unknown to its driver, MTU 1500, 10.1.0.1"
    assert "n1 interface br0" not in found
    assert judged(clock=Clock(0.5, 0.01))["n1 clock"].level == "warn"
    podman = EngineFacts(name="docker", available=True, version="4.3.1", podman="Podman 4.3.1")
    named = judged(engine=podman)["n1 engine"]
    assert (named.level, "Podman 4.3.1" in named.sentence, bool(named.next_step)) == ("warn", True, True)


def test_a_refusal_is_bad_and_keeps_its_next_step():
    found = judged(refusals=("n1: its clock is wrong; run chrony",))
    said = (found["n1"].level, found["n1"].sentence, found["n1"].next_step)
    assert said == ("bad", "its clock is wrong", "run chrony")
    finding = refused("n2", "n2: no sshd listens there (refused); start it")
    assert (finding.level, finding.subject, finding.next_step) == ("bad", "n2", "start it")


def test_gpus_adapters_and_pairs():
    machine = gpu_node(
        2, name="n1", hcas=(Hca(name="mlx5_0", port=1, state="DOWN", link_layer="InfiniBand", rate="100"),)
    )
    pair = PairAnswer(first=0, second=1, read=0, nvlink=0, ancestor=50)
    engine = EngineFacts(name="docker", available=True, version="26", gpu_request="cdi")
    found = judged(node=machine, pairs=(pair,), engine=engine)
    assert found["n1 GPU 1"].level == "ok"
    assert found["n1 driver"].sentence == "NVIDIA 580.159.03, CUDA up to 13.0"
    assert found["n1 GPU pairs"].sentence == "NVLink: 0-1"
    assert found["n1 adapter mlx5_0 port 1"].level == "warn"
    assert found["n1 engine"].sentence.endswith("provides GPUs by CDI device names")


def test_images_are_grouped_by_state():
    images = {f"m{index}": "same" for index in range(5)} | {"caffe 1.0": "missing", "mxnet 1.9.1": "other"}
    said = [finding.sentence for finding in host_findings(look(), images=images) if finding.subject == "n1 images"]
    assert said == [
        "m0, m1, m2 and 2 more: as here",
        "caffe 1.0: missing, loaded by the next bench that needs it",
        "mxnet 1.9.1: different, replaced by the next bench that needs it",
    ]


def test_differing_drivers_gpus_and_mtus_are_warnings():
    one, two = look(), look("n2", node=gpu_node(2, name="n2", nics=(nic("eth0", mtu=9000),)))
    found = by_subject(common_findings([one, two]))
    assert found["drivers"].sentence == "differ (n1: none, n2: 580.159.03)"
    assert found["GPUs"].sentence == "differ (n1: none, n2: NVIDIA H200)"
    assert found["MTU of ethernet"].sentence == "differ (n1: 1500, n2: 9000)"
    assert {finding.level for finding in found.values()} == {"warn"}
    assert list(common_findings([look(), look("n2")])) == []


def test_pair_findings_name_the_failed_pair_or_all_hosts():
    failed = Unreachable(
        source="n1", target="n2", iface="eth0", source_state="up", target_state="down", reason="no answer"
    )
    (bad,) = pair_findings((failed,), {"n1": "eth0", "n2": "eth0"})
    assert (bad.level, bad.subject, bad.sentence) == ("bad", "n1 → n2", "no answer (n2's interface is down)")
    (well,) = pair_findings((), dict.fromkeys(("n1", "n2", "n3"), "eth0"))
    assert (well.level, well.sentence) == ("ok", "all 3 hosts reach each other on eth0")


@pytest.mark.parametrize("interfaces", [{}, {"n1": "eth0"}])
def test_a_single_host_has_no_pair_findings(interfaces):
    assert list(pair_findings((), interfaces)) == []
