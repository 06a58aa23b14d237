"""What compilers made of a network, kept between runs: `TECHNIQUES=compile` takes a minute or more the first time, and seconds from then on.

It is the one directory of this machine that a training may write to. Nothing measured is touched by it: a network is compiled before the
first step ends, and a record tells how many of its graphs were made anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from runner.core.cache import cache_dir
from runner.core.container_spec import Mount
from runner.core.trial import Trial
from runner.engines.base import give


def store_for(trial: Trial, *, engine: str, software: str) -> Path | None:
    """Where the compilers of a trial keep their work; None where they have none.

    One software's work is of no use to another, and what an engine's user wrote may be closed to another's.
    """
    if "compile" not in trial.techniques:
        return None
    digest = hashlib.sha256(f"{engine}\n{software}".encode()).hexdigest()
    return cache_dir() / "compiled" / digest[:16]


def make_ready(mounts: Iterable[Mount], *, user: str) -> None:
    """Make the directories of a job that it may write to, for its user and for nobody else."""
    for one in mounts:
        if not one.read_only:
            store = Path(one.source)
            store.mkdir(mode=0o700, parents=True, exist_ok=True)
            give(store, user)
