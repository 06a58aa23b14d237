"""The result of a diagnosis of nodes: a table of every ratio, a sentence for each node that is out, and the option that excludes these from a job."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from runner.analysis.comparisons.nodes import MARGIN, Diagnosis, Verdict, hostlist
from runner.core.units import ABSENT, figure
from runner.report.table import Table

LEGEND = (
    f"ratio: a node's geometric mean over the rounds ÷ the expected value; a node is out if its whole interval lies below {1 - MARGIN:g}; "
    "the intervals hold jointly with 95 % (Student's t on logarithms, Bonferroni)"
)


def show(console: Console, found: Diagnosis, verdicts: Sequence[Verdict], *, path: Path) -> None:
    """Print what was measured and the verdicts; `path` is the file with the raw values."""
    console.print(f"{found.what}\n{found.device}\n")
    if verdicts:
        columns = {
            "node": lambda one: one.node,
            "figure": lambda one: one.figure,
            "rate": lambda one: f"{figure(one.value)} {one.unit}",
            "against": lambda one: "baseline" if one.baseline else "other nodes",
            "ratio": lambda one: f"{one.ratio:.3f}",
            "interval (95 %)": _interval,
            "": lambda one: "out" if one.is_slow else ABSENT,
        }
        console.print(
            Table.without_empty_columns(verdicts, columns, words=("figure", "rate", "against", "")).terminal()
        )
        console.print(LEGEND, style="dim")
    else:
        nodes = {node: None for one in found.figures for node in one.values}
        lines = [f"{one.name}: {figure(own[-1])} {one.unit}" for one in found.figures for own in one.values.values()]
        alone = f"{', '.join(nodes) or 'no node'} has no other node to compare with; add HOSTS, or --baseline FILE (`dlscale baseline` makes one)"
        console.print("\n".join([*lines, alone]))
    for sentence in sentences(found, verdicts):
        console.print(sentence)
    if excluded := hostlist(out(found, verdicts)):
        console.print(f"--exclude={excluded}", markup=False, highlight=False)
    console.print(f"measured: {path}", style="dim", markup=False, highlight=False)


def out(found: Diagnosis, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """The nodes that a job must avoid."""
    return tuple(dict.fromkeys([*found.failed, *(one.node for one in verdicts if one.is_slow)]))


def sentences(found: Diagnosis, verdicts: Sequence[Verdict]) -> list[str]:
    """Why each node is out, one sentence per figure."""
    failed = [f"{node} is out: {why}" for node, why in found.failed.items()]
    return failed + [
        f"{one.node} is out: {one.figure} {figure(one.value)} {one.unit}, {one.ratio:.3f} ({_interval(one)}) of "
        f"{'the baseline' if one.baseline else 'the median of the other nodes'}, {figure(one.expected)} {one.unit}"
        for one in verdicts
        if one.is_slow
    ]


def print_json(found: Diagnosis, verdicts: Sequence[Verdict]) -> None:
    """Print the same as JSON to standard output."""
    nodes = out(found, verdicts)
    document = {
        "what": found.what,
        "device": found.device,
        "out": nodes,
        "exclude": hostlist(nodes),
        "failed": dict(found.failed),
        "verdicts": [{**one.model_dump(mode="json"), "out": one.is_slow} for one in verdicts],
    }
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def _interval(verdict: Verdict) -> str:
    return f"{verdict.interval.low:.3f} to {verdict.interval.high:.3f}"
