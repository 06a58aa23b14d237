"""`dlscale doctor`: inspects the machine, the engines and the catalog, and prints the findings that `cluster/doctor.py` derives."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from runner.cluster.doctor import (
    Finding,
    ImageFit,
    ImageState,
    Level,
    common_findings,
    diagnose,
    host_findings,
    pair_findings,
    refused,
    to_json,
)
from runner.cluster.hosts.connectivity import NodeEnd, check_pairs, end_of
from runner.cluster.hosts.endpoint import connect, engine_errors
from runner.cluster.hosts.model import Hosts, load_hosts
from runner.cluster.hosts.supply import is_same
from runner.cluster.hosts.survey import Surveyed, ask_all, examine, refusals, supply_base
from runner.cluster.machine.local_node import inspect_local, take_vitals
from runner.core.cache import cache_dir
from runner.core.console import open_console
from runner.core.errors import RequestError
from runner.core.node import Node
from runner.core.provenance import SUITE_ROOT
from runner.engines import docker, process
from runner.engines.base import EngineError, EngineFacts
from runner.engines.docker import DockerEngine
from runner.engines.images import find_image
from runner.engines.local import LocalEngine
from runner.images.catalog import Catalog, load_images, misfit
from runner.images.custom_image import find_host_python
from runner.images.lock import why_not_pinned
from runner.plan.discovery import WORKLOADS

_ANSWER_S = 10  # a live engine answers immediately; one at a dead network address must not delay the rest
UNUSABLE = 2  # exit code: a request for these hosts can't be met


def examine_machine(*, as_json: bool) -> None:
    """Print the findings to standard output, as a table or as JSON. Raises RequestError if images/versions.yaml is wrong."""
    _show(findings_here(), as_json=as_json)


def _show(findings: Sequence[Finding], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(to_json(findings) + "\n")
    else:
        open_console().print(findings_table(findings))


def findings_here() -> Sequence[Finding]:
    """Examine this machine, read-only: build, pull and change nothing. Raises RequestError if images/versions.yaml is wrong."""
    node = inspect_local()
    catalog = load_images(SUITE_ROOT)
    engines = (docker_facts(), LocalEngine(None, WORKLOADS).facts(), *host_facts(), *program_facts())
    # The root directory of an engine behind ssh:// or tcp:// is a path on that machine, not on this one.
    root = next((Path(engine.root_dir) for engine in engines if engine.root_dir), None)
    vitals = take_vitals(
        node, images=root if root and root.exists() else None, cache=cache_dir(), results=SUITE_ROOT / "results"
    )
    return diagnose(node=node, vitals=vitals, engines=engines, images=image_fits(catalog, node))


def docker_facts() -> EngineFacts:
    """The Docker engine's facts, or why it does not answer."""
    try:
        return DockerEngine(docker.connect(timeout_s=_ANSWER_S), WORKLOADS).facts()
    except EngineError as error:
        return EngineFacts(name="docker", available=False, reason=str(error))


def host_facts() -> tuple[EngineFacts, ...]:
    """What ENGINE=host would run here; empty if the host's Python has no framework, which is not a fault."""
    python = find_host_python()
    if python is None or not python.frameworks:
        return ()
    version = f"{' and '.join(python.frameworks)} of {python.path}"
    return (EngineFacts(name="host", available=True, version=version),)


def program_facts() -> tuple[EngineFacts, ...]:
    """Command-line engines and Slurm, if installed; a missing one is not a finding."""
    found = [*(process.find_program(name) for name in process.PROGRAMS), process.find_program("srun")]
    return tuple(facts for facts in found if facts.available)


def image_fits(catalog: Catalog, node: Node) -> tuple[ImageFit, ...]:
    """Check every image against the node's devices and driver."""
    return tuple(
        ImageFit(
            name=image.name,
            size_mib=image.size_mib,
            misfit=(
                "it needs a GPU, and there is none to use"
                if image.device == "gpu" and not node.gpus
                else misfit(image, node.gpus, node.driver) or why_not_pinned(image)
            ),
        )
        for image in catalog.images
    )


