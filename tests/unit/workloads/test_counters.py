"""Prevents: a counter of the wrong column or unit, an address with its bytes reversed, another process' connections counted as the job's,
NVLinks counted per link and again in the sum, a failure on a host without any of these."""

import ctypes
import socket
import sys
from pathlib import Path

import counters
import pynvml
import pytest

# proc(5): per interface 8 receive columns, then 8 transmit columns; the name may touch the first number.
PROC_NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0
  eth0:2331607157 1545312   1    2    3     4          5         6  2799536   41530    7    8    9    10      11         12
"""
HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def test_byte_counters_are_the_first_and_the_ninth_column(tmp_path):
    table = tmp_path / "dev"
    table.write_text(PROC_NET_DEV)
    assert counters.interface_bytes(table) == {
        "lo": {"rx_bytes": 3193, "tx_bytes": 3193},
        "eth0": {"rx_bytes": 2331607157, "tx_bytes": 2799536},
    }


def port(root, adapter, number, *, received, sent, layer):
    path = root / adapter / "ports" / number
    (path / "counters").mkdir(parents=True)
    (path / "counters" / "port_rcv_data").write_text(received)
    (path / "counters" / "port_xmit_data").write_text(sent)
    (path / "link_layer").write_text(layer)


def test_ports_count_words_of_four_bytes(tmp_path):
    port(tmp_path, "mlx5_0", "1", received="250\n", sent="1000000000000\n", layer="InfiniBand\n")
    port(tmp_path, "mlx4_0", "2", received="0\n", sent="1\n", layer="Ethernet\n")
    port(
        tmp_path, "mlx5_1", "1", received="N/A (no PMA)\n", sent="0\n", layer="InfiniBand\n"
    )  # as mlx5 does for a virtual function
    assert counters.port_bytes(tmp_path) == {
        "mlx4_0:2": {"rx_bytes": 0, "tx_bytes": 4, "link_layer": "Ethernet"},
        "mlx5_0:1": {"rx_bytes": 1000, "tx_bytes": 4_000_000_000_000, "link_layer": "InfiniBand"},
    }


def test_a_host_without_rdma_has_no_ports(tmp_path):
    assert counters.port_bytes(tmp_path / "nothing") == {}


@pytest.mark.skipif(
    sys.byteorder != "little", reason="the kernel's table is written as it lies in this machine's memory"
)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0100007F:1F90", ("127.0.0.1", 8080)),
        ("0B004D0A:2345", ("10.77.0.11", 9029)),
        ("000080FE00000000FF005450B6AF2CFE:0016", ("fe80::5054:ff:fe2c:afb6", 22)),
        ("0000000000000000FFFF00000B004D0A:0001", ("10.77.0.11", 1)),
        ("00000000000000000000000001000000:FFFF", ("::1", 65535)),
    ],
)
def test_addresses_are_words_in_memory_order(text, expected):
    assert counters.address(text) == expected


def entry(local, remote, state, inode):
    return f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 1000 0 {inode} 1 0 100 0 0 10 0\n"


@pytest.mark.skipif(sys.byteorder != "little", reason="the table below is of such a machine")
def test_peers_are_established_connections_of_this_process_to_other_hosts(tmp_path):
    mine, other = "0B004D0A", "0C004D0A"  # 10.77.0.11 and .12
    four, six = tmp_path / "tcp", tmp_path / "tcp6"
    four.write_text(
        HEADER
        + entry(f"{mine}:9000", f"{other}:2711", "01", 1)
        + entry(f"{mine}:9001", f"{other}:2711", "01", 2)
        + entry(f"{mine}:9002", f"{other}:2712", "01", 3)
        + entry(f"{mine}:9003", f"{other}:2711", "06", 4)  # TIME_WAIT
        + entry(f"{mine}:9004", "01004D0A:0016", "01", 50)  # another process' ssh
        + entry("0100007F:9005", "0100007F:2711", "01", 5)  # loopback
        + entry(f"{mine}:9006", f"{mine}:2711", "01", 6)  # to itself by its own address
        + entry("00000000:2711", "00000000:0000", "0A", 7)  # LISTEN
    )
    six.write_text(
        HEADER + entry(f"0000000000000000FFFF0000{mine}:9007", f"0000000000000000FFFF0000{other}:2711", "01", 8)
    )
    listed, inside = counters.peers((four, six, tmp_path / "absent"), sockets={1, 2, 3, 4, 5, 6, 7, 8})
    assert listed == [
        {"local": "10.77.0.11", "remote": "10.77.0.12", "port": 0x2711, "connections": 3},
        {"local": "10.77.0.11", "remote": "10.77.0.12", "port": 0x2712, "connections": 1},
    ]
    assert inside == 2


def test_connections_of_this_process_are_found_in_this_machines_tables():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        listed, before = counters.peers()
        with socket.create_connection(server.getsockname()) as near, server.accept()[0] as far:
            assert near.getpeername() == far.getsockname()
            assert counters.peers() == (listed, before + 2)
        assert counters.peers() == (listed, before)


class Nvml:
    """The driver's library with three GPUs: one with NVLinks, one without, one that fell off the bus; 0 is success."""

    def nvmlInit_v2(self):  # noqa: N802 - NVML's own names
        return 0

    def nvmlDeviceGetCount_v2(self, count):  # noqa: N802
        count._obj.value = 3
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, gpu):  # noqa: N802
        gpu._obj.value = index + 1
        return 0

    def nvmlDeviceGetUUID(self, gpu, uuid, size):  # noqa: N802
        assert size == len(uuid)
        uuid.value = b"GPU-%d" % gpu.value
        return 0

    def nvmlDeviceGetFieldValues(self, gpu, count, values):  # noqa: N802
        assert [value.scope for value in values] == [2**32 - 1] * count
        kib = {138: 3, 139: 5}
        for value in values:
            value.status, value.value = (0 if gpu.value == 1 else 3), kib[value.field]
        return 15 if gpu.value == 3 else 0


def test_nvlink_bytes_are_read_from_kib_counters_without_pynvml():
    """Images without pynvml reported no NVLink, so that nothing could be proved in a vendor's container."""
    told = counters.nvlink_bytes(lambda name: Nvml() if name == "libnvidia-ml.so.1" else None)
    assert told == {"GPU-1": {"rx_bytes": 5 * 1024, "tx_bytes": 3 * 1024}}


def test_without_a_driver_there_are_no_nvlinks():
    assert counters.nvlink_bytes(lambda name: ctypes.CDLL(f"no-{name}")) == {}


def test_the_layout_of_fields_is_nvmls():
    """By another route: nvidia-ml-py, NVIDIA's own."""
    theirs = {name: getattr(pynvml.c_nvmlFieldValue_t, name) for name, _ in pynvml.c_nvmlFieldValue_t._fields_}
    ours = [getattr(counters.FieldValue, name) for name, _ in counters.FieldValue._fields_]
    assert [(one.offset, one.size) for one in ours] == [(one.offset, one.size) for one in theirs.values()]
    assert counters.NVLINK_TX == pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
    assert counters.NVLINK_RX == pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX


def test_the_namespace_has_the_kernels_number():
    assert str(Path("/proc/self/ns/net").readlink()) == f"net:[{counters.network_namespace()}]"
