"""How many bytes a step has to move: the gradients, and the factor that the algorithm makes of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runner.events import Event, RunStart
from runner.interconnect.carrier import carrier
from runner.trial import Trial

# Bytes of a gradient on the wire at the least: fp16.
LEAST_GRADIENT_BYTES: Final = 2


def gradient_bytes(events: Sequence[Event]) -> int | None:
    """What each device hands over to be exchanged in one step, in bytes; None where the program does not tell."""
    starts = [event for event in events if isinstance(event, RunStart)]
    return starts[0].gradient_bytes if starts else None


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


def least_sent(trial: Trial, events: Sequence[Event]) -> int:
    """Bytes that have to cross between the nodes, or the ranks of one, in the measured windows, whatever the algorithm.

    No all-reduce over N nodes gets by with less than 2(N-1) times the gradients (Patarasuk and Yuan, "Bandwidth optimal all-reduce
    algorithms for clusters of workstations", 2009); on one node each rank sends each gradient once at the least.
    """
    starts = [event for event in events if isinstance(event, RunStart)]
    parameters = starts[0].parameters if starts else 1
    if len(trial.placement) < 2:  # noqa: PLR2004
        return trial.iterations * parameters * LEAST_GRADIENT_BYTES
    gradients = gradient_bytes(events) or parameters * LEAST_GRADIENT_BYTES
    return 2 * (len(trial.placement) - 1) * trial.iterations * gradients
