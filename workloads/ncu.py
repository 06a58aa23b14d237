"""Runs a program under NVIDIA Nsight Compute (`ncu`) and writes each kernel's counters as rows of table `kernels`.

    python3 ncu.py --ncu=/opt/nvidia/nsight-compute/2025.3.0/ncu PROGRAM ARGS...

It profiles only what the program brackets with cudaProfilerStart and cudaProfilerStop. Each such kernel runs alone, and several times
if the counters don't fit into one pass, so that its rows have a duration but no start: they cannot show overlap with other kernels.
Clocks and caches stay as the program leaves them, as with every other source of utilisation.

fp32_percent    executed FP32 operations (an FMA is two) ÷ what the FP32 units can do in that time: achieved work and peak as in the
                roofline of Nsight Compute (`SpeedOfLight_RooflineChart.section`), tensor cores excluded.
tensor_percent  cycles with an active tensor pipe ÷ all cycles: DCGM's and GPM's tensor activity.
dram_bytes      bytes read and written.

The program runs twice (once if that fails or has no kernels). ncu counts instructions in a patched copy of a kernel; with hardware counters
in the same run, it loads copy and kernel alternately: 120 kernels took 18.9 s on an H200, and 4.5 s and 2.2 s in two runs. The program's
output is printed once. A kernel that only the first run had, for instance if autotuning chose another in the second, has no FLOP count.

The raw CSV of both runs goes to standard output before the rows, for the log. The exit code is the program's own. Standard library and
syntax of Python 3.6 only.
"""

import csv
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from events import Events

DURATION = "gpu__time_duration.sum"
DRAM = "dram__bytes.sum"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
# FP32 operations per executed instruction; predicated-off thread instructions do not count.
OPERATIONS = {"fadd": 1, "fmul": 1, "ffma": 2}
EXECUTED = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
# FMAs that all multiprocessors together can issue per cycle.
PEAK = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained"
CYCLES = "smsp__cycles_elapsed.avg"
HARDWARE = (DURATION, DRAM, TENSOR, CYCLES)
INSTRUCTIONS = (PEAK, *(EXECUTED.format(name) for name in OPERATIONS))
FLAGS = (
    *("--csv", "--page=raw", "--print-units=base", "--profile-from-start=off", "--target-processes=all"),
    *("--clock-control=none", "--cache-control=none"),
)
# Nsight Compute 2024 shortened the unit names.
SECONDS = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
BYTES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}
UNITS = dict.fromkeys(("", "%", "inst", "inst/cycle", "cycle"), 1.0)
UNITS.update({times + unit: factor for unit in ("s", "second") for times, factor in SECONDS.items()})
UNITS.update({times + "byte": factor for times, factor in BYTES.items()})


def main(argv):
    ncu, program = argv[0][len("--ncu=") :], argv[1:]
    try:
        code, page = run(ncu, HARDWARE, program)
        hardware = rows(page)
        second_code, instructions = run(ncu, INSTRUCTIONS, program, silent=True) if hardware and code == 0 else (0, "")
    except OSError as error:
        sys.stderr.write(f"ncu: {ncu}: {error.strerror}\n")
        return 127
    sys.stdout.write(page + instructions)
    # ncu's own errors (missing permission for counters, for one) end the log.
    sys.stderr.writelines(line + "\n" for line in (page + instructions).splitlines() if line.startswith("==ERROR=="))
    if second_code:
        sys.stderr.write(f"ncu: the second run exited with {second_code}; kernels have no counts of operations\n")
    launches = kernels(hardware, [] if second_code else rows(instructions))
    if launches:
        Events(rank=0).table("kernels", columns(launches))
    return 128 - code if code < 0 else code


def run(ncu, metrics, program, *, silent=False):
    """Run the program under ncu, discarding its output if `silent`; return its exit code and the raw page."""
    output = subprocess.DEVNULL if silent else None
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "ncu.csv"
        command = [ncu, *FLAGS, "--metrics=" + ",".join(metrics), f"--log-file={log}", *program]
        code = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        return code, log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def rows(page):
    """Parse the raw page of ncu's CSV: a row per kernel, {counter: (value, unit)}."""
    lines = page.splitlines()
    header = next((number for number, line in enumerate(lines) if line.startswith('"ID","Process ID"')), None)
    if header is None:
        return []
    units, *records = list(csv.DictReader(line for line in lines[header:] if line.startswith('"'))) or [{}]
    return [{name: (text, units[name]) for name, text in row.items()} for row in records]


def kernels(hardware, instructions):
    """Join the rows of both runs: one dict of columns per kernel; a counter that this GPU lacks is None."""
    executed = defaultdict(list)
    for row in reversed(instructions):
        executed[_launch(row)].append(row)
    return [_kernel(row, executed[_launch(row)].pop() if executed[_launch(row)] else {}) for row in hardware]


def columns(launches):
    return {name: [kernel[name] for kernel in launches] for name in launches[0]}


def _launch(row):
    """Key that matches a kernel across the runs: the nth launch of a name and shape is the same in both."""
    return tuple(row[name] for name in ("Device", "Stream", "Kernel Name", "Grid Size", "Block Size") if name in row)


def _kernel(row, executed):
    flop = _total([(_number(executed, EXECUTED.format(name)), times) for name, times in OPERATIONS.items()])
    cycles, peak = _number(row, CYCLES), _number(executed, PEAK)
    return {
        "kind": "kernel",
        "name": _text(row, "Kernel Name"),
        # Versions before 2021 omit the device; under ncu a program has only one.
        "device": int(_text(row, "Device") or 0),
        "stream": int(_text(row, "Stream")),
        "duration": _number(row, DURATION),
        "grid": _shape(_text(row, "Grid Size")),
        "block": _shape(_text(row, "Block Size")),
        "flop": flop,
        "fp32_percent": 100 * flop / (2 * peak * cycles) if peak and cycles and flop is not None else None,
        "tensor_percent": _number(row, TENSOR),
        "dram_bytes": _number(row, DRAM),
    }


def _text(row, name):
    return row.get(name, (None, None))[0]


def _number(row, name):
    """Value in the base unit; None for `n/a`, an unknown unit, or a missing value."""
    text, unit = row.get(name, (None, None))
    try:
        return float(text.replace(",", "")) * UNITS[unit]
    except (AttributeError, KeyError, ValueError):
        return None


def _total(counts):
    """Operations of all kinds of instructions; None if a count is missing."""
    return None if any(count is None for count, _ in counts) else sum(count * times for count, times in counts)


def _shape(text):
    """Turn `(256, 1, 1)` into `256,1,1`."""
    return text.strip("()").replace(" ", "") if text else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
