"""Prevents: InfiniBand that was silently TCP, bytes counted twice, a transport claimed for want of another.

Prevents: a kind of channel that no pattern matches, and an adapter mistaken by NCCL's number: its log lines over ten years of versions.

The lines are real (tests/golden/nccl/SOURCES.md); the expected values were read from them by eye.
"""

import examples
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wires import DDP, ITERATIONS, ON_GPU, counts, gpu_trial, nccl, net, on_nodes, sent, start, window, wire

from runner.analysis.interconnect import causes, transport
from runner.analysis.interconnect.evidence import Channels, gradient_factor, read_channels
from runner.commands.regrade import regrade
from runner.core.node import Nic
from runner.core.transport import InterfaceTraffic, PcieTraffic
from runner.core.wire import Link

TWO = {"world_size": 2, "processes": 2, "global_batch": 64}
CPUS = {**DDP, **TWO}
GPUS = {**CPUS, **ON_GPU}
NVLINK = "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
NVLS = "h:1:2 [0] NCCL INFO NVLS comm 0x1 headRank 0 nHeads 2 nvlsRanks 2 buffSize 1 nvlsPerRankSize 1 nvlsTotalSize 2"
SHM = "h:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"
SOCKET = "h:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0"
ADAPTERS = "h:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.77.0.11<0>"
IB = "h:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [send] via NET/IB/0/GDRDMA"
# A megabyte of gradients and two nodes: each has to send it once per step.
MEGABYTE = 1_000_000
STEPS = ITERATIONS * MEGABYTE


def nic(name, kind="ethernet"):
    return Nic(name=name, state="up", speed_mbit=None, mtu=1500, kind=kind)


NICS = {node: [nic("lo", "loopback"), nic("eth0"), nic("eth1"), nic("ib0", "infiniband")] for node in ("n1", "n2")}


# ---- within one node


def judged(lines, *, nvlinks=18, pcie=(), **moved):
    """Two GPUs of one node: these NCCL lines, and these bytes between the readings; a megabyte of gradients per step."""
    gpus = [examples.gpu(number, nvlinks=nvlinks) for number in (0, 1)]
    asked = moved.pop("asked", "auto")
    trial = examples.trial(**GPUS, interconnect=asked)
    return transport.judge(trial, gpus, [*counts(**moved), nccl(*lines)], pcie=pcie)


