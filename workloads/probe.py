"""Measures wires and devices of a job in isolation, so that the cause of a poor speedup can be found. Standard library at import.

`wires` times exchanges of fp32 buffers among the job's ranks, by the framework's own library and over the job's own
connections, before the first step. `compute` times forward and backward passes without any exchange, after the last step, when a GPU's
clock is that of the steps: a GPU that draws all the power it may is slowed down only after seconds of work. All ranks run
the same sequence, whatever they measure. Neither changes a weight, a random number of the training or the optimizer's state.

`peak` times matrix products on CPUs, whose peak is in no table, before the first step: utilisation is relative to the fastest.

`collectives.py` probes exchanges other than that of gradients.

The program passes in the object that `loop.py` describes, with two more methods, optionally a third, and on CPUs a fourth:

    exchange(elements)  an exchange of a new fp32 buffer of that length on each device, None if the strategy joins no other device
    alone()             a function that enqueues one forward and backward pass on a batch that is not trained on and drops the gradients;
                        None if no separate pass resembles that of a step
    backward()          the fields of the event `backward` for one pass, None if they can't be measured
    product(size, precision)  ``(run, count, library)``: `run` enqueues `count` products of square matrices of `size` rows, one for each device
                        or one that uses the cores of all, and `library` names the function that computes them

An exchange has

    operation   `all_reduce`: every device gets the sum. `push_pull`: every worker pushes its buffer to the server that sums, and pulls the sum
    devices     number of terms in the sum
    fill()      copy `part` of each device into its buffer
    run()       enqueue one exchange
    results()   results of the last exchange on the devices of this process, as NumPy arrays

Bandwidths are those of nccl-tests (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md) in 1e9 bytes a second: `algbw` is
the buffer's bytes ÷ seconds. `busbw` is the traffic that has to leave each device in that time: of an all-reduce among n devices algbw x
2 (n - 1) / n, whatever the algorithm; of a push_pull algbw, as a worker sends and gets its buffer once. A server carries that per worker.
"""

import math
import os
import statistics
import time

SMALLEST = 512  # rows of the first matrices; sizes double as long as the next product fits into the time
EACH_SIZE_SECONDS = 0.25  # of timed products per size, after one untimed product
TIMED = 3  # timed exchanges or passes, after one untimed, which connects, allocates and compiles
ELEMENT_BYTES = 4
# Contributions repeat after so many elements: sums stay exact in fp32, and a misplaced element is still detected.
PERIOD = 8


def part(number, elements):
    """Term of device `number` in the sum: (elements,) in fp32, element i is i mod 8 + number."""
    import numpy as np  # deferred: its thread pools read the affinity at import, so a rank is pinned first

    return (np.arange(elements, dtype=np.int32) % PERIOD + number).astype(np.float32)


def wrong_elements(results, devices):
    """Number of result elements that differ from the sum of the parts of `devices` devices."""
    import numpy as np

    wrong = 0
    for result in results:
        total = np.arange(result.size, dtype=np.int32) % PERIOD * devices + devices * (devices - 1) // 2
        wrong += int((result != total).sum())
    return wrong


def bus_factor(operation, devices):
    """Bytes that have to leave each device per byte of the buffer, or of all shares together."""
    if operation == "push_pull":
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (devices - 1) / devices


def bandwidths(operation, devices, size, seconds):
    """The fields of the event `bandwidth` that follow from the seconds of an exchange of `size` bytes."""
    algbw = size / seconds / 1e9
    return {
        "operation": operation,
        "size_bytes": size,
        "time_us": seconds * 1e6,
        "algbw_gb_s": algbw,
        "busbw_gb_s": algbw * bus_factor(operation, devices),
    }


def wires(training, events, *, sizes):
    """Time exchanges of buffers of `sizes` bytes; all of it is phase `probe_wires`.

    Rank 0 emits one `bandwidth` per size, another rank only if its result is wrong: servers of a kvstore can't tell ranks the maximum.
    Returns this rank's median seconds by size; empty if there is no other device.
    """
    began, median_seconds = time.monotonic(), {}
    for size in sizes:
        exchange = training.exchange(size // ELEMENT_BYTES)
        if exchange is None:
            return median_seconds
        seconds = [timed(exchange, training) for _ in range(1 + TIMED)][1:]
        wrong = wrong_elements(exchange.results(), exchange.devices)
        median_seconds[size] = statistics.median(seconds)
        if events.rank == 0 or wrong:
            fields = bandwidths(exchange.operation, exchange.devices, size, median_seconds[size])
            events.emit(
                "bandwidth", elements=size // ELEMENT_BYTES, dtype="float", seconds=seconds, wrong=wrong, **fields
            )
    events.phase("probe_wires", began)
    return median_seconds


def timed(exchange, training):
    """Seconds of one exchange on this rank, starting at a barrier."""
    exchange.fill()
    training.synchronize()
    training.barrier()
    start = time.monotonic()
    exchange.run()
    training.synchronize()
    return time.monotonic() - start


def compute(training, events):
    """Time passes without exchange, on all ranks concurrently as in a step, since they share the host's resources.

    Does nothing if `training.alone` returns None.
    """
    began = time.monotonic()
    run = training.alone()
    if run is None:
        return
    run()
    training.synchronize()
    training.barrier()
    seconds = []
    for _ in range(TIMED):
        start = time.monotonic()
        run()
        training.synchronize()
        seconds.append(time.monotonic() - start)
    events.emit("compute", seconds=seconds)
    backward_fields = training.backward() if hasattr(training, "backward") else None
    if backward_fields:
        events.emit("backward", **backward_fields)
    events.phase("probe_compute", began)


def peak(training, events):
    """Time matrix products on the cores of all ranks concurrently and emit the fastest as `peak`; nothing on GPUs.

    A bf16 training computes in fp32 if its cores lack bf16 or are slower in it: the faster of the two is its peak.
    """
    if not hasattr(training, "product") or training.args.device != "cpu":
        return
    began = time.monotonic()
    precision = training.args.precision
    training.barrier()
    rate, library = max(fastest(training, kind) for kind in dict.fromkeys((precision, "fp32")))
    cores = len(os.sched_getaffinity(0))
    events.emit("peak", precision=precision, cores=cores, flop_per_s=rate, library=library)
    events.phase("probe_peak", began)


def fastest(training, precision):
    """FLOP/s of the fastest product, and its library and precision: few cores are fastest with matrices that fit their caches, many with large."""
    best, seconds, size = 0.0, 0.0, SMALLEST // 2
    while 8 * seconds < EACH_SIZE_SECONDS:
        size *= 2
        run, count, library = training.product(size, precision)
        seconds_of(run, training)  # allocates
        seconds, end = math.inf, time.monotonic() + EACH_SIZE_SECONDS
        while time.monotonic() < end:
            seconds = min(seconds, seconds_of(run, training))
        best = max(best, 2 * size**3 * count / seconds)
    return best, library + " in " + precision


def seconds_of(run, training):
    """Seconds from the call of `run` until the device has completed what it enqueued."""
    start = time.monotonic()
    run()
    training.synchronize()
    return time.monotonic() - start
