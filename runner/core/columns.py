"""The columns of the tables that a run leaves beside its events, and what each holds. `workloads/events.py` says what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

TableName = Literal["telemetry", "kernels"]
Kind = Literal["number", "whole", "text", "numbers", "processes"]

_GPU: Final[Mapping[str, Kind]] = {
    "utilisation_percent": "number",
    "memory_utilisation_percent": "number",
    "power_w": "number",
    "temperature_c": "number",
    "sm_clock_mhz": "number",
    "memory_clock_mhz": "number",
    "slowdown_bits": "whole",
    "pcie_rx_bytes": "whole",
    "pcie_tx_bytes": "whole",
    "nvlink_rx_bytes": "whole",
    "nvlink_tx_bytes": "whole",
    "ecc_corrected": "whole",
    "ecc_uncorrected": "whole",
    "processes": "processes",
}
_COUNTERS: Final[Mapping[str, Kind]] = {
    "sm_active_percent": "number",
    "sm_occupancy_percent": "number",
    "fp64_percent": "number",
    "fp32_percent": "number",
    "fp16_percent": "number",
    "tensor_percent": "number",
    "dram_percent": "number",
    "pcie_rx_rate": "number",
    "pcie_tx_rate": "number",
    "nvlink_rx_rate": "number",
    "nvlink_tx_rate": "number",
}
_HOST: Final[Mapping[str, Kind]] = {
    "core_percent": "numbers",
    "disk_read_bytes": "whole",
    "disk_write_bytes": "whole",
    "net_rx_bytes": "whole",
    "net_tx_bytes": "whole",
    "clock_mhz": "number",
}

# `node`, `rank` and `category` are the runner's own; all else is what programs write.
COLUMNS: Final[Mapping[TableName, Mapping[str, Kind]]] = {
    "telemetry": {
        "node": "text",
        "rank": "whole",
        "t": "number",
        "device": "text",
        "memory_mib": "number",
        "energy_j": "number",
        **_GPU,
        **_COUNTERS,
        **_HOST,
    },
    "kernels": {
        "node": "text",
        "rank": "whole",
        "kind": "text",
        "name": "text",
        "category": "text",
        "device": "whole",
        "stream": "whole",
        "thread": "whole",
        "start": "number",
        "duration": "number",
        "grid": "text",
        "block": "text",
        "bytes": "whole",
        "correlation": "whole",
        "op": "whole",
        "parent": "whole",
        "flop": "number",
        "fp32_percent": "number",
        "tensor_percent": "number",
        "dram_bytes": "number",
    },
}
