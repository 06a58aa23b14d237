"""`StudyRequest`: what a user wants reproduced, before any default."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from runner.core.frozen import Frozen
from runner.core.request import Device, EngineName

Scale = Literal["full", "small"]


class StudyRequest(Frozen):
    """What was asked for; None leaves the choice to the suite. `framework` is in place of the source's, `cells` begin the ids of those to run."""

    study: str | None = None
    scale: Scale = "full"
    device: Device | None = None
    hosts: str | None = None
    framework: str | None = None
    engine: EngineName | None = None
    data: Path | None = None
    out: Path | None = None
    cells: tuple[str, ...] = ()
    dry_run: bool = False
