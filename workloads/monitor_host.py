"""The host as a sampled device: cores, memory, disks, network and clock by psutil, energy of the processors by RAPL.

Standard library, psutil where there is one, and syntax of Python 3.6 only.
"""

import os
from pathlib import Path

from monitor_sampler import Device, Missing, Part

try:
    import psutil
except ImportError:
    psutil = None

NO_PSUTIL = "psutil is not installed beside the sampler"
SELDOM_S = 0.5  # between two sums of bytes, which cost more than all else together
CLOCK_S = 1.0  # a core's clock is asked of the core itself, which wakes it


class Host(Device):
    """This machine; `sources` says of "psutil" and "rapl" why there is nothing of it, or None."""

    def __init__(self, sysfs="/sys"):
        rapl = Rapl(sysfs)
        self.sources = {"psutil": None if psutil else NO_PSUTIL, "rapl": rapl.reason}
        self.disks = with_hardware(Path(sysfs, "block"))
        self.interfaces = with_hardware(Path(sysfs, "class/net"))
        parts = [
            Part(("core_percent",), self.cores),
            Part(("memory_mib",), self.memory),
            Part(("disk_read_bytes", "disk_write_bytes"), self.disk, SELDOM_S),
            Part(("net_rx_bytes", "net_tx_bytes"), self.net, SELDOM_S),
            Part(("clock_mhz",), self.clock, CLOCK_S),
        ]
        for part in parts if psutil is None else ():
            part.read = none_of(part.columns, NO_PSUTIL)
        parts.append(Part(("energy_j",), rapl.read if rapl.reason is None else none_of(["energy_j"], rapl.reason)))
        super().__init__("host", parts)

    def begin(self):
        """Begin the first row's share of time; psutil remembers it by thread."""
        if psutil:
            self.cores()

    def cores(self):
        return [psutil.cpu_percent(percpu=True)]

    def memory(self):
        """What is not available any more: `used` of psutil has been three different sums over its releases."""
        memory = psutil.virtual_memory()
        return [(memory.total - memory.available) >> 20]

    def disk(self):
        counters = of_these(psutil.disk_io_counters(perdisk=True, nowrap=False) or {}, self.disks)
        return [sum(disk.read_bytes for disk in counters), sum(disk.write_bytes for disk in counters)]

    def net(self):
        counters = of_these(psutil.net_io_counters(pernic=True, nowrap=False) or {}, self.interfaces)
        return [sum(wire.bytes_recv for wire in counters), sum(wire.bytes_sent for wire in counters)]

    def clock(self):
        frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
        return [Missing("the kernel tells no clock") if frequency is None else round(frequency.current)]


def none_of(columns, reason):
    """Make a part's `read` that has nothing but the reason."""
    return lambda: [Missing(reason)] * len(columns)


def with_hardware(folder):
    """Names of the disks or interfaces that hardware stands behind.

    Bytes of a logical volume are its disk's as well, those of a bridge or bond its interfaces': to add all would count them twice.
    """
    try:
        return frozenset(entry.name for entry in folder.iterdir() if (entry / "device").exists())
    except OSError:
        return frozenset()


def of_these(counters, names):
    """Counters of the `names`; of all but the loopback where none of them is here (a network namespace has no hardware)."""
    chosen = [counter for name, counter in counters.items() if name in names]
    return chosen or [counter for name, counter in counters.items() if name != "lo" and not name.startswith("loop")]


class Rapl:
    """Energy of all processor packages since the first reading, in joules.

    The kernel's counter of a package goes up to `max_energy_range_uj` and begins anew (Documentation/power/powercap); since 2020
    it is root's alone. `reason` says why there is nothing to read, None where there is.
    """

    def __init__(self, sysfs="/sys"):
        self.packages = []
        self.total_uj = 0
        self.reason = None
        zones = [zone for zone in Path(sysfs, "class/powercap").glob("intel-rapl:*") if zone.name.count(":") == 1]
        try:
            for zone in sorted(zones):
                # "psys" is the whole platform, packages included.
                if (zone / "name").read_text().startswith("package"):
                    counter = os.open(str(zone / "energy_uj"), os.O_RDONLY)
                    self.packages.append(
                        [counter, int((zone / "max_energy_range_uj").read_text()), read_number(counter)]
                    )
        except OSError as error:
            self.reason = f"{error.filename}: {error.strerror}"
        if not self.packages and self.reason is None:
            self.reason = "the kernel shows no RAPL package"

    def read(self):
        for package in self.packages:
            counter, span, before = package
            package[2] = read_number(counter)
            self.total_uj += (package[2] - before) % span
        return [round(self.total_uj / 1e6, 3)]


def read_number(counter):
    """Read a kernel file that is held open: a third of the price of opening it each time."""
    return int(os.pread(counter, 32, 0))
