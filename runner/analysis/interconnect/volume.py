"""How many bytes the gradients have to move in the measured windows, and the factor that the algorithm makes of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runner.core.carrier import carrier
from runner.core.events import Event
from runner.core.events.training import RunStart, Window
from runner.core.trial import Trial

# Bytes of a gradient on the wire at the least: fp16.
LEAST_GRADIENT_BYTES: Final = 2


def gradient_bytes(events: Sequence[Event]) -> int | None:
    """What each device hands over to be exchanged in one step, in bytes; None where the program does not tell."""
    starts = [event for event in events if isinstance(event, RunStart)]
    return starts[0].gradient_bytes if starts else None


def measured_iterations(trial: Trial, events: Sequence[Event]) -> int:
    """Iterations between the two readings of the counters; those that were asked for where no window was told."""
    ranks: dict[int, int] = {}
    for event in events:
        if isinstance(event, Window):
            ranks[event.rank] = ranks.get(event.rank, 0) + event.iterations
    return min(ranks.values(), default=trial.iterations)


def handed_over(trial: Trial, events: Sequence[Event]) -> int | None:
    """What each device hands over in the measured windows, in bytes; None where the program tells nothing of its network.

    Every device of an exchange sends that much and receives as much, whatever the algorithm: its own part has to reach the others, and
    the sum has to reach it. Where the program tells only its parameters, they are counted as fp16.
    """
    starts = [event for event in events if isinstance(event, RunStart)]
    if not starts:
        return None
    own = gradient_bytes(events) or starts[0].parameters * LEAST_GRADIENT_BYTES
    return own * measured_iterations(trial, events)


def gradient_factor(trial: Trial) -> float:
    """Bytes that all nodes together send in a step ÷ bytes of the gradients; 0 on one node.

    A ring all-reduce over n ranks sends 2(n-1)/n of the gradients along each of its edges (nccl-tests, doc/PERFORMANCE.md), and of the
    edges one leaves each of the N nodes: 2N(n-1)/n. NCCL may take a tree instead, which sends 2(N-1), the same for a rank a node.

    Parameter servers, one on each of N nodes, hold 1/N of the weights each: each of the w workers sends its gradients to and gets
    the weights from the other N-1, 2w(N-1)/N in all.
    """
    nodes, ranks = len(trial.placement), trial.processes
    if nodes < 2:  # noqa: PLR2004 - nothing leaves the only one
        return 0.0
    if carrier(trial) == "ps-lite":
        return 2 * ranks * (nodes - 1) / nodes
    return 2 * nodes * (ranks - 1) / ranks


def least_factor(trial: Trial) -> float:
    """The same of the algorithm that sends least: `gradient_factor`, or what a tree between the nodes sends."""
    return min(gradient_factor(trial), 2.0 * (len(trial.placement) - 1))


def least_sent(trial: Trial, events: Sequence[Event]) -> int | None:
    """Bytes that have to cross between the nodes, or between the devices of one, in the measured windows; None as in `handed_over`.

    No all-reduce over N of them gets by with less than 2(N-1) times the gradients (Patarasuk and Yuan, "Bandwidth optimal all-reduce
    algorithms for clusters of workstations", 2009). Parameter servers beside their workers send 2N times the gradients.
    """
    own = handed_over(trial, events)
    parties = len(trial.placement) if len(trial.placement) > 1 else trial.world_size
    return None if own is None else 2 * (parties - 1) * own
