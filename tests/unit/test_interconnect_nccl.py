"""A kind of channel that no pattern knows, and NCCL's number of an adapter taken for another's: its lines over ten years of versions.

The lines are real (tests/golden/nccl/SOURCES.md); what is expected of each was read off them by eye.
"""

import examples
import pytest

from runner.analysis.interconnect.evidence import Channels, read_channels

GOLDEN = examples.ROOT / "tests" / "golden" / "nccl"


def lines(name):
    return (GOLDEN / f"{name}.log").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("name", "via", "hcas", "layers"),
    [
        ("2.28-p2p-cumem", {"p2p"}, (), set()),
        ("2.28-shm", {"shm"}, (), set()),
        ("2.28-socket-two-host-ids", {"socket"}, (), set()),
        ("2.28-socket-no-adapter", {"socket"}, (), set()),
        ("2.28-no-interface", set(), (), set()),
        ("2.28-roce-two-adapters", {"verbs"}, ("roceP2p1s0f1:1", "rocep1s0f1:1"), {"RoCE"}),
        ("2.20-rdma-sharp-plugin", set(), (), set()),
        ("rdma-sharp-plugin-channels", {"verbs"}, (), set()),
        ("2.19-shm-and-sockets", {"shm", "socket"}, (), set()),
        ("2.18-p2p-ipc-and-sockets", {"p2p", "socket"}, (), set()),
        ("2.12-direct-pointer-and-gdrdma", {"p2p", "verbs"}, (), set()),
        ("2.1x-infiniband-gdrdma", {"verbs"}, (), set()),
        ("2.7-roce", {"verbs"}, ("mlx5_1:1",), {"RoCE"}),
        ("2.5-infiniband-adapters", {"p2p"}, (), set()),
        ("2.4-shared-memory-and-sockets", {"shm", "socket"}, (), set()),
        ("nvls", {"p2p", "nvls"}, (), set()),
        ("nvls-newer", {"p2p", "nvls"}, (), set()),
        ("nvls-offered", set(), (), set()),
        ("libfabric-plugin", {"other"}, (), set()),
        ("no-device-in-container", set(), (), set()),
    ],
)
def test_real_lines_of_every_version(name, via, hcas, layers):
    assert read_channels([lines(name)]) == Channels(frozenset(via), hcas, frozenset(layers))


def test_the_number_after_the_network_picks_the_adapter_of_the_list():
    """The list of a host with both kinds: channel 3 is the one that is RoCE."""
    using = next(line for line in lines("2.5-infiniband-adapters") if "NET/IB : Using" in line)
    found = read_channels([[using, "h:1:2 [3] NCCL INFO Channel 00 : 0[1] -> 8[2] [send] via NET/IB/3/GDRDMA"]])
    assert (found.hcas, found.layers) == (("mlx5_2:1",), frozenset({"RoCE"}))
    found = read_channels([[using, "h:1:2 [3] NCCL INFO Channel 00 : 0[1] -> 8[2] [send] via NET/IB/4"]])
    assert (found.hcas, found.layers) == (("mlx5_4:1",), frozenset({"IB"}))


def test_the_plugin_of_nvidias_containers_lists_its_adapters_as_nccl_does():
    channel = "gh1:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IBext_v8/0/GDRDMA"
    found = read_channels([[*lines("2.20-rdma-sharp-plugin"), channel]])
    assert (found.via, found.hcas, found.layers) == (frozenset({"verbs"}), ("mlx5_2:1",), frozenset({"IB"}))


def test_adapters_that_are_joined_into_one_are_both_named():
    """By hand, after the format strings of NCCL 2.23 and newer."""
    said = [
        "NCCL INFO NET/IB : Made virtual device [0] name=mlx5_0 speed=400000 ndevs=1",
        "NCCL INFO NET/IB : Made virtual device [1] name=mlx5_1 speed=400000 ndevs=1",
        "NCCL INFO NET/IB : Made virtual device [2] name=mlx5_2 speed=400000 ndevs=1",
        "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        "NCCL INFO NET/IB : Made virtual device [3] name=mlx5_0+mlx5_1 speed=800000 ndevs=2",
    ]
    assert read_channels([[*said, "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/3"]]).hcas == ("mlx5_0:1", "mlx5_1:1")
    assert read_channels([[*said, "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2"]]).hcas == ("mlx5_2:1",)


def test_two_ports_of_one_adapter_are_told_apart():
    using = "NCCL INFO NET/IB : Using [0]mlx4_0:1/IB [1]mlx4_0:2/IB [RO]; OOB eth0:10.0.0.1<0>"
    made = [f"NCCL INFO NET/IB : Made virtual device [{port}] name=mlx4_0 speed=40000 ndevs=1" for port in (0, 1)]
    assert read_channels([[*made, using, "Channel 00 : 0 -> 1 [send] via NET/IB/1"]]).hcas == ("mlx4_0:2",)


def test_several_processes_are_read_apart_and_joined_after():
    """Number 0 is another adapter to each of them."""
    said = [
        [f"NET/IB : Using [0]{name}:1/IB ; OOB e:1<0>", "Channel 00 : 0 -> 1 [send] via NET/IB/0"]
        for name in ("mlx5_4", "mlx5_0")
    ]
    assert read_channels(said) == Channels(frozenset({"verbs"}), ("mlx5_0:1", "mlx5_4:1"), frozenset({"IB"}))
    assert read_channels([]) == Channels(frozenset())
