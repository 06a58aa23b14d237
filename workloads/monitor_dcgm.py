"""Utilisation of the pipes of a GPU before Hopper: DCGM's profiling fields, if its host engine runs and `dcgmi` is on the PATH.

One `dcgmi dmon` serves all GPUs; a thread reads its lines as they arrive. Standard library and syntax of Python 3.6 only.
"""

import shutil
import subprocess
import threading

from monitor_sampler import Lost, Missing

# Name in dmon's header: (column, factor from its unit to the column's): ratios to percents, bytes a second unchanged.
# docs.nvidia.com/datacenter/dcgm: "Field Identifiers"; names in dcgmlib/src/dcgm_fields.cpp.
NAMES = {
    "SMACT": ("sm_active_percent", 100),
    "SMOCC": ("sm_occupancy_percent", 100),
    "TENSO": ("tensor_percent", 100),
    "DRAMA": ("dram_percent", 100),
    "FP64A": ("fp64_percent", 100),
    "FP32A": ("fp32_percent", 100),
    "FP16A": ("fp16_percent", 100),
    "PCITX": ("pcie_tx_rate", 1),
    "PCIRX": ("pcie_rx_rate", 1),
    "NVLTX": ("nvlink_tx_rate", 1),
    "NVLRX": ("nvlink_rx_rate", 1),
}
FIELDS = "52,1002,1003,1004,1005,1006,1007,1008,1009,1010,1011,1012"  # NVML's index of the GPU, then NAMES
MIN_INTERVAL_MS = 100  # profiling fields are invalid below it: github.com/NVIDIA/DCGM/issues/310
CONNECT_S = 3.0  # for connecting and the first row
MAX_SILENT_ROWS = 20  # a field without a value in so many rows never has one: multiplexed fields take turns faster


class Table:
    def __init__(self):
        self.header = None

    def parse(self, text):
        """Parse one line: (NVML's index, {column: value}), or None if it holds no values.

        A value is "N/A" until it has been measured, if the GPU lacks it, and while fields take turns.
        """
        fields = text.split()
        if fields and fields[0] == "#Entity":
            self.header = fields[1:]
        if self.header is None or len(fields) != len(self.header) + 2 or fields[0] != "GPU":
            return None
        cells = dict(zip(self.header, fields[2:]))  # noqa: B905 - Python 3.6
        index = cells.get("NVIDX", "N/A")
        values = {}
        for name, (column, unit) in NAMES.items():
            cell = cells.get(name, "N/A")
            if cell != "N/A":
                values[column] = round(float(cell) * unit, 2) if unit > 1 else int(cell)
        return int(fields[1] if index == "N/A" else index), values


class Dcgm(threading.Thread):
    """The running `dcgmi dmon`; `reason` says why it does not run or why it ended, None while it runs."""

    def __init__(self, hz, columns):
        super().__init__(name="dcgm", daemon=True)
        self.columns = columns
        self.latest = {}
        self.rows = {}
        self.seen = set()
        self.reason = None
        self.answered = threading.Event()
        self.child = None
        if shutil.which("dcgmi") is None:
            self.reason = "no dcgmi on the PATH"
            return
        self.child = subprocess.Popen(
            ["dcgmi", "dmon", "-d", str(max(MIN_INTERVAL_MS, round(1000 / hz))), "-e", FIELDS],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        self.start()
        if not self.answered.wait(CONNECT_S):
            self.reason = f"dcgmi did not answer for {CONNECT_S:g} s"
            self.stop()

    def run(self):
        """Keep the latest values of each GPU until dmon exits."""
        table, last = Table(), "it said nothing"
        try:
            for line in self.child.stdout:
                last = line.strip() or last
                found = table.parse(line)
                if found is not None:
                    self.latest[found[0]] = found[1]
                    self.answered.set()
        finally:
            self.reason = self.reason or "dcgmi ended: " + last
            self.answered.set()

    def take(self, index):
        """Values of a GPU in the order of the columns, each row once; empty if none is new.

        Raises:
            Lost: dmon has exited.
        """
        values = self.latest.pop(index, None)
        if values is None:
            if self.reason is not None:
                raise Lost(self.reason)
            return []
        self.rows[index] = self.rows.get(index, 0) + 1
        self.seen |= {(index, column) for column in values}
        return [self.value(index, column, values) for column in self.columns]

    def value(self, index, column, values):
        if (index, column) in self.seen or self.rows[index] < MAX_SILENT_ROWS:
            return values.get(column)
        return Missing("DCGM has no value of it for this GPU")

    def stop(self):
        if self.child is not None and self.child.poll() is None:
            self.child.terminate()
            self.child.wait()
