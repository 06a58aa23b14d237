"""What the wires and the devices of a job can do by themselves, so that a poor speedup can be told apart. Standard library at import.

`wires` times exchanges of buffers of fp32 among the ranks of the job, in the framework's own library and over the job's own
connections, before the first step. `compute` times forward and backward passes that exchange nothing, after the warm-up. All ranks do
the same sequence, whatever they measure. Neither changes a weight, a random number of the training or an optimizer's state.

`peak` times products of matrices on CPUs, whose peak no table has, before the first step: utilisation is held against the fastest.

What other exchanges than that of gradients the wires can do is in `collectives.py`.

The program hands over the object that `loop.py` describes; for its probe it has two more methods, and where it can a third, and on CPUs a fourth:

    exchange(elements)  a new buffer of fp32 on each device of this process, None where there is nobody to exchange it with
    alone()             a function that enqueues one forward and backward pass on a batch that nobody trains on and drops the gradients;
                        None where no pass by itself is like those of a step
    backward()          what the event `backward` has of one pass, None where it can't be told
    product(size, precision)  ``(run, count, library)``: a function that multiplies `count` pairs of square matrices of `size` rows, one on
                        each device of this process, to be waited for by `synchronize`, and what does it

An exchange has

    operation   `all_reduce`: every device gets the sum. `push_pull`: every worker sends its buffer to where the sum is made, and gets it
    devices     how many add to the sum
    fill()      put `part` of each device into its buffer
    run()       enqueue one exchange
    results()   what the devices of this process got in the last one, as NumPy arrays

Bandwidths are those of nccl-tests (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md) in 1e9 bytes a second: `algbw` is
the buffer's bytes ÷ seconds. `busbw` is what has to leave each device in that time: of an all-reduce among n devices algbw x 2 (n - 1) / n,
whatever the algorithm; of a push_pull algbw, as a worker sends and gets its buffer once. A server carries that for each of its workers.
"""

import math
import os
import statistics
import time

SMALLEST = 512  # rows of the first matrices; each size is twice the one before, as long as a product is done in
EACH_SIZE_SECONDS = 0.25  # for which it is timed over and over, after one untimed
TIMED = 3  # after one untimed exchange or pass, which connects, allocates and compiles
ELEMENT_BYTES = 4
# Contributions repeat after so many elements: sums stay exact in fp32, and an element in another's place does not go unseen.
PERIOD = 8


def part(number, elements):
    """What device `number` of all adds to the sum: (elements,) in fp32, element i is i mod 8 + number."""
    import numpy as np  # here, as its thread pools take their place at import, before which a rank has to be pinned

    return (np.arange(elements, dtype=np.int32) % PERIOD + number).astype(np.float32)


def wrong_elements(results, devices):
    """How many elements of the results are not the sum of the parts of `devices` devices."""
    import numpy as np

    found = 0
    for result in results:
        total = np.arange(result.size, dtype=np.int32) % PERIOD * devices + devices * (devices - 1) // 2
        found += int((result != total).sum())
    return found


def bus_factor(operation, devices):
    """How much has to leave each device for each byte of the buffer, or of all shares together."""
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
    """Time exchanges of buffers of `sizes` bytes; rank 0 emits one `bandwidth` for each size, all the phase `probe_wires`.

    Gives the median seconds of each size on this rank, by size; empty where there is nobody to exchange anything with.
    """
    began, took = time.monotonic(), {}
    for size in sizes:
        exchange = training.exchange(size // ELEMENT_BYTES)
        if exchange is None:
            return took
        seconds = [timed(exchange, training) for _ in range(1 + TIMED)][1:]
        wrong = wrong_elements(exchange.results(), exchange.devices)
        took[size] = statistics.median(seconds)
        if events.rank == 0:
            found = bandwidths(exchange.operation, exchange.devices, size, took[size])
            events.emit(
                "bandwidth", elements=size // ELEMENT_BYTES, dtype="float", seconds=seconds, wrong=wrong, **found
            )
    events.phase("probe_wires", began)
    return took


def timed(exchange, training):
    """Seconds of one exchange on this rank, from when all ranks have met."""
    exchange.fill()
    training.synchronize()
    training.barrier()
    start = time.monotonic()
    exchange.run()
    training.synchronize()
    return time.monotonic() - start


def compute(training, events):
    """Time passes that exchange nothing, on all ranks at once as in a step, since they share what a host has.

    Nothing where `training.alone` knows of none that are like those of a step.
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
    passed = training.backward() if hasattr(training, "backward") else None
    if passed:
        events.emit("backward", **passed)
    events.phase("probe_compute", began)


def peak(training, events):
    """Time products of matrices on the cores of all ranks at once and emit the fastest as `peak`; nothing on GPUs.

    A training in bf16 computes in fp32 where its cores have no bf16, or are slower in it: the faster of the two is its peak.
    """
    if not hasattr(training, "product") or training.args.device != "cpu":
        return
    began = time.monotonic()
    precision = training.args.precision
    training.barrier()
    found = [fastest(training, kind) for kind in dict.fromkeys((precision, "fp32"))]
    rate, library = max(found)
    cores = len(os.sched_getaffinity(0))
    events.emit("peak", precision=precision, cores=cores, flop_per_s=rate, library=library)
    events.phase("probe_peak", began)


def fastest(training, precision):
    """FLOP/s of the fastest product, and what multiplied: few cores are fastest with matrices that their caches hold, many with large ones."""
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
    """Seconds of something that is enqueued, until the device has done it."""
    start = time.monotonic()
    run()
    training.synchronize()
    return time.monotonic() - start
