"""Runs a program under NVIDIA Nsight Compute (`ncu`) and writes what its counters said of each kernel as rows of table `kernels`.

    python3 ncu.py --ncu=/opt/nvidia/nsight-compute/2025.3.0/ncu PROGRAM ARGS...

Only what the program brackets with cudaProfilerStart and cudaProfilerStop is looked at. Each such kernel runs alone, several times over
where the counters don't fit into one pass, so that its rows have a duration and no start: nothing can be said of what ran beside it.
Clocks and caches are left as the program has them, as no other source of utilisation changes them either.

fp32_percent    executed FP32 operations (an FMA is two) ÷ what the FP32 units can do in that time: the achieved work and the peak of the
                roofline that comes with Nsight Compute (`SpeedOfLight_RooflineChart.section`). Tensor cores have no part in it.
tensor_percent  cycles in which the tensor pipe was active ÷ all cycles: what DCGM and GPM call tensor activity.
dram_bytes      read and written.

The raw CSV goes to standard output before the rows, for the log. The exit code is the program's own. Standard library and syntax of
Python 3.6 only.
"""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

from events import Events

DURATION = "gpu__time_duration.sum"
DRAM = "dram__bytes.sum"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
# FP32 operations that one executed instruction is; thread instructions that are predicated off do not count.
OPERATIONS = {"fadd": 1, "fmul": 1, "ffma": 2}
EXECUTED = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
# FMAs that all multiprocessors together can begin in a cycle.
PEAK = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained"
METRICS = (
    *(DURATION, DRAM, TENSOR, PEAK),
    *(EXECUTED.format(name) + per for name in OPERATIONS for per in ("", ".per_cycle_elapsed")),
)
FLAGS = (
    *("--csv", "--page=raw", "--print-units=base", "--profile-from-start=off", "--target-processes=all"),
    *("--clock-control=none", "--cache-control=none", "--metrics=" + ",".join(METRICS)),
)
# Nsight Compute 2024 shortened the names of its units.
SECONDS = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
BYTES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}
UNITS = dict.fromkeys(("", "%", "inst", "inst/cycle"), 1.0)
UNITS.update({times + unit: factor for unit in ("s", "second") for times, factor in SECONDS.items()})
UNITS.update({times + "byte": factor for times, factor in BYTES.items()})


def main(argv):
    flag, program = argv[0], argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "ncu.csv"
        command = [flag[len("--ncu=") :], *FLAGS, f"--log-file={log}", *program]
        try:
            code = subprocess.call(command, stdin=subprocess.DEVNULL)
        except OSError as error:
            sys.stderr.write(f"ncu: {command[0]}: {error.strerror}\n")
            return 127
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    sys.stdout.write(text)
    # Its own word on what went wrong (no right to counters, for one) is the last that the log has.
    sys.stderr.writelines(line + "\n" for line in text.splitlines() if line.startswith("==ERROR=="))
    found = kernels(text)
    if found:
        Events(rank=0).table("kernels", columns(found))
    return 128 - code if code < 0 else code


def kernels(text):
    """Read the raw page of ncu's CSV: one dict of columns a kernel; a counter that this GPU does not have is None."""
    lines = text.splitlines()
    header = next((number for number, line in enumerate(lines) if line.startswith('"ID","Process ID"')), None)
    if header is None:
        return []
    rows = list(csv.DictReader(line for line in lines[header:] if line.startswith('"')))
    return [_kernel(row, rows[0]) for row in rows[1:]]


def columns(found):
    return {name: [kernel[name] for kernel in found] for name in found[0]}


def _kernel(row, units):
    def value(name):
        return _number(row.get(name), units.get(name))

    executed = [(value(EXECUTED.format(name)), times) for name, times in OPERATIONS.items()]
    a_cycle = [(value(EXECUTED.format(name) + ".per_cycle_elapsed"), times) for name, times in OPERATIONS.items()]
    flop, flop_a_cycle, peak = _total(executed), _total(a_cycle), value(PEAK)
    return {
        "kind": "kernel",
        "name": row["Kernel Name"],
        "device": int(
            row.get("Device") or 0
        ),  # versions before 2021 don't say; one is all that a program has under ncu
        "stream": int(row["Stream"]),
        "duration": value(DURATION),
        "grid": _shape(row.get("Grid Size")),
        "block": _shape(row.get("Block Size")),
        "flop": flop,
        "fp32_percent": 100 * flop_a_cycle / (2 * peak) if peak and flop_a_cycle is not None else None,
        "tensor_percent": value(TENSOR),
        "dram_bytes": value(DRAM),
    }


def _number(text, unit):
    """Read a value in its unit's base; None for `n/a`, and for a unit that nobody here knows."""
    try:
        return float(text.replace(",", "")) * UNITS[unit]
    except (AttributeError, KeyError, ValueError):
        return None


def _total(counts):
    """Operations of all kinds of instructions; None where one could not be counted."""
    return None if any(count is None for count, _ in counts) else sum(count * times for count, times in counts)


def _shape(text):
    """Turn `(256, 1, 1)` into `256,1,1`."""
    return text.strip("()").replace(" ", "") if text else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
