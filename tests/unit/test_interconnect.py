"""InfiniBand that was silently TCP: what was used is read from evidence, and held against what was asked."""

import examples
import pytest

from runner import interconnect
from runner.parse import Nccl, Net, RunStart

DDP = {"strategy": "ddp", "framework": "pytorch", "world_size": 2, "processes": 2, "global_batch": 64}
GPUS = {**DDP, "device": "gpu", "cpus_per_worker": None}
# As NCCL 2.2x prints them (NCCL_DEBUG=INFO, subsystem INIT); host and process ids shortened.
NVLINK = "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
SHM = "h:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"
SOCKET = "h:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0"
IB = "h:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [send] via NET/IB/0/GDRDMA"


def nccl(*lines):
    return Nccl(event="nccl", rank=0, t=0, received=0, container="w0", lines=lines)


def net(where, tx, rank=0):
    return Net(
        event="net",
        rank=rank,
        t=0,
        received=0,
        container="w0",
        where=where,
        interfaces={"lo": {"rx_bytes": tx, "tx_bytes": tx}},
    )


def start(parameters):
    """A model of so many parameters; the example trial measures 40 iterations."""
    return RunStart(
        event="run_start",
        rank=0,
        t=0,
        received=0,
        container="w0",
        world_size=2,
        batch_per_device=32,
        global_batch=64,
        iterations=40,
        warmup=4,
        image_shape=(3, 32, 32),
        num_classes=10,
        parameters=parameters,
        seed=1,
    )


@pytest.mark.parametrize(
    ("lines", "used"),
    [
        ((NVLINK,), "nvlink"),
        ((SHM,), "shm"),
        ((SOCKET,), "ethernet"),
        ((IB,), "infiniband"),
        ((NVLINK, SOCKET), "ethernet"),
        ((NVLINK, SHM), "shm"),
        ((), "unknown"),
    ],
)
def test_the_slowest_channel_names_the_transport(lines, used):
    found = interconnect.used(examples.trial(**GPUS), [examples.gpu(0), examples.gpu(1)], [nccl(*lines)])
    assert found.used == used
    assert found.evidence.nccl_lines == lines


def test_peer_to_peer_without_nvlink_is_pcie():
    gpus = [examples.gpu(0, nvlinks=0), examples.gpu(1, nvlinks=0)]
    assert interconnect.used(examples.trial(**GPUS), gpus, [nccl(NVLINK)]).used == "pcie"


def test_gradients_of_cpu_workers_cross_the_loopback_and_are_counted():
    found = interconnect.used(examples.trial(**DDP), (), [net("start", 1000), net("stop", 51000)])
    assert found.used == "loopback"
    assert [(t.interface, t.tx_bytes) for t in found.evidence.traffic] == [("lo", 50000)]


def test_a_loopback_that_carried_less_than_the_gradients_did_not_carry_them():
    """Ranks keep in touch over the loopback while their gradients go through shared memory."""
    said = [start(1000), net("start", 0), net("stop", 40 * 1000 * 2 - 1)]
    assert interconnect.used(examples.trial(**DDP), (), said).used == "unknown"
    over_mpi = {**DDP, "strategy": "horovod", "horovod": examples.horovod(controller="mpi", operations="mpi")}
    assert interconnect.used(examples.trial(**over_mpi), (), said).used == "shm"
    assert (
        interconnect.used(examples.trial(**over_mpi), (), [start(1000), net("start", 0), net("stop", 80_000)]).used
        == "loopback"
    )


def test_one_process_that_drives_several_cpu_devices_needs_no_wire():
    trial = examples.trial(strategy="kvstore", kvstore="device", world_size=2, processes=1)
    assert interconnect.used(trial, (), [net("start", 0), net("stop", 10**9)]).used == "process"


def test_without_traffic_nothing_is_claimed():
    assert interconnect.used(examples.trial(**DDP), (), [net("start", 1000), net("stop", 1000)]).used == "unknown"
    assert interconnect.used(examples.trial(**DDP), (), []).used == "unknown"


def test_one_device_needs_no_wire():
    assert interconnect.used(examples.trial(), (), []).used == "none"


def test_another_transport_than_asked_is_said_with_both_names():
    trial = examples.trial(**GPUS, interconnect="nvlink")
    found = interconnect.used(trial, [examples.gpu(0)], [nccl(SHM)])
    assert interconnect.mismatch(found, trial).startswith("INTERCONNECT=nvlink asked, shm used")
    assert interconnect.mismatch(interconnect.used(trial, [examples.gpu(0)], [nccl(NVLINK)]), trial) is None


def test_shm_forbids_peer_to_peer():
    env = interconnect.environment(examples.trial(**GPUS, interconnect="shm"), None)
    assert env["NCCL_P2P_DISABLE"] == "1"
    assert "NCCL_P2P_DISABLE" not in interconnect.environment(examples.trial(**GPUS), None)
    assert interconnect.environment(examples.trial(**DDP), None) == {"GLOO_SOCKET_IFNAME": "lo"}
