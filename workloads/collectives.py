"""Times and checks all-gather, reduce-scatter and all-to-all among a job's devices before its first step. Standard library at import.

Sharded weights, optimizers and experts use these operations, here by the framework's own library and over the job's own connections. Like
the exchanges of `probe.py`, they do not affect the training. The program has `collectives()`, a context manager that yields
``(offered, missing)``:

    offered     {operation: function that makes an exchange of that operation between one device per process}; its argument is the
                total number of elements, of which each device has a share: what a device sends, or receives in an all-gather
    missing     why operations are missing, as the end of a sentence that starts with their names; None if none is missing

In addition to what `probe.py` needs, an exchange has

    number      index of this process' device among all devices
    share       elements of one share: the total ÷ the number of devices

Bandwidths are those of nccl-tests (`probe.py`): `algbw` is the bytes of all shares together ÷ seconds, `busbw` algbw x (n - 1) / n.
"""

import statistics
import time

from probe import ELEMENT_BYTES, TIMED, bandwidths, part, timed

OPERATIONS = ("all_gather", "reduce_scatter", "all_to_all")
# Sizes whose exchange of gradients takes longer are skipped, so that a slow wire is not probed for minutes.
LONGEST_SECONDS = 0.25


def payload(operation, number, devices, share):
    """What device `number` of `devices` sends, in fp32: (share,) for an all-gather, else (devices x share,), one share per device in order."""
    import numpy as np  # deferred, as in `probe.part`

    if operation == "all_gather":
        return part(number, share)
    first = number * devices if operation == "all_to_all" else number
    return np.concatenate([part(first + other, share) for other in range(devices)])


def expected_result(operation, number, devices, share):
    """The correct result on device `number`: (share,) for a reduce-scatter, else (devices x share,)."""
    import numpy as np

    if operation == "reduce_scatter":  # the sum over i of part(i + number), exact in fp32
        return part(0, share) * devices + devices * (devices - 1) // 2 + devices * number
    numbers = range(devices) if operation == "all_gather" else range(number, devices * devices, devices)
    return np.concatenate([part(other, share) for other in numbers])


def wrong_elements(exchange):
    """Number of wrong elements in this process' result; all of them if it has the wrong size."""
    (result,) = exchange.results()
    expected = expected_result(exchange.operation, exchange.number, exchange.devices, exchange.share)
    return int((result != expected).sum()) if result.shape == expected.shape else expected.size


def collectives(training, events, *, timings):
    """Time every operation that the program offers in every size, as phase `probe_collectives`; do nothing without `timings`.

    `timings`: {size in bytes: this rank's seconds for an exchange of gradients}. Sizes that took any rank more than `LONGEST_SECONDS` are
    skipped. Rank 0 emits one `bandwidth` per operation and size, and `no_collectives` for missing operations.
    """
    if not timings:
        return
    began = time.monotonic()
    with events.without_nccl_log(), training.collectives() as (offered, missing):
        if missing and events.rank == 0:
            events.emit(
                "no_collectives", operations=[name for name in OPERATIONS if name not in offered], reason=missing
            )
        sizes = [size for size in timings if offered and training.ranks.slowest(timings[size]) <= LONGEST_SECONDS]
        for make in offered.values():
            for size in sizes:
                time_exchange(make(size // ELEMENT_BYTES), training, events)
    events.phase("probe_collectives", began)


def time_exchange(exchange, training, events):
    """Time an exchange and check every rank's result: `wrong` is the maximum over the ranks."""
    seconds = [timed(exchange, training) for _ in range(1 + TIMED)][1:]
    wrong = int(training.ranks.slowest(float(wrong_elements(exchange))))
    if events.rank == 0:
        elements = exchange.share * exchange.devices
        found = bandwidths(exchange.operation, exchange.devices, elements * ELEMENT_BYTES, statistics.median(seconds))
        events.emit("bandwidth", elements=elements, dtype="float", seconds=seconds, wrong=wrong, **found)


def by_horovod(hvd, *, on_gpu):
    """``({operation: function(tensor, name)}, missing)`` of a framework's Horovod; the functions allocate their results."""
    ops = {
        "all_gather": lambda tensor, name: hvd.allgather(tensor, name=name),
        "reduce_scatter": lambda tensor, name: hvd.reducescatter(tensor, op=hvd.Sum, name=name),
        "all_to_all": lambda tensor, name: hvd.alltoall(tensor, name=name),
    }
    if not hasattr(hvd, "reducescatter"):  # new in Horovod 0.26
        del ops["reduce_scatter"]
    if on_gpu:  # NCCL would keep buffers for each pair of GPUs, which the training does not need
        del ops["all_to_all"]
    if len(ops) == len(OPERATIONS):
        return ops, None
    return ops, "Horovod keeps memory for it as long as the training runs" if on_gpu else "this Horovod has none"
