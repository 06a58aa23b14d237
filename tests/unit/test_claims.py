"""What a hosts file claims against what the node is.

Prevents: a job that is sent over an interface or adapter that is not there; more ranks than devices on a node; a second address of an
interface that is taken for none.
"""

import pytest
from examples import gpu_node, node

from runner.cluster.hosts.model import Endpoint, GpuClaim, Host, Interface, unmet
from runner.core.node import Hca, Nic

NICS = (
    Nic(name="lo", state="unknown", speed_mbit=None, mtu=65536, kind="loopback", address="127.0.0.1"),
    Nic(name="eno1", state="up", speed_mbit=10000, mtu=1500, kind="ethernet", address="10.1.0.1"),
)
HCAS = (Hca(name="mlx5_0", port=1, state="ACTIVE", link_layer="InfiniBand", rate="100 Gb/sec (4X EDR)"),)


def host(**claims):
    return Host(name="n1", endpoint=Endpoint(url="ssh://n1"), **claims)


def said(the_host, the_node):
    return unmet(the_host, the_node, local=("10.1.0.1", "10.1.0.99", "127.0.0.1"))


def test_a_node_that_has_what_is_claimed():
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
        ({"interfaces": {"infiniband": Interface(name="ib0")}}, "names ib0 for infiniband, and it has no such"),
        (
            {"interfaces": {"ethernet": Interface(name="eno1", address="10.9.9.9")}},
            "gives eno1 the address 10.9.9.9, and it has no such address; it has 10.1.0.1, 10.1.0.99, 127.0.0.1",
        ),
        ({"hcas": ("mlx5_1",)}, "the adapter mlx5_1, and it has none of that name; it has mlx5_0:1"),
        ({"hcas": ("mlx5_0:2",)}, "the adapter mlx5_0:2"),
        ({"gpus": GpuClaim(count=8)}, "claims 8 GPUs, and it has 4"),
        ({"cpus": 64}, "claims 64 cpus, and it has 16"),
        ({"slots": 17}, "gives it 17 slots, and it has 16 devices"),
    ],
)
def test_what_is_not_there_is_named(claims, words):
    (sentence,) = said(host(**claims), gpu_node(4, nics=NICS, hcas=HCAS))
    assert sentence.startswith("n1: ")
    assert words in sentence


def test_why_there_are_no_gpus_is_said():
    (sentence,) = said(host(gpus=GpuClaim(count=4)), node(gpu_reason="its engine hands out none"))
    assert "it has 0 (its engine hands out none)" in sentence
