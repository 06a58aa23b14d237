"""The host as a sampled device: cores, memory, disks, network and clock by psutil, energy of the processors by RAPL.

Standard library, psutil if installed, and syntax of Python 3.6 only.
"""

import os
from pathlib import Path

from monitor_sampler import Device, Missing, Part

try:
    import psutil
except ImportError:
    psutil = None

NO_PSUTIL = "psutil is not installed beside the sampler"
BYTES_S = 0.5  # between two readings of disk or network bytes, which cost more than everything else together
CLOCK_S = 1.0  # reading a core's clock asks the core itself, which wakes it


class Host(Device):
    """This machine; `sources` maps "psutil" and "rapl" to the reason why that source is missing, or None."""

    def __init__(self, sysfs="/sys"):
        rapl = Rapl(sysfs)
        self.sources = {"psutil": None if psutil else NO_PSUTIL, "rapl": rapl.reason}
        self.disks = hardware_backed(Path(sysfs, "block"))
        self.interfaces = hardware_backed(Path(sysfs, "class/net"))
        parts = [
            Part(("core_percent",), self.cores),
            Part(("memory_mib",), self.memory),
            Part(("disk_read_bytes", "disk_write_bytes"), self.disk, BYTES_S),
            Part(("net_rx_bytes", "net_tx_bytes"), self.net, BYTES_S),
            Part(("clock_mhz",), self.clock, CLOCK_S),
        ]
        for part in parts if psutil is None else ():
            part.read = missing(part.columns, NO_PSUTIL)
        parts.append(Part(("energy_j",), rapl.read if rapl.reason is None else missing(["energy_j"], rapl.reason)))
        super().__init__("host", parts)

    def begin(self):
        """Start the interval of the first row's CPU share, which psutil keeps per thread."""
        if psutil:
            self.cores()

    def cores(self):
        return [psutil.cpu_percent(percpu=True)]

    def memory(self):
        """Total less available memory: psutil's own `used` has been three different sums over its releases."""
        memory = psutil.virtual_memory()
        return [(memory.total - memory.available) >> 20]

    def disk(self):
        counters = selected(psutil.disk_io_counters(perdisk=True, nowrap=False) or {}, self.disks)
        return [sum(disk.read_bytes for disk in counters), sum(disk.write_bytes for disk in counters)]

    def net(self):
        counters = selected(psutil.net_io_counters(pernic=True, nowrap=False) or {}, self.interfaces)
        return [sum(wire.bytes_recv for wire in counters), sum(wire.bytes_sent for wire in counters)]

    def clock(self):
        frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
        return [Missing("the kernel tells no clock") if frequency is None else round(frequency.current)]


def missing(columns, reason):
    """Make a part's `read` that returns only the reason."""
    return lambda: [Missing(reason)] * len(columns)


def hardware_backed(folder):
    """Names of the disks or interfaces that are backed by hardware.

    The bytes of a logical volume are also its disk's, those of a bridge or bond also its interfaces': a sum over all would count them twice.
    """
    try:
        return frozenset(entry.name for entry in folder.iterdir() if (entry / "device").exists())
    except OSError:
        return frozenset()


def selected(counters, names):
    """Counters of the `names`; if none is here (a network namespace has no hardware), of all but loopback interface and loop devices."""
    chosen = [counter for name, counter in counters.items() if name in names]
    return chosen or [counter for name, counter in counters.items() if name != "lo" and not name.startswith("loop")]


class Rapl:
    """Energy of all processor packages since construction, in joules.

    The kernel's counter of a package wraps at `max_energy_range_uj` (Documentation/power/powercap); since 2020
    only root may read it. `reason` says why there is nothing to read, or is None.
    """

    def __init__(self, sysfs="/sys"):
        self.packages = []
        self.total_uj = 0
        self.reason = None
        zones = [zone for zone in Path(sysfs, "class/powercap").glob("intel-rapl:*") if zone.name.count(":") == 1]
        try:
            for zone in sorted(zones):
                # "psys" is the whole platform and includes the packages.
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
    """Read a kernel file that is kept open: a third of the cost of opening it each time."""
    return int(os.pread(counter, 32, 0))