def examine_hosts(text: str, *, wire: str | None, as_json: bool) -> int:
    """Print the findings about HOSTS, as a table or as JSON, and return the exit code: 2 if a host can't be used.

    `wire` is the interface, or its role, over which each pair must connect; see `connectivity.end_of`. Raises RequestError if the list is wrong.
    """
    progress = open_console(stderr=True)
    found = findings_of(load_hosts(text), wire=wire, say=lambda words: progress.print(words, style="dim"))
    _show(found, as_json=as_json)
    return UNUSABLE if any(finding.level == "bad" for finding in found) else 0


def findings_of(hosts: Hosts, *, wire: str | None, say: Callable[[str], None]) -> tuple[Finding, ...]:
    """Examine hosts. Install the suite's base image where it is missing, because the examination runs in it; change nothing else."""
    here = _images_here()
    found: list[Finding] = []
    with contextlib.ExitStack() as undo:
        say(f"asking {', '.join(host.name for host in hosts.hosts)}")
        reachable = []
        for host, answer in zip(hosts.hosts, ask_all(connect, hosts.hosts), strict=True):
            if isinstance(answer, RequestError):
                found.append(refused(host.name, str(answer)))
                continue
            undo.callback(answer.close)
            try:
                reachable.append((answer, supply_base([answer], say)))
            except RequestError as error:
                found.append(refused(host.name, str(error)))
        seen = []
        for (connection, _), answered in zip(reachable, ask_all(lambda one: examine(*one), reachable), strict=True):
            if isinstance(answered, RequestError):
                found.append(refused(connection.host.name, str(answered)))
            else:
                seen.append(answered)
        found += [finding for one in seen for finding in _findings_of_host(one, here)]
        found += common_findings(seen)
        found += _connectivity_findings(seen, wire, say)
    return tuple(found)


def _connectivity_findings(seen: Sequence[Surveyed], wire: str | None, say: Callable[[str], None]) -> Sequence[Finding]:
    """Test connectivity between all hosts that have the interface; a host without it becomes a finding."""
    connectable: list[tuple[Surveyed, NodeEnd]] = []
    found: list[Finding] = []
    for one in seen:
        try:
            connectable.append((one, end_of(one, wire)))
        except RequestError as error:
            found.append(refused(one.host.name, str(error)))
    if len(connectable) > 1:
        say(f"letting {', '.join(one.host.name for one, _ in connectable)} reach each other")
    interfaces = {one.host.name: end.iface for one, end in connectable}
    probes = check_pairs([one for one, _ in connectable], [end for _, end in connectable])
    return (*found, *pair_findings(probes, interfaces))


def _findings_of_host(seen: Surveyed, here: Mapping[str, tuple[str, docker.EngineImage]]) -> Iterator[Finding]:
    images: dict[str, ImageState] = {}
    problems = list(refusals(seen))
    try:
        with engine_errors(seen.docker):
            images = {name: _image_state(seen, *image) for name, image in here.items()}
    except RequestError as error:
        problems.append(str(error))
    return host_findings(seen, images=images, refusals=problems)


def _image_state(seen: Surveyed, reference: str, image: docker.EngineImage) -> ImageState:
    found = find_image(seen.docker.client, reference)
    if found is None:
        return "missing"
    return "same" if is_same(found, image) else "other"


def _images_here() -> Mapping[str, tuple[str, docker.EngineImage]]:
    """The suite's images that this machine's engine has, by name; empty without an engine."""
    found = {}
    try:
        client = docker.connect()
    except EngineError:
        return {}
    with contextlib.closing(client):
        for spec in load_images(SUITE_ROOT).all_images:
            if image := find_image(client, spec.reference):
                found[spec.name] = (spec.reference, image)
    return found


_STYLES: dict[Level, str] = {"ok": "green", "warn": "yellow", "bad": "bold red"}


def findings_table(findings: Sequence[Finding]) -> Table:
    """One line per finding, with the next step below it; levels are words, so that reading does not depend on colour."""
    table = Table.grid("", "", "", padding=(0, 2, 0, 0))
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for finding in findings:
        text = Text(finding.sentence)
        if finding.next_step:
            text.append(f"\n→ {finding.next_step}", style="dim")
        table.add_row(Text(finding.level, style=_STYLES[finding.level]), Text(finding.subject), text)
    return table
