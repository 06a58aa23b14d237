"""NVIDIA GPUs as sampled devices, read through NVML: what nvidia-smi shows, and the GPU Performance Monitoring (GPM) of Hopper and later.

Works with nvidia-ml-py 13 and older releases; a value that a release or driver does not support is a missing column, with the reason.
It only reads: it changes no setting and runs nothing on a GPU. Otherwise standard library, and syntax of Python 3.6 only.
"""

import contextlib
import math
import os
import time
from pathlib import Path

from monitor_sampler import DUE_SHARE, MAX_NAP_S, Device, Lost, Missing, Part

ALL_LINKS = 0xFFFFFFFF  # nvml.h: a scopeId of UINT_MAX adds up all links of a GPU
UNKNOWN = "this nvidia-ml-py does not know "
KIB, MIB = 1 << 10, 1 << 20
WRAP = 1 << 32  # bytes after which a PCIe counter begins again at 0
SLOW_S = 1.0  # between two readings of slowly changing values
ENERGY_S = 0.5  # the counter takes 4 ms to read on an H200 (driver 580), a thousand times as long as the others
GPM_S = 0.1  # the shortest interval that GPM measures on Hopper: github.com/NVIDIA/DCGM/issues/310

# Column, field of nvmlDeviceGetFieldValues, its scope, and bytes per unit of it.
PCIE_FIELDS = (
    ("pcie_rx_bytes", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES", 0, 1),
    ("pcie_tx_bytes", "NVML_FI_DEV_PCIE_COUNT_TX_BYTES", 0, 1),
)
NVLINK_FIELDS = (
    ("nvlink_rx_bytes", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", ALL_LINKS, KIB),
    ("nvlink_tx_bytes", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", ALL_LINKS, KIB),
)
# Column, GPM metric, and factor from its unit to the column's: MiB/s to bytes/s; None for percents, which need none.
GPM_METRICS = (
    ("sm_active_percent", "NVML_GPM_METRIC_SM_UTIL", None),
    ("sm_occupancy_percent", "NVML_GPM_METRIC_SM_OCCUPANCY", None),
    ("fp64_percent", "NVML_GPM_METRIC_FP64_UTIL", None),
    ("fp32_percent", "NVML_GPM_METRIC_FP32_UTIL", None),
    ("fp16_percent", "NVML_GPM_METRIC_FP16_UTIL", None),
    ("tensor_percent", "NVML_GPM_METRIC_ANY_TENSOR_UTIL", None),
    ("dram_percent", "NVML_GPM_METRIC_DRAM_BW_UTIL", None),
    ("pcie_rx_rate", "NVML_GPM_METRIC_PCIE_RX_PER_SEC", MIB),
    ("pcie_tx_rate", "NVML_GPM_METRIC_PCIE_TX_PER_SEC", MIB),
    ("nvlink_rx_rate", "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", MIB),
    ("nvlink_tx_rate", "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", MIB),
)
COUNTERS = tuple(column for column, _, _ in GPM_METRICS)


def columns(fields):
    return tuple(column for column, _, _, _ in fields)


def find(indices=None):
    """Open NVML and find its GPUs, or those with these `indices` on the host.

    Returns:
        list of opened `Gpu`; {`Gpu`: reason} for those that do not answer; why there are none at all, or None.
    """
    try:
        import pynvml
    except ImportError:
        return [], {}, "nvidia-ml-py is not installed beside the sampler"
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return [], {}, f"no NVIDIA device: {error}"
    found, silent = [], {}
    wanted = range(count) if indices is None else sorted(indices)
    # A container with a subset of the host's GPUs numbers them from 0, in the same order.
    local_indices = range(count) if len(wanted) == count else wanted
    for index, local_index in zip(wanted, local_indices):  # noqa: B905 - Python 3.6
        gpu = Gpu(pynvml, index, local_index)
        try:
            gpu.open()
            found.append(gpu)
        except pynvml.NVMLError as error:
            silent[gpu] = str(error)
    if not found:
        return [], silent, f"no NVIDIA device: the driver shows {count}, and none that was asked for answers"
    return found, silent, None


def decode(value):
    """Decode the bytes that older releases of nvidia-ml-py return."""
    return value if isinstance(value, str) else value.decode()


class Gpu(Device):
    """One GPU.

    Attributes:
        index, local_index: NVML's index on the host, and its index here.
        counters: source of its pipes' utilisation: "gpm", "dcgm", None.
        power_reading: "instant" power, or what nvidia-smi shows as "usage": the mean over the previous second on Ampere and later
            except GA100 (A100, A30), instantaneous power on GA100 and older GPUs.
    """

    answerer = "NVML"

    def __init__(self, nvml, index, local_index):
        self.nvml = nvml
        self.index = index
        self.local_index = local_index
        self.gpm = Gpm(nvml)
        self.counters = None
        self.processes = Processes()
        self.wrapping_counters = {}
        self.not_followed = Missing("a 32-bit counter can't be followed")
        self.pcie = Part(columns(PCIE_FIELDS), self.pcie_bytes)
        self.pipes = Part(COUNTERS, self.gpm.read, GPM_S)
        parts = [
            Part(("utilisation_percent", "memory_utilisation_percent"), self.utilisation),
            Part(("memory_mib",), self.memory),
            Part(("power_w",), self.power),
            Part(("energy_j",), self.energy, ENERGY_S),
            Part(("temperature_c",), self.temperature),
            Part(("sm_clock_mhz",), lambda: [nvml.nvmlDeviceGetClockInfo(self.handle, nvml.NVML_CLOCK_SM)]),
            Part(("memory_clock_mhz",), lambda: [nvml.nvmlDeviceGetClockInfo(self.handle, nvml.NVML_CLOCK_MEM)]),
            Part(("slowdown_bits",), self.slowdowns),
            Part(columns(NVLINK_FIELDS), lambda: self.fields(NVLINK_FIELDS)),
            self.pcie,
            Part(("ecc_corrected",), lambda: self.ecc(nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED), SLOW_S),
            Part(("ecc_uncorrected",), lambda: self.ecc(nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED), SLOW_S),
            Part(("processes",), self.compute_processes, SLOW_S),
            self.pipes,
        ]
        super().__init__(f"gpu{index}", parts)

    def open(self):
        """Open the handle and read the static properties.

        Raises:
            NVMLError: the GPU does not answer.
        """
        self.handle = self.nvml.nvmlDeviceGetHandleByIndex(self.local_index)
        self.uuid = decode(self.nvml.nvmlDeviceGetUUID(self.handle))
        self.model = decode(self.nvml.nvmlDeviceGetName(self.handle))
        self.limit_w = self.watts(self.nvml.nvmlDeviceGetEnforcedPowerLimit)
        self.default_limit_w = self.watts(self.nvml.nvmlDeviceGetPowerManagementDefaultLimit)
        self.power_reading = "instant" if self.has_instant_power() else "usage"
        self.counters = "gpm" if self.gpm.open(self.handle) else None
        if self.counters:  # GPM measures PCIe too
            self.parts.remove(self.pcie)
        else:
            self.open_pcie()

    def open_pcie(self):
        """Read how fast the link can be, which tells how long its counters can go unread."""
        try:
            generation = self.nvml.nvmlDeviceGetMaxPcieLinkGeneration(self.handle)
            lanes = self.nvml.nvmlDeviceGetMaxPcieLinkWidth(self.handle)
        except self.nvml.NVMLError as error:
            self.not_followed = Missing(
                f"a 32-bit counter can't be followed: the speed of the link is unknown ({error})"
            )
            return
        gigabits = {1: 2.5, 2: 5.0}.get(generation, 2.0**generation)  # a second and lane, encoding included
        fastest = gigabits * lanes * 1e9 / 8
        self.wrapping_counters = {column: WrappingCounter(fastest) for column in self.pcie.columns}
        self.nap_s = min(MAX_NAP_S, WRAP / fastest / 2)

    def watts(self, limit):
        try:
            return limit(self.handle) / 1000
        except self.nvml.NVMLError:
            return None

    def describe(self):
        """Static properties: an entry of `gpus` in event monitor_start."""
        return {
            "index": self.index,
            "uuid": self.uuid,
            "name": self.model,
            "power_limit_w": self.limit_w,
            "default_power_limit_w": self.default_limit_w,
            "counters": self.counters,
            "power_reading": self.power_reading,
        }

    def use_dcgm(self, dcgm):
        """Read the pipes' utilisation from DCGM instead."""
        self.counters = "dcgm"
        self.pipes.read = lambda: dcgm.take(self.index)

    def begin(self):
        if self.counters == "gpm":
            self.gpm.begin()
            self.pipes.due = time.monotonic() + GPM_S * DUE_SHARE

    def end(self):
        self.gpm.end()

    def between(self):
        """Follow the PCIe counters, which can wrap more than once between two samples."""
        if self.wrapping_counters and self.pcie in self.parts:
            with contextlib.suppress(self.nvml.NVMLError, AttributeError):  # the next sample reports it
                self.fields(PCIE_FIELDS)

    def is_final(self, error):
        code = getattr(error, "value", None)
        if code == self.nvml.NVML_ERROR_GPU_IS_LOST:
            raise Lost(str(error))
        never = (self.nvml.NVML_ERROR_NOT_SUPPORTED, self.nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return code in never or isinstance(error, (Lost, AttributeError))

    def utilisation(self):
        rates = self.nvml.nvmlDeviceGetUtilizationRates(self.handle)
        return rates.gpu, rates.memory

    def memory(self):
        return [self.nvml.nvmlDeviceGetMemoryInfo(self.handle).used >> 20]

    def power(self):
        if self.power_reading == "instant":
            return [self.instant_power()]
        return [self.nvml.nvmlDeviceGetPowerUsage(self.handle) / 1000]

    def instant_power(self):
        (answer,) = self.nvml.nvmlDeviceGetFieldValues(self.handle, [self.nvml.NVML_FI_DEV_POWER_INSTANT])
        if answer.nvmlReturn:
            raise self.nvml.NVMLError(answer.nvmlReturn)
        return answer.value.uiVal / 1000

    def has_instant_power(self):
        """Whether this driver and this release of nvidia-ml-py report instantaneous power; older ones do not."""
        try:
            self.instant_power()
        except (AttributeError, self.nvml.NVMLError):
            return False
        return True

    def energy(self):
        return [self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle) / 1000]

    def temperature(self):
        return [self.nvml.nvmlDeviceGetTemperature(self.handle, self.nvml.NVML_TEMPERATURE_GPU)]

    def slowdowns(self):
        """Bits of the reasons for reduced clocks; drivers and bindings before 535 use another name."""
        try:
            return [self.nvml.nvmlDeviceGetCurrentClocksEventReasons(self.handle)]
        except AttributeError:
            pass
        except self.nvml.NVMLError as error:
            if error.value != self.nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise
        return [self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle)]

    def pcie_bytes(self):
        found = self.fields(PCIE_FIELDS)
        return [value.count() if isinstance(value, WrappingCounter) else value for value in found]

    def fields(self, wanted):
        """Counters of PCIe or NVLink in one call (nvmlDeviceGetPcieThroughput would take 20 ms)."""
        known = [(getattr(self.nvml, field), scope) for _, field, scope, _ in wanted if hasattr(self.nvml, field)]
        began = time.monotonic()
        answers = iter(self.nvml.nvmlDeviceGetFieldValues(self.handle, known) if known else ())
        ended = time.monotonic()
        return [
            self.field(column, next(answers), unit, began, ended)
            if hasattr(self.nvml, field)
            else Missing(UNKNOWN + field)
            for column, field, _, unit in wanted
        ]

    def field(self, column, answer, unit, began, ended):
        """Take a counter's reading: bytes, `Missing`, or of 32 bits the `WrappingCounter` that follows it."""
        if answer.nvmlReturn:
            return Missing(str(self.nvml.NVMLError(answer.nvmlReturn)))
        if answer.valueType != self.nvml.NVML_VALUE_TYPE_UNSIGNED_INT:
            return answer.value.ullVal * unit
        if column not in self.wrapping_counters:
            return self.not_followed
        self.wrapping_counters[column].follow(answer.value.uiVal, began, ended)
        return self.wrapping_counters[column]

    def ecc(self, kind):
        return [self.nvml.nvmlDeviceGetTotalEccErrors(self.handle, kind, self.nvml.NVML_VOLATILE_ECC)]

    def compute_processes(self):
        return [self.processes.describe_all(self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle))]


class WrappingCounter:
    """A counter of bytes that wraps after 4 GiB, continued past each wrap-around.

    If it was not read for so long that it may have wrapped unnoticed, it has no value once, and then begins anew below all earlier values,
    so that its increase over that time is seen to be unknown. `fastest` is the most bytes a second that it can count.
    """

    def __init__(self, fastest):
        self.fastest = fastest
        self.last = self.read_at = None
        self.total = 0
        self.state = "known"  # or "unsure", "anew"
        self.beginnings = 0

    def follow(self, value, began, ended):
        """Take a reading made between two moments of the monotonic clock."""
        if self.last is None:
            self.total = value
        else:
            increase = (value - self.last) % WRAP
            if increase + WRAP <= self.fastest * (ended - self.read_at):
                self.state = "unsure"
            self.total += increase
        self.last, self.read_at = value, began

    def count(self):
        """Return the bytes counted until the last reading, or `Missing`."""
        if self.state == "unsure":
            self.state = "anew"
            longest = f"{WRAP / self.fastest * 1000:.0f} ms at the {self.fastest / 1e9:g} GB/s of the link"
            return Missing(f"the 32-bit counter may have wrapped unnoticed: it was not read for more than {longest}")
        if self.state == "anew":
            self.state = "known"
            self.beginnings += 1
            self.total = -self.beginnings
        return self.total


class Gpm:
    """Metrics that NVML computes between two samples; `reason` says why it can't, or is None."""

    def __init__(self, nvml):
        self.nvml = nvml
        self.samples = []
        self.answers = {}
        self.reason = None

    def open(self, handle):
        """Return whether this GPU supports GPM."""
        self.handle = handle
        try:
            if not self.nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                self.reason = "this GPU has no GPM (Hopper and later have)"
        except AttributeError:
            self.reason = UNKNOWN + "GPM"
        except self.nvml.NVMLError as error:
            self.reason = f"GPM: {error}"
        return self.reason is None

    def begin(self):
        nvml = self.nvml
        self.request = nvml.c_nvmlGpmMetricsGet_t()
        self.request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        known = [metric for _, metric, _ in GPM_METRICS if hasattr(nvml, metric)]
        self.request.numMetrics = len(known)
        for number, metric in enumerate(known):
            self.answers[metric] = self.request.metrics[number]  # a view into the request, created once
            self.answers[metric].metricId = getattr(nvml, metric)
        try:
            self.samples += [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
            nvml.nvmlGpmSampleGet(self.handle, self.samples[0])
        except nvml.NVMLError as error:
            self.reason = f"GPM: {error}"

    def end(self):
        while self.samples:
            self.nvml.nvmlGpmSampleFree(self.samples.pop())

    def read(self):
        if self.reason is not None:
            return [Missing(self.reason)] * len(GPM_METRICS)
        before, now = self.samples
        self.nvml.nvmlGpmSampleGet(self.handle, now)
        self.samples.reverse()
        self.request.sample1, self.request.sample2 = before, now
        self.nvml.nvmlGpmMetricsGet(self.request)
        return [
            self.number(self.answers[metric], unit) if metric in self.answers else Missing(UNKNOWN + metric)
            for _, metric, unit in GPM_METRICS
        ]

    def number(self, answer, unit):
        if answer.nvmlReturn:
            return Missing(f"GPM: {self.nvml.NVMLError(answer.nvmlReturn)}")
        if not math.isfinite(answer.value):
            return Missing(f"GPM: {answer.value}")
        return round(answer.value, 2) if unit is None else round(answer.value * unit)


class Processes:
    """Compute processes of a GPU and their owners: control group and session, looked up once per process.

    The session is that of the oldest ancestor that is not also the sampler's: launchers start their ranks in sessions of their
    own, and only the session that the runner started identifies the run of a rank.
    """

    def __init__(self, proc="/proc", own_pid=None):
        self.proc = Path(proc)
        self.owners = {}
        self.own_ancestors = set(self.ancestors(own_pid or os.getpid()))

    def describe_all(self, processes):
        """Return [{pid, memory_mib, cgroup, session}]; null if the kernel or NVML withholds a value."""
        self.owners = {process.pid: self.owners.get(process.pid) or self.owner(process.pid) for process in processes}
        return [
            dict(
                self.owners[process.pid],
                pid=process.pid,
                memory_mib=None if process.usedGpuMemory is None else process.usedGpuMemory >> 20,
            )
            for process in processes
        ]

    def owner(self, pid):
        """Look up group and session; a process of another PID namespace is invisible here."""
        folder = self.proc / str(pid)
        try:
            # One line per hierarchy; an unused hierarchy says "/", so that the longest path identifies the group.
            groups = [line.split(":", 2)[2] for line in (folder / "cgroup").read_text().splitlines()]
            oldest = [pid, *(each for each in self.ancestors(pid) if each not in self.own_ancestors)][-1]
            session = int(self.stat(oldest)[3])
        except (OSError, IndexError, ValueError):
            return {"cgroup": None, "session": None}
        return {"cgroup": max(groups, key=len, default=None), "session": session}

    def ancestors(self, pid):
        """Process ids of a process and its ancestors, youngest first."""
        found = []
        while pid:
            found.append(pid)
            pid = int(self.stat(pid)[1])
        return found

    def stat(self, pid):
        """Fields of proc(5)'s stat from the third on: state, parent, process group, session."""
        return (self.proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
