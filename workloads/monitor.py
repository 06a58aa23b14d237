"""The sampler of a node: reads its GPUs and its host several times a second, from before the job until after it.

    python3 monitor.py --node=NAME --hz=10 [--gpus=0,1]

`--gpus` are NVML's indices on the host; without it all GPUs are sampled, with an empty list none. Writes event monitor_start, the rows of
table `telemetry` once a second, an event for each value that can't be read, and monitor_stop (`events.py`). Exits with 0 when its standard
input closes, or on SIGTERM or SIGINT; ignores a standard input that is a character device (/dev/null, which `lease.py` provides).

Nothing that it samples can break or stop it: each device has its own thread (`monitor_sampler.py`), this one only writes, and
a call that never returns is abandoned. Sources: NVML and GPM (`monitor_nvml.py`), DCGM (`monitor_dcgm.py`), psutil and RAPL
(`monitor_host.py`). Otherwise standard library, and syntax of Python 3.6 only.
"""

import argparse
import os
import select
import signal
import stat
import sys
import threading
import time
from pathlib import Path

import monitor_nvml
from events import Events
from monitor_dcgm import Dcgm
from monitor_host import Host
from monitor_sampler import Sampler

DRIVER = "/proc/driver/nvidia/version"  # exists while the kernel has an NVIDIA driver
FLUSH_S = 1.0
STALL_S = 2.0  # after which a call counts as stalled
NVML_OPEN_S = 20.0  # without persistence mode, the driver first wakes every GPU of the host, which takes seconds each
SHUTDOWN_S = 0.5  # for samplers to release their resources; the lease kills everything after five seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", required=True, help="the runner's name of this host")
    parser.add_argument("--hz", type=positive_rate, default=10.0, help="samples a second")
    parser.add_argument("--gpus", type=indices, help="NVML's indices of the GPUs on the host, such as 0,1")
    options = parser.parse_args()
    stopping = ExitRequest()
    events = Events(rank=0)
    host = Host()
    gpus, silent, sources, dcgm = find_gpus(options.gpus, options.hz, stopping)
    sources.update(host.sources)
    described = [gpu.describe() for gpu in gpus]
    events.emit(
        "monitor_start", node=options.node, hz=options.hz, gpus=described, cores=os.cpu_count(), sources=sources
    )
    start, used = time.monotonic(), cpu_seconds()
    samplers = [Sampler(device, options.hz) for device in (*gpus, host)]
    for sampler in samplers:
        sampler.start()
    writer = Writer(events, samplers)
    for gpu, reason in silent.items():
        writer.trouble(gpu, gpu.columns, reason)
    due = start + FLUSH_S
    while not stopping.wait(max(0.0, due - time.monotonic())):
        writer.flush()
        due = max(due + FLUSH_S, time.monotonic())
    for sampler in samplers:
        sampler.stopping = True
    deadline = time.monotonic() + SHUTDOWN_S
    while any(sampler.is_alive() for sampler in samplers) and time.monotonic() < deadline:
        time.sleep(0.01)
    if dcgm is not None:
        dcgm.stop()
    writer.flush()
    events.emit("monitor_stop", samples=writer.rows, seconds=time.monotonic() - start, cpu_s=cpu_seconds() - used)


def positive_rate(word):
    """Parse samples per second, at most 1000; argparse turns the ValueError into a message."""
    value = float(word)
    if not 0 < value <= 1000:
        raise ValueError
    return value


def indices(word):
    return [int(index) for index in word.split(",") if index]


def cpu_seconds():
    """CPU seconds of this process and of the children that it has waited for."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


class ExitRequest:
    """Detects when to exit: end of standard input, SIGTERM or SIGINT."""

    def __init__(self):
        self.wakeup, wakeup_end = os.pipe()
        os.set_blocking(wakeup_end, False)
        signal.set_wakeup_fd(wakeup_end)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: None)
        self.inputs = [self.wakeup]
        if not stat.S_ISCHR(os.fstat(0).st_mode):
            self.inputs.append(0)

    def wait(self, seconds):
        """Wait at most `seconds`, less if standard input has data, which is discarded; return whether to exit."""
        ready, _, _ = select.select(self.inputs, [], [], seconds)
        return self.wakeup in ready or (0 in ready and not os.read(0, 4096))


def find_gpus(indices_wanted, hz, stopping):
    """Find the GPUs, within `NVML_OPEN_S` and until `stopping`: list of `Gpu`, {silent `Gpu`: reason}, sources, and the running `Dcgm` or None."""
    if indices_wanted == []:
        why = "no GPU was asked for" if Path(DRIVER).exists() else "no NVIDIA device"
        return [], {}, dict.fromkeys(("nvml", "gpm", "dcgm"), why), None
    opened = []
    opener = threading.Thread(target=lambda: opened.append(monitor_nvml.find(indices_wanted)), daemon=True)
    opener.start()
    deadline = time.monotonic() + NVML_OPEN_S
    while opener.is_alive() and time.monotonic() < deadline and not stopping.wait(0.01):
        pass
    gpus, silent, reason = opened[0] if opened else ([], {}, "NVML did not answer from the beginning on")
    if not gpus:
        return [], silent, dict.fromkeys(("nvml", "gpm", "dcgm"), reason), None
    without_gpm = [gpu for gpu in gpus if gpu.counters is None]
    sources = {"nvml": None, "gpm": None, "dcgm": "GPM is here"}
    if not without_gpm:
        return gpus, silent, sources, None
    dcgm = Dcgm(hz, monitor_nvml.COUNTERS)
    sources.update(gpm=without_gpm[0].gpm.reason, dcgm=dcgm.reason)
    if dcgm.reason is None:
        for gpu in without_gpm:
            gpu.use_dcgm(dcgm)
    return gpus, silent, sources, dcgm


class Writer:
    """Writes the samplers' results; `rows` counts them."""

    def __init__(self, events, samplers):
        self.events = events
        self.samplers = samplers
        self.stalls = {}
        self.rows = 0

    def flush(self):
        """Write troubles, and the new rows of all devices in one line."""
        times, devices, found = [], [], []
        for sampler in self.samplers:
            self.report_stall(sampler)
            for columns, reason in drain(sampler.troubles):
                self.trouble(sampler.device, columns, reason)
            for now, values in drain(sampler.rows):
                times.append(round(now, 4))
                devices.append(sampler.device.name)
                found.append(values)
        if not found:
            return
        self.rows += len(found)
        columns = {"t": times, "device": devices}
        for name in dict.fromkeys(name for values in found for name in values):
            columns[name] = [values.get(name) for values in found]
        self.events.rows("telemetry", columns)

    def report_stall(self, sampler):
        """Report the sampler's call in progress if it has taken `STALL_S`, once per call."""
        call_began = sampler.call_began
        if call_began is None or time.monotonic() - call_began < STALL_S or self.stalls.get(sampler) == call_began:
            return
        self.stalls[sampler] = call_began
        device = sampler.device
        self.trouble(device, device.columns, f"{device.answerer} did not answer for {STALL_S:g} s")

    def trouble(self, device, columns, reason):
        self.events.emit("trouble", device=device.name, fields=list(columns), reason=reason)


def drain(queue):
    return [queue.popleft() for _ in range(len(queue))]


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # does not wait for a thread whose call never returns
