"""Prevents: a Slurm run that continues for `SlurmdTimeout`, five minutes, after a node was cut off, and one that is ended because a node is
silent while it compiles."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.core.container_spec import ContainerSpec
from runner.core.provenance import SUITE_ROOT
from runner.engines import command
from runner.engines.base import NodeGoneError
from runner.engines.boxes import Bare
from runner.engines.command import CommandEngine
from runner.engines.ways import Here


@dataclass(frozen=True)
class SilentLoss(Here):
    """A way to a node that can be reached as long as a file exists."""

    notices_loss = False
    link: Path = Path()

    def reach(self, node, words):
        return (
            "sh",
            "-c",
            'test -e "$0" || { echo "$1: no route" >&2; exit 1; }; shift; exec "$@"',
            str(self.link),
            node,
            *words,
        )


@pytest.fixture
def link(tmp_path):
    path = tmp_path / "link"
    path.touch()
    return path


@pytest.fixture
def engine(link):
    return CommandEngine(SilentLoss(link=link), Bare(Path(sys.executable), SUITE_ROOT / "workloads"), version=None)


def test_a_silent_node_is_reached_again_and_is_gone_if_that_fails(engine, link, monkeypatch):
    engine.check("n2")  # the first check starts the clock
    link.unlink()
    engine.check("n2")  # not silent for long enough
    monkeypatch.setattr(command, "SILENCE_S", 0.0)
    with pytest.raises(NodeGoneError, match="n2: no route"):
        engine.check("n2")
    link.touch()
    engine.check("n2")
    monkeypatch.setattr(command, "SILENCE_S", 60.0)
    link.unlink()
    engine.check("n2")  # reaching it counts as a sign of life


def test_output_of_any_container_counts_even_of_another_engines(engine, monkeypatch):
    sampler = CommandEngine(engine.way, engine.box, version=None, last_output=engine.last_output)
    argv = (sys.executable, "-c", "print('one', flush=True); input()")
    spec = ContainerSpec(name="s", node="n2", role="worker", image="none", argv=argv, env={}, user="0:0", labels={})
    container = sampler.start(spec)
    before = sampler.last_output.get("n2")
    lines = container.lines()
    assert next(lines).text == "one"
    assert engine.last_output["n2"] > (before or 0)
    container.send(b"\n")
    container.remove()
