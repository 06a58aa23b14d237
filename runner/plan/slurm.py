"""A request for Slurm: the `salloc` command that runs it now, or the script for `sbatch`. Pure.

Both run the same command on the nodes that the job gets (HOSTS=slurm). Nodes are allocated exclusively, because other jobs on them would spoil
a measurement. Each line of the script and each word of the command is quoted for a shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from runner.core.errors import RequestError
from runner.core.request import SLURM, Request

# Options that are removed from the command inside the job, each with the number of words that follow it.
_OUTER_OPTIONS: Final[Mapping[str, int]] = {"--cluster": 1, "--slurm-flags": 1, "--format": 1, "--dry-run": 0}
# Seconds before the time limit at which the runner gets a TERM, so that it can write its record.
_NOTICE_S: Final = 60


def salloc(request: Request, words: Sequence[str]) -> tuple[str, ...]:
    """The command that waits for nodes and runs `words`, the user's command line, in their job; cancelling the job sends the runner a TERM."""
    return ("salloc", *_resources(request), "--kill-command=TERM", *_flags(request), *inner_command(words))


def sbatch(request: Request, words: Sequence[str]) -> str:
    """The batch script that does the same; the runner gets a TERM a minute before the time limit."""
    options = (*_resources(request), f"--signal=B:TERM@{_NOTICE_S}", "--no-requeue", *_flags(request))
    header = "".join(f"#SBATCH {shlex.quote(option)}\n" for option in options)
    return f"#!/bin/bash\n{header}exec {shlex.join(inner_command(words))}\n"


def inner_command(words: Sequence[str]) -> tuple[str, ...]:
    """The user's command line, rewritten to run inside the job on its nodes."""
    program, command, *options = words
    bench = "bench" if command == "plan" else command
    return (str(Path(program).absolute()), bench, *_drop_outer(options), f"--hosts={SLURM}")


def _resources(request: Request) -> Iterator[str]:
    nodes = request.nodes or 1
    yield from (f"--nodes={nodes}", "--exclusive", "--mem=0", "--job-name=dlscale")
    if request.gpus:
        share, remainder = divmod(max(request.gpus), nodes)
        if remainder or not share:
            raise RequestError(
                f"GPUS={max(request.gpus)} can't be shared equally by NODES={nodes}; ask for a multiple of {nodes}"
            )
        yield f"--gpus-per-node={share}"


def _flags(request: Request) -> list[str]:
    """The user's own flags, which come last and so win. Newlines are refused: the rest of the flag would become a line of the script."""
    typed = request.slurm_flags or ""
    try:
        words = shlex.split(typed)
    except ValueError as error:
        raise RequestError(f"SLURM_FLAGS={typed} can't be read ({error}); write it as a shell would take it") from error
    if any("\n" in word for word in words):
        raise RequestError("SLURM_FLAGS has an end of line in a flag; write it on one line")
    return words


def _drop_outer(words: Sequence[str]) -> Iterator[str]:
    remaining = iter(words)
    for word in remaining:
        name, equals, _ = word.partition("=")
        if name not in _OUTER_OPTIONS:
            yield word
        elif not equals:
            for _ in range(_OUTER_OPTIONS[name]):
                next(remaining, None)
