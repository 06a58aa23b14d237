"""All-gather, reduce-scatter and all-to-all among the devices of a job, timed and checked before its first step. Standard library at import.

They are what sharded weights, optimizers and experts exchange, in the framework's own library and over the job's own connections. Like
`probe.py`, whose exchanges they are, they change nothing of the training. The program has `collectives()`, a context manager that gives
``(offered, missing)``:

    offered     by operation, a function that makes an exchange, with the same name for its `operation`, of one device a process from
                a number of elements that all devices share: what a device sends in all, and of an all-gather what it gets
    missing     why operations are not offered, in words that go on after their names; None where all are

An exchange has besides what `probe.py` asks for

    number      of this process' device among all
    share       elements that a device has for each other, or of the result

Bandwidths are those of nccl-tests (`probe.py`): `algbw` is the bytes of all shares together ÷ seconds, `busbw` algbw x (n - 1) / n.
"""

import statistics
import time

from probe import ELEMENT_BYTES, TIMED, bandwidths, part, timed

OPERATIONS = ("all_gather", "reduce_scatter", "all_to_all")
# That an exchange of gradients of the same size may take, so that a slow wire is not probed for minutes.
LONGEST_SECONDS = 0.25


def sent(operation, number, devices, share):
    """What device `number` of `devices` sends: (share,) in fp32 to be gathered, else (devices x share,), a share for each device in order."""
    import numpy as np  # here, as in `probe.part`

    if operation == "all_gather":
        return part(number, share)
    first = number * devices if operation == "all_to_all" else number
    return np.concatenate([part(first + other, share) for other in range(devices)])


def due(operation, number, devices, share):
    """What device `number` has to get of what all have sent: (share,) of a reduce-scatter, else (devices x share,)."""
    import numpy as np

    if operation == "reduce_scatter":  # the sum over i of part(i + number), exact in fp32
        return part(0, share) * devices + devices * (devices - 1) // 2 + devices * number
    numbers = range(devices) if operation == "all_gather" else range(number, devices * devices, devices)
    return np.concatenate([part(other, share) for other in numbers])


def wrong_elements(exchange):
    """How many elements of what this process' device got are not those that are due; all of them where it got more or fewer."""
    (result,) = exchange.results()
    expected = due(exchange.operation, exchange.number, exchange.devices, exchange.share)
    return int((result != expected).sum()) if result.shape == expected.shape else expected.size


def collectives(training, events, *, took):
    """Time what the program offers in sizes of up to so many bytes; all the phase `probe_collectives`.

    `took` has the seconds that an exchange of gradients of each size took this rank; sizes that took any rank more than `LONGEST_SECONDS` are
    left out. Rank 0 emits one `bandwidth` for each operation and size, and `no_collectives` for those that are not offered.
    """
    if not took:
        return
    began = time.monotonic()
    with events.aside(), training.collectives() as (offered, missing):
        if missing and events.rank == 0:
            events.emit(
                "no_collectives", operations=[name for name in OPERATIONS if name not in offered], reason=missing
            )
        quick = [size for size in took if offered and training.ranks.slowest(took[size]) <= LONGEST_SECONDS]
        for make in offered.values():
            for size in quick:
                time_one(make(size // ELEMENT_BYTES), training, events)
    events.phase("probe_collectives", began)


def time_one(exchange, training, events):
    """Time an exchange and check what every rank got: `wrong` is of the rank that has the most wrong elements."""
    seconds = [timed(exchange, training) for _ in range(1 + TIMED)][1:]
    wrong = int(training.ranks.slowest(float(wrong_elements(exchange))))
    if events.rank == 0:
        elements = exchange.share * exchange.devices
        found = bandwidths(exchange.operation, exchange.devices, elements * ELEMENT_BYTES, statistics.median(seconds))
        events.emit("bandwidth", elements=elements, dtype="float", seconds=seconds, wrong=wrong, **found)


def by_horovod(hvd, *, on_gpu):
    """``({operation: function(tensor, name)}, missing)`` of a framework's Horovod, whose functions make the result that they give."""
    known = {
        "all_gather": lambda tensor, name: hvd.allgather(tensor, name=name),
        "reduce_scatter": lambda tensor, name: hvd.reducescatter(tensor, op=hvd.Sum, name=name),
        "all_to_all": lambda tensor, name: hvd.alltoall(tensor, name=name),
    }
    if not hasattr(hvd, "reducescatter"):  # Horovod has it since 0.26
        del known["reduce_scatter"]
    if on_gpu:  # NCCL keeps buffers for each pair of GPUs that the training does without
        del known["all_to_all"]
    if len(known) == len(OPERATIONS):
        return known, None
    return known, "Horovod keeps memory for it as long as the training runs" if on_gpu else "this Horovod has none"
