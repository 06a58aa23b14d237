"""`make rig`: brings a rig up or down. Standard output has only the path of its hosts.yaml."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from runner.core import parsing
from runner.core.cache import file_lock
from runner.core.console import open_console
from runner.core.errors import RequestError
from runner.core.wire import Link, parse_delay, parse_rate
from runner.report.progress import progress


def rig(
    *,
    nodes: Annotated[str, typer.Option("--nodes", help="how many hosts; 0 takes them down", metavar="N")],
    rate: Annotated[
        str | None, typer.Option("--rate", help="what every link is held to, e.g. 1gbit", show_default=False)
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", help="of every packet, e.g. 0.2ms (needs netem)", show_default=False)
    ] = None,
    number: Annotated[
        str, typer.Option("--number", help="which rig, where the machine has several", metavar="N")
    ] = "0",
    directory: Annotated[
        Path | None, typer.Option("--dir", help="for the hosts' images (default: the cache)", show_default=False)
    ] = None,
) -> None:
    """Set up several hosts on this machine, each with its own engine and ssh server, and print the path of their hosts.yaml."""
    from testbed import teardown
    from testbed.layout import USERS
    from testbed.lease import lock_path, remove_stale
    from testbed.rig import Rig
    from testbed.tools import refuse_unfit

    link = read_link(rate, delay)
    wanted = parsing.non_negative("NODES", nodes)
    which = parsing.non_negative("NUMBER", number) or 0
    if wanted is None:
        raise RequestError("NODES is empty; type for example NODES=2, or NODES=0 to take the rig down")
    if which not in USERS:
        raise RequestError(f"NUMBER={which} asked, rigs are numbered {USERS[0]} to {USERS[-1]}")
    refuse_unfit()
    with (
        progress(open_console(stderr=True)) as shown,
        file_lock(lock_path(which), waiting=lambda: shown.stage(f"waiting for another process that uses rig {which}")),
    ):
        if wanted:
            made = Rig.up(nodes=wanted, number=which, link=link, parent=directory, report=shown.stage)
            sys.stdout.write(f"{made.hosts()}\n")
        else:
            shown.stage(f"taking rig {which} down")
            teardown.remove(which)
            remove_stale(shown.stage)


def read_link(rate: str | None, delay: str | None) -> Link | None:
    """Parse RATE and DELAY into the links' limits; None without limits."""
    rate_mbit = _quantity("RATE", rate, parse_rate)
    delay_ms = _quantity("DELAY", delay, parse_delay)
    return Link(rate_mbit=rate_mbit, delay_ms=delay_ms or 0.0, emulated=True) if rate_mbit or delay_ms else None


def _quantity(variable: str, text: str | None, parse: Callable[[str], float]) -> float | None:
    try:
        return parse(text) if text else None
    except ValueError as error:
        raise RequestError(f"{variable}={text}: {error}") from error