# In the measured windows each GPU has to send and to receive 40 MB, over whichever wire.
BUSY, IDLE, A_PART = [(STEPS, STEPS)] * 2, [(0, 0)] * 2, [(STEPS // 2, STEPS // 2)] * 2
# Over the loopback, both GPUs' bytes count.
BOTH = 2 * STEPS


def slots(moved, share=1.0):
    """PCIe of both GPUs, as sampled."""
    return [PcieTraffic(gpu=f"GPU-{n}", rx_bytes=moved, tx_bytes=moved, share=share) for n in (0, 1)]


@pytest.mark.parametrize(
    ("lines", "moved", "used"),
    [
        ((NVLINK,), {"nvlink": BUSY}, "nvlink"),
        ((NVLINK,), {"nvlink": IDLE}, "pcie"),
        ((NVLS,), {"nvlink": BUSY}, "nvlink"),
        ((SHM,), {"nvlink": IDLE}, "shm"),
        ((NVLINK, SHM), {"nvlink": IDLE}, "shm"),
        ((SOCKET,), {"nvlink": IDLE, "lo": BOTH}, "loopback"),
        ((NVLINK, SOCKET), {"nvlink": IDLE, "lo": BOTH}, "loopback"),
        ((IB,), {"nvlink": IDLE, "ports": {"mlx5_0:1": STEPS}}, "infiniband"),
        ((IB,), {"nvlink": IDLE, "ports": {"mlx5_0:1": STEPS}, "layer": "Ethernet"}, "roce"),
    ],
)
def test_the_slowest_channel_is_the_transport_if_every_counter_agrees(lines, moved, used):
    found = judged(lines, **moved)
    assert (found.used, found.contradiction, found.unproved) == (used, None, None)
    assert found.evidence.nccl_lines == lines


@pytest.mark.parametrize(
    ("lines", "moved", "used", "said"),
    [
        ((SHM,), {"nvlink": BUSY, "pcie": slots(2_000)}, "nvlink", "NVLink carried 40 MB a GPU"),
        ((SHM,), {"nvlink": A_PART}, "unknown", "NVLink carried 20 MB a GPU"),
        ((SOCKET,), {"nvlink": BUSY, "lo": 1_500}, "nvlink", "NVLink carried 40 MB a GPU"),
        ((SOCKET,), {"nvlink": IDLE, "lo": STEPS}, "unknown", "the loopback carried 40 MB"),
        ((SOCKET,), {"nvlink": IDLE, "lo": 0, "ports": {"mlx5_0:1": STEPS}}, "infiniband", "RDMA ports carried 40 MB"),
        ((SHM,), {"nvlink": IDLE, "lo": BOTH}, "loopback", "the loopback carried 80 MB"),
        ((SHM,), {"nvlink": IDLE, "pcie": slots(9_000_000, share=0.5)}, "unknown", "PCIe carried 9 MB a GPU"),
        ((IB,), {"nvlink": IDLE, "ports": {"mlx5_0:1": 70}}, "unknown", "RDMA ports carried 70 B a node"),
    ],
)
def test_bytes_on_a_faster_wire_or_missing_on_the_claimed_one_make_a_run_invalid(lines, moved, used, said):
    """Two shared-memory runs were valid although each GPU had sent all of its gradients over NVLink."""
    found = judged(lines, **moved)
    assert found.used == used
    assert said in found.contradiction
    assert causes.mismatch(found, examples.trial(**GPUS)).startswith(found.contradiction)


def test_a_contradiction_names_both_wires_and_their_byte_counts():
    assert judged((SHM,), nvlink=BUSY, pcie=slots(2_000)).contradiction == (
        "NCCL says shm, but NVLink carried 40 MB a GPU (the gradients need 40 MB), PCIe 2 kB a GPU (40 MB)"
    )


@pytest.mark.parametrize(
    ("lines", "moved", "said"),
    [
        ((NVLINK,), {}, "NVLink of all 2 GPUs were not counted"),
        ((NVLINK,), {"nvlink": BUSY[:1]}, "NVLink of all 2 GPUs were not counted"),
        ((SHM,), {}, "NVLink of all 2 GPUs were not counted"),
        ((SOCKET,), {"lo": BOTH}, "NVLink of all 2 GPUs were not counted"),
        ((IB,), {"nvlink": IDLE}, "RDMA ports were not counted"),
        ((NVLINK,), {"nvlink": A_PART}, "NVLink carried 20 MB a GPU"),
        # Half of a ring's edges are NVLinks: what a GPU sends crosses one, what it receives does not.
        ((NVLINK,), {"nvlink": [(0, STEPS), (STEPS, 0)]}, "NVLink carried 0 B to 40 MB a GPU"),
        (("Channel 00 : 0 -> 1 [send] via NET/AWS Libfabric/0",), {"nvlink": IDLE}, "names no wire"),
        ((), {"nvlink": BUSY}, "names no wire"),
    ],
)
def test_a_missing_counter_makes_the_transport_unknown_with_a_reason(lines, moved, said):
    found = judged(lines, **moved, asked="shm")
    assert (found.used, found.contradiction) == ("unknown", None)
    assert said in found.unproved
    asked = examples.trial(**GPUS, interconnect="shm")
    assert causes.mismatch(found, asked).startswith(f"INTERCONNECT=shm asked, unknown used: {found.unproved}")
    assert causes.mismatch(judged(lines, **moved), examples.trial(**GPUS)) is None  # nothing was requested


@pytest.mark.parametrize(("lines", "used"), [((NVLINK,), "pcie"), ((SHM,), "shm")])
def test_gpus_without_nvlink_need_no_nvlink_counter(lines, used):
    assert judged(lines, nvlinks=0).used == used


def test_nvlink_used_instead_of_pcie_is_reported_with_its_bytes():
    found = judged((NVLINK,), asked="pcie", nvlink=BUSY)
    said = causes.mismatch(found, examples.trial(**GPUS, interconnect="pcie"))
    assert said.startswith(
        "INTERCONNECT=pcie asked, nvlink used, where NVLink carried 40 MB a GPU (the gradients need 40 MB): "
    )
    assert judged((NVLINK,), asked="pcie", nvlink=IDLE, pcie=slots(STEPS)).used == "pcie"


@pytest.mark.parametrize("run", ["20261122T020841Z-8910-pytorch-resnet50", "20261122T021041Z-e3e3-pytorch-vgg16"])
def test_nvlink_reported_as_shared_memory_is_invalid(run):
    """Both were valid: NCCL reported SHM, and its reductions in the NVLink switches (NVLS), which it did not report, moved all bytes."""
    _, new = regrade(examples.ROOT / "results" / "h200" / "wires" / f"{run}-2gpu-shm-r1")
    assert (new.trial.interconnect, new.transport.used, new.validity.status) == ("shm", "nvlink", "invalid")
    (reason,) = [one for one in new.validity.reasons if "INTERCONNECT" in one]
    # The raw counters: 30 steps of 102,228,128 bytes and 4,591,765,504 to 4,629,981,184; of 553,430,176, and 24.9e9.
    bytes_of = {
        "resnet50": "NVLink carried 4.59 GB to 4.63 GB a GPU (the gradients need 3.07 GB), PCIe 1",
        "vgg16": "NVLink carried 24.9 GB a GPU (the gradients need 16.6 GB), PCIe 8",
    }
    assert f"INTERCONNECT=shm asked, nvlink used: NCCL says shm, but {bytes_of[run.rpartition('-')[2]]}" in reason


def test_links_of_other_gpus_prove_nothing():
    """Without a container NVML shows all GPUs of a host, including those of another job."""
    said = [*counts(nvlink=[*BUSY, (0, 0)]), nccl(NVLINK)]
    gpus = [examples.gpu(number) for number in range(3)]
    assert transport.judge(examples.trial(**GPUS), gpus, said).used == "nvlink"
    others = [*counts(nvlink=[*IDLE, *BUSY]), nccl(SHM)]
    assert transport.judge(examples.trial(**GPUS), gpus, others).used == "shm"


def test_needed_bytes_follow_the_measured_iterations():
    """The windows determine the number of iterations; if iterations follow the rate, the trial does not."""
    said = [*counts(nvlink=[(STEPS // 2, STEPS // 2)] * 2), nccl(NVLINK)]
    windows = [window(rank, iterations=ITERATIONS // 2) for rank in (0, 1)]
    gpus = [examples.gpu(0), examples.gpu(1)]
    assert transport.judge(examples.trial(**GPUS), gpus, [*said, *windows]).used == "nvlink"
    assert transport.judge(examples.trial(**GPUS), gpus, said).used == "unknown"


def test_copies_between_gpus_by_a_store_show_only_on_the_links():
    trial = examples.trial(strategy="kvstore", kvstore="device", world_size=2, processes=1, **ON_GPU)
    gpus = [examples.gpu(0), examples.gpu(1)]
    assert transport.judge(trial, gpus, [start()]).used == "unknown"
    assert transport.judge(trial, gpus, counts(nvlink=BUSY)).used == "nvlink"
    assert transport.judge(trial, gpus, counts(nvlink=IDLE)).used == "pcie"


def test_gradients_of_cpu_workers_cross_the_loopback_and_are_counted():
    found = transport.judge(examples.trial(**CPUS), (), counts(lo=BOTH))
    assert found.used == "loopback"
    assert found.evidence.traffic == (InterfaceTraffic(rank=0, interface="lo", rx_bytes=BOTH, tx_bytes=BOTH),)


@pytest.mark.parametrize(
    ("settings", "library"),
    [
        (DDP, "Gloo"),
        ({"strategy": "multiworker"}, "gRPC"),
        ({"strategy": "kvstore", "kvstore": "dist_sync"}, "ps-lite"),
        ({"strategy": "horovod", "horovod": examples.horovod()}, "Gloo"),
    ],
)
def test_a_run_is_invalid_if_its_librarys_only_wire_lacks_the_gradients(settings, library):
    """Ranks keep in touch over the loopback while their gradients go elsewhere, or nowhere."""
    trial = examples.trial(**TWO, **settings)
    found = transport.judge(trial, (), counts(lo=STEPS))
    assert found.used == "unknown"
    assert found.contradiction.startswith(f"{library} can only have used loopback, but the loopback carried 40 MB")
    assert transport.judge(trial, (), counts(lo=BOTH * 9 // 10)).used == "loopback"
    assert transport.judge(trial, (), [start()]).unproved.endswith("the bytes of the loopback were not counted")


@pytest.mark.parametrize(("lo", "used"), [(BOTH, "loopback"), (BOTH // 2, "unknown"), (0, "shm")])
def test_mpi_used_shared_memory_if_no_counter_shows_the_gradients(lo, used):
    mpi = {"strategy": "horovod", "horovod": examples.horovod(controller="mpi", operations="mpi")}
    trial = examples.trial(**TWO, **mpi)
    assert transport.judge(trial, (), counts(lo=lo)).used == used
    assert transport.judge(trial, (), [start()]).used == "unknown"  # no counter
    over = transport.judge(trial, (), counts(ports={"mlx5_0:1": STEPS}))
    assert over.used == "infiniband"


def test_one_process_with_several_cpu_devices_needs_no_wire():
    trial = examples.trial(strategy="kvstore", kvstore="device", world_size=2, processes=1)
    assert transport.judge(trial, (), [net("start", {"lo": 0}), net("stop", {"lo": 10**9})]).used == "process"


def test_without_counters_nothing_is_claimed_and_one_device_needs_no_wire():
    idle = [net("start", {"lo": 1000}), net("stop", {"lo": 1000})]
    assert transport.judge(examples.trial(**CPUS), (), idle).used == "unknown"
    assert transport.judge(examples.trial(**CPUS), (), []).used == "unknown"
    assert transport.judge(examples.trial(), (), []).used == "none"


def test_one_node_has_no_figures_between_nodes():
    """Records from before multi-node runs reproduce the same digits."""
    found = transport.judge(examples.trial(**CPUS), (), counts(lo=BOTH))
    told = found.model_dump(exclude={"requested", "used", "evidence", "counted"})
    assert not any(told.values())


# ---- bytes per step


@pytest.mark.parametrize(
    ("trial", "factor"),
    [
        (examples.trial(), 0),
        (examples.trial(**CPUS), 0),
        (on_nodes(2, **DDP), 2),  # two nodes that send 2 * 1/2 each
        (on_nodes(4, **DDP), 6),  # four that send 2 * 3/4
        (on_nodes(2, ranks=8, **DDP), 3.5),  # two edges of the ring leave a node, each with 2 * 7/8
        (on_nodes(2, strategy="kvstore", kvstore="dist_sync"), 2),  # half of the weights, there and back
        (on_nodes(4, strategy="kvstore", kvstore="dist_sync"), 6),  # four times three quarters, there and back
        (on_nodes(2, ranks=4, strategy="kvstore", kvstore="dist_sync"), 4),
    ],
)
def test_the_gradient_factor_of_each_algorithm(trial, factor):
    assert gradient_factor(trial) == factor


@given(nodes=st.integers(2, 64), each=st.integers(1, 16))
def test_no_ring_sends_less_than_the_minimum_of_any_algorithm(nodes, each):
    ring = gradient_factor(on_nodes(nodes, ranks=nodes * each, **DDP))
    assert 2 * (nodes - 1) <= ring < 2 * nodes


# ---- between nodes


def on_both(first, second=None, **ports):
    """What two nodes sent by interface; equal if only one is given."""
    return [start(), *sent("n1", first, **ports), *sent("n2", second or first, rank=1, **ports)]


def test_the_transport_is_the_interface_that_moved_the_gradients():
    found = transport.judge(
        on_nodes(2, **DDP), (), on_both({"lo": 10**12, "eth0": 5000, "eth1": STEPS}, {"eth1": STEPS}), nics=NICS
    )
    assert (found.used, found.interface, found.interfaces) == ("ethernet", "eth1", {"n1": "eth1", "n2": "eth1"})
    assert (found.gradient_bytes, found.expected_bytes_per_step) == (MEGABYTE, 2 * MEGABYTE)
    assert found.sent_bytes_per_step == {"n1": MEGABYTE, "n2": MEGABYTE}
    assert found.emulated is None


def test_counters_read_by_several_ranks_of_a_node_count_once():
    """Each rank reads slightly later than the other; the count runs from the first start to the last stop, once."""
    said = [start()]
    for rank, late in ((0, 0), (1, 300), (2, 100), (3, 900)):
        node = "n1" if rank < 2 else "n2"
        said += [
            net("start", {"eth0": 7000 + late}, rank=rank, node=node, namespace=1),
            net("stop", {"eth0": 7000 + late + STEPS}, rank=rank, node=node, namespace=1),
        ]
    found = transport.judge(on_nodes(2, ranks=4, **DDP), (), said, nics=NICS)
    assert found.sent_bytes_per_step == {"n1": (STEPS + 300) / ITERATIONS, "n2": (STEPS + 800) / ITERATIONS}
    assert [entry.tx_bytes for entry in found.evidence.traffic] == [STEPS] * 4
    assert [entry.node for entry in found.evidence.traffic] == ["n1", "n1", "n2", "n2"]


def test_containers_with_their_own_network_have_their_own_counters():
    said = [start()]
    for rank, node, namespace in ((0, "n1", 1), (1, "n1", 2), (2, "n2", 1)):
        ends = (("start", 100), ("stop", 100 + STEPS // 2 * (2 if node == "n2" else 1)))
        said += [net(where, {"eth0": at}, rank=rank, node=node, namespace=namespace) for where, at in ends]
    found = transport.judge(on_nodes(2, ranks=4, **DDP), (), said, nics=NICS)
    assert found.sent_bytes_per_step == {"n1": MEGABYTE, "n2": MEGABYTE}


def test_interfaces_that_sent_too_little_are_no_transport():
    """Half of the minimum traffic is required: a card's counters may lag."""
    almost = STEPS // 2 - 1
    found = transport.judge(on_nodes(2, **DDP), (), on_both({"eth0": almost}), nics=NICS)
    assert (found.used, found.interfaces, found.sent_bytes_per_step) == ("unknown", {}, {})
    said = on_both({"eth0": almost + 1})
    assert transport.judge(on_nodes(2, **DDP), (), said, nics=NICS).used == "ethernet"
    assert (
        transport.judge(on_nodes(2, **DDP), (), said[:3], nics=NICS).used == "unknown"
    )  # the other node reported nothing


OVER_IB = {"iface": "ib0", "kind": "infiniband"}


@pytest.mark.parametrize(
    ("wires", "moved", "nics", "used", "interface"),
    [
        # A bond counts its card's bytes, and the chosen interface is named.
        ([{"iface": "bond0"}] * 2, [{"bond0": STEPS, "eth0": STEPS + 100, "eth1": 0}], None, "ethernet", "bond0"),
        # IP over InfiniBand is not verbs; without a node's own facts, the interface has the chosen wire's kind.
        ([OVER_IB] * 2, [{"ib0": STEPS}], NICS, "ipoib", "ib0"),
        ([OVER_IB] * 2, [{"ib0": STEPS}], None, "ipoib", "ib0"),
        # If nodes differ, the weaker end names the link.
        ([OVER_IB, {}], [{"ib0": STEPS}, {"eth0": STEPS}], NICS, "ethernet", "ib0, eth0"),
        # An unknown interface is named but not classified.
        ([{}, {}], [{"eth9": STEPS}], None, "unknown", "eth9"),
    ],
)
def test_the_kind_of_an_interface_comes_from_its_node_or_the_chosen_wire(wires, moved, nics, used, interface):
    trial = on_nodes(2, wires=[wire(number, **own) for number, own in enumerate(wires, 1)], **DDP)
    found = transport.judge(trial, (), on_both(*moved), nics=nics)
    assert (found.used, found.interface) == (used, interface)


HCAS = {"kind": "infiniband", "iface": "eth0", "hcas": ("mlx5_0:1", "mlx5_1:1")}


def verbs_trial(**changes):
    return gpu_trial(wires=[wire(n, **HCAS) for n in (1, 2)], interconnect="infiniband", **changes)


def test_verbs_need_nccls_report_and_the_ports_counts():
    both = on_both({"eth0": 3000}, ports={"mlx5_0:1": STEPS, "mlx5_1:1": 77})
    said = [nccl(ADAPTERS, IB), nccl(ADAPTERS, IB, rank=1), *both]
    found = transport.judge(verbs_trial(), (), said, nics=NICS)
    assert (found.used, found.hcas, found.interfaces) == ("infiniband", ("mlx5_0:1",), {})
    assert found.sent_bytes_per_step == {"n1": MEGABYTE, "n2": MEGABYTE}
    assert [(p.node, p.port, p.link_layer, p.tx_bytes) for p in found.evidence.ports] == [
        (node, port, "InfiniBand", count)
        for node in ("n1", "n2")
        for port, count in (("mlx5_0:1", STEPS), ("mlx5_1:1", 77))
    ]


def between(lines, *, eth0=9, ports=None, nvlink=0):
    """Two nodes with one GPU each: NCCL's lines, and what each interface, port and GPU moved."""
    both = on_both({"eth0": eth0}, ports=None if ports is None else {"mlx5_0:1": ports})
    links = [
        net(where, {}, node="n1", nvlink={f"GPU-{n}": {"rx_bytes": at, "tx_bytes": at} for n in (0, 1)})
        for where, at in (("start", 0), ("stop", nvlink))
    ]
    return [nccl(*lines), *both, *links]


@pytest.mark.parametrize(
    ("lines", "moved", "used", "said"),
    [
        # Nodes of one machine whose GPUs found each other directly.
        ((SOCKET,), {"nvlink": STEPS}, "nvlink", "use eth0, but interfaces carried 9 B a node"),
        ((SOCKET,), {"eth0": STEPS, "nvlink": STEPS}, "nvlink", "(eth0), but NVLink carried 40 MB a GPU"),
        ((SOCKET,), {"eth0": STEPS, "ports": 3 * STEPS}, "infiniband", "(eth0), but RDMA ports carried 120 MB a node"),
        ((ADAPTERS, IB), {"ports": 70}, "unknown", "RDMA, but RDMA ports carried 70 B a node"),
        ((ADAPTERS, IB), {"ports": STEPS, "nvlink": STEPS}, "nvlink", "RDMA, but NVLink carried 40 MB a GPU"),
    ],
)
def test_reports_between_nodes_are_checked_against_every_counter(lines, moved, used, said):
    found = transport.judge(verbs_trial(), (), between(lines, **moved), nics=NICS)
    assert found.used == used
    assert said in found.contradiction


def test_verbs_over_ethernet_are_roce_and_uncounted_verbs_are_unproved():
    lines = (ADAPTERS.replace(":1/IB", ":1/RoCE"), IB)
    assert transport.judge(verbs_trial(), (), between(lines, ports=STEPS), nics=NICS).used == "roce"
    found = transport.judge(verbs_trial(), (), between((ADAPTERS, IB)), nics=NICS)
    assert (found.used, found.unproved) == ("unknown", "NCCL says RDMA, and n1, n2 told no counters of its ports")


def test_infiniband_ports_count_ip_traffic_again():
    """IP over InfiniBand appears in the counters of its interface and of its port, with different headers in each."""
    said = between((SOCKET,), eth0=STEPS, ports=STEPS + 2)
    assert transport.judge(gpu_trial(), (), said, nics=NICS).contradiction is None


def test_a_node_that_sent_too_little_contradicts_the_transport():
    found = transport.judge(on_nodes(2, **DDP), (), on_both({"eth0": 9 * STEPS}, {"eth0": 100}), nics=NICS)
    assert "carried 100 B to 360 MB a node" in found.contradiction


def test_sockets_used_instead_of_verbs_are_reported():
    said = between(("NCCL INFO NET/IB : No device found.", SOCKET, NVLINK), eth0=STEPS, ports=0)
    found = transport.judge(verbs_trial(), (), said, nics=NICS)
    assert (found.used, found.interface, found.hcas) == ("ethernet", "eth0", ())


def test_emulated_nodes_that_nccl_merged_have_no_wire_between_them():
    """Two nodes of one machine without separate host ids: their GPUs communicate directly, and the wire stays idle.

    Between real nodes in one NVLink domain, NVLink is the transport.
    """
    said = between((NVLINK,), eth0=500, nvlink=STEPS)
    found = transport.judge(gpu_trial(), (), said, nics=NICS, one_machine=True)
    assert found.used == "nvlink"
    assert found.contradiction.startswith("NCCL says p2p between the nodes, but interfaces carried 500 B a node")
    assert transport.judge(gpu_trial(), (), said, nics=NICS).used == "nvlink"


def test_mpi_over_verbs_shows_in_the_ports_counters():
    mpi = {"strategy": "horovod", "horovod": examples.horovod(controller="mpi", operations="mpi")}
    trial = on_nodes(2, wires=[wire(n, **HCAS) for n in (1, 2)], interconnect="infiniband", **mpi)
    for eth0, port, used in ((9, STEPS, "infiniband"), (STEPS, 0, "ethernet")):
        said = on_both({"eth0": eth0}, ports={"mlx5_0:1": port})
        assert transport.judge(trial, (), said, nics=NICS).used == used


def test_sockets_remain_sockets_next_to_a_busy_adapter():
    """Another job's RDMA counts on the same ports, and Gloo can't use them."""
    said = on_both({"eth0": STEPS}, ports={"mlx5_0:1": 10**12})
    assert transport.judge(on_nodes(2, **DDP), (), said, nics=NICS).used == "ethernet"


@pytest.mark.parametrize(
    ("link", "one_machine", "label"),
    [
        (None, False, "ethernet"),
        (None, True, "ethernet (emulated: nodes of one machine)"),
        (Link(rate_mbit=1000, emulated=True), True, "ethernet (emulated 1gbit)"),
        (Link(rate_mbit=1000, emulated=False), False, "ethernet"),
    ],
)
def test_an_emulated_wire_is_labelled(link, one_machine, label):
    said = on_both({"eth0": STEPS})
    found = transport.judge(on_nodes(2, link=link, **DDP), (), said, nics=NICS, one_machine=one_machine)
    assert found.label == label


def test_peers_are_kept_with_their_node():
    peers = [{"local": "10.77.0.11", "remote": "10.77.0.12", "port": 4000, "connections": 2}]
    found = transport.judge(on_nodes(2, **DDP), (), [start(), *sent("n1", {"eth0": 1}, peers=peers)])
    assert [(p.rank, p.node, p.remote, p.connections) for p in found.evidence.peers] == [(0, "n1", "10.77.0.12", 2)]


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


def test_the_number_after_the_network_selects_the_adapter():
    """A host with both kinds of adapter: channel 3 is the RoCE one."""
    using = next(line for line in lines("2.5-infiniband-adapters") if "NET/IB : Using" in line)
    found = read_channels([[using, "h:1:2 [3] NCCL INFO Channel 00 : 0[1] -> 8[2] [send] via NET/IB/3/GDRDMA"]])
    assert (found.hcas, found.layers) == (("mlx5_2:1",), frozenset({"RoCE"}))
    found = read_channels([[using, "h:1:2 [3] NCCL INFO Channel 00 : 0[1] -> 8[2] [send] via NET/IB/4"]])
    assert (found.hcas, found.layers) == (("mlx5_4:1",), frozenset({"IB"}))


def test_nvidias_container_plugin_lists_adapters_like_nccl():
    channel = "gh1:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IBext_v8/0/GDRDMA"
    found = read_channels([[*lines("2.20-rdma-sharp-plugin"), channel]])
    assert (found.via, found.hcas, found.layers) == (frozenset({"verbs"}), ("mlx5_2:1",), frozenset({"IB"}))


def test_merged_adapters_are_both_named():
    """Lines written by hand after the format strings of NCCL 2.23 and newer."""
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


def test_lines_of_several_processes_are_parsed_separately():
    """Number 0 is a different adapter in each process."""
    said = [
        [f"NET/IB : Using [0]{name}:1/IB ; OOB e:1<0>", "Channel 00 : 0 -> 1 [send] via NET/IB/0"]
        for name in ("mlx5_4", "mlx5_0")
    ]
    assert read_channels(said) == Channels(frozenset({"verbs"}), ("mlx5_0:1", "mlx5_4:1"), frozenset({"IB"}))
    assert read_channels([]) == Channels(frozenset())
