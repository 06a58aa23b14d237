"""The programs behind boxes: whether a machine has them, and which version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from runner.engines.base import EngineFacts
from runner.engines.process import CommandError, run

Program = Literal["apptainer", "podman"]
PROGRAMS: Final[tuple[Program, ...]] = ("apptainer", "podman")
_ANSWER_S: Final = 10


def ask_here(argv: Sequence[str]) -> str:
    """Run a short command on this machine."""
    return run(argv, timeout_s=_ANSWER_S)


def find(program: Program | Literal["srun"], ask: Callable[[Sequence[str]], str] = ask_here) -> EngineFacts:
    """What a program says of itself where `ask` runs it; never raises a CommandError."""
    try:
        said = ask((program, "--version"))
    except CommandError as error:
        return EngineFacts(
            name="slurm" if program == "srun" else program,
            available=False,
            reason=f"{program} does not run ({error.last_line})",
        )
    return EngineFacts(name="slurm" if program == "srun" else program, available=True, version=said.split()[-1])
