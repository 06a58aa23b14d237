"""Byte counters of this host's kernel and driver, and the peers of this process: the raw evidence of event `net`.

Standard library and syntax of Python 3.6 only, so that it works in any image: NVML is the driver's own library, which every container
with GPUs has, with or without pynvml. What a host lacks is omitted; nothing is guessed.
"""

import ctypes
import socket
import stat
import struct
from pathlib import Path

ESTABLISHED = "01"  # include/net/tcp_states.h
LINK_UNIT = 4  # the kernel reports octets divided by four: Documentation/ABI/stable/sysfs-class-infiniband
# nvml.h: a scopeId of UINT_MAX sums over all links of a GPU; NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX, in KiB.
ALL_LINKS = 0xFFFFFFFF
NVLINK_TX, NVLINK_RX = 138, 139
UUID_BYTES = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t of nvml.h; the value is a union of numbers of up to 8 bytes."""

    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("kind", ctypes.c_int),
        ("status", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    ]


def interface_bytes(path="/proc/net/dev"):
    """Read ``{interface: {rx_bytes, tx_bytes}}`` from the kernel's table (proc(5))."""
    interfaces = {}
    for line in Path(path).read_text(encoding="ascii").splitlines()[2:]:
        name, _, counters = line.partition(":")
        fields = counters.split()
        interfaces[name.strip()] = {"rx_bytes": int(fields[0]), "tx_bytes": int(fields[8])}
    return interfaces


def port_bytes(root="/sys/class/infiniband"):
    """Read ``{adapter:port: {rx_bytes, tx_bytes, link_layer}}`` of every InfiniBand and RoCE port.

    RDMA bypasses the kernel's interfaces, so that only these counters have its bytes. The link layer is `InfiniBand` or `Ethernet` (RoCE).
    """
    ports = {}
    for port in sorted(Path(root).glob("*/ports/*")):
        try:
            received, sent = (
                int((port / "counters" / name).read_text()) for name in ("port_rcv_data", "port_xmit_data")
            )
            layer = (port / "link_layer").read_text().strip()
        except (OSError, ValueError):  # a port that is down may return an error or nothing
            continue
        ports[f"{port.parents[1].name}:{port.name}"] = {
            "rx_bytes": received * LINK_UNIT,
            "tx_bytes": sent * LINK_UNIT,
            "link_layer": layer,
        }
    return ports


def nvlink_bytes(load=ctypes.CDLL):
    """Read ``{GPU's UUID: {rx_bytes, tx_bytes}}`` of the GPUs with NVLinks that NVML shows here."""
    try:
        nvml = load("libnvidia-ml.so.1")
    except OSError:  # no driver
        return {}
    count, links = ctypes.c_uint(), {}
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return {}
    for index in range(count.value):
        gpu, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(UUID_BYTES)
        received, sent = values = (FieldValue * 2)((NVLINK_RX, ALL_LINKS), (NVLINK_TX, ALL_LINKS))
        if (
            nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu))
            or nvml.nvmlDeviceGetUUID(gpu, uuid, UUID_BYTES)
            or nvml.nvmlDeviceGetFieldValues(gpu, len(values), values)
            or received.status
            or sent.status
        ):
            continue
        links[uuid.value.decode()] = {"rx_bytes": received.value * 1024, "tx_bytes": sent.value * 1024}
    return links


def network_namespace():
    """Inode number of this process' network namespace: processes of a host that share it read the same interfaces."""
    return Path("/proc/self/ns/net").stat().st_ino


def own_sockets():
    """Inode numbers of this process' open sockets."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            status = entry.stat()
        except OSError:  # closed in the meantime
            continue
        if stat.S_ISSOCK(status.st_mode):
            found.add(status.st_ino)
    return found


def address(text):
    """Parse the kernel's ``0100007F:1F90`` to ("127.0.0.1", 8080); an IPv4-mapped IPv6 address becomes IPv4."""
    digits, _, port = text.partition(":")
    # 32-bit words in memory order, each printed as a native integer.
    words = [int(digits[start : start + 8], 16) for start in range(0, len(digits), 8)]
    raw = struct.pack(f"={len(words)}I", *words)
    if raw[:12] == bytes(10) + b"\xff\xff":
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw), int(port, 16)


def is_local(local, remote):
    """Whether traffic between the addresses never leaves the host."""
    return remote in {local, "::1"} or remote.startswith("127.")


def peers(tables=("/proc/self/net/tcp", "/proc/self/net/tcp6"), sockets=None):
    """List the hosts to which this process has TCP connections.

    Returns:
        ``[{local, remote, port, connections}]``, one entry per pair of addresses and remote port, and the number of
        connections that never leave this host, which no entry includes.
    """
    sockets = own_sockets() if sockets is None else sockets
    remote_peers, local_connections = {}, 0
    for table in tables:
        if not Path(table).exists():  # a kernel without IPv6
            continue
        for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] != ESTABLISHED or int(fields[9]) not in sockets:
                continue
            local, (remote, port) = address(fields[1])[0], address(fields[2])
            if is_local(local, remote):
                local_connections += 1
            else:
                remote_peers[local, remote, port] = remote_peers.get((local, remote, port), 0) + 1
    listed = [
        {"local": local, "remote": remote, "port": port, "connections": count}
        for (local, remote, port), count in sorted(remote_peers.items())
    ]
    return listed, local_connections
