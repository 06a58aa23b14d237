"""Several trainings on one machine: which runs show what it is worth to have them at once, and what those came to. Pure.

The devices are all that were asked for: one training alone on them, several one after the other on all of them, and as many at once,
each on its own share, or all on all of them where the devices can't be shared out.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.core.errors import RequestError
from runner.core.trial import Concurrent


def devices_of_cases(trainings: int, asked: Sequence[int]) -> tuple[int, ...]:
    """Numbers of devices that a training has in some case, ascending.

    Raises:
        RequestError: a sweep; trainings at once are compared on one number of devices.
    """
    if len(asked) > 1:
        listed = ",".join(map(str, asked))
        raise RequestError(
            f"CONCURRENT={trainings} compares on one number of devices, {listed} asked or usual here; give one, such as WORKERS={asked[-1]}"
        )
    return tuple(sorted({devices for devices, _ in cases(trainings, asked[0])}))


def cases(trainings: int, devices: int) -> tuple[tuple[int, Concurrent], ...]:
    """Every training of one repeat in the order in which they run, each with the number of its devices."""
    shared = devices % trainings != 0
    each = devices if shared else devices // trainings
    numbers = range(1, trainings + 1)
    return (
        (devices, Concurrent(trainings=trainings, case="one", number=1)),
        *((devices, Concurrent(trainings=trainings, case="sequential", number=number)) for number in numbers),
        *((each, Concurrent(trainings=trainings, case="together", number=number, shared=shared)) for number in numbers),
    )
