"""`dlscale doctor`: asks the machine, the engines and the catalog, and prints what `doctor` makes of the answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from runner.cache import cache_dir
from runner.catalog import Catalog, load_images, misfit
from runner.console import open_console
from runner.doctor import Finding, ImageFit, diagnose, to_json
from runner.engines import docker
from runner.engines.base import EngineError, EngineFacts
from runner.engines.docker import DockerEngine
from runner.engines.local import LocalEngine
from runner.ground import WORKLOADS
from runner.images.own import own_python
from runner.machine.cluster import Node, inspect_local
from runner.machine.provenance import SUITE_ROOT
from runner.machine.vitals import take_vitals
from runner.report.findings import findings_table

_ANSWER_S = 10
"""An engine that is there answers at once; one behind a dead network address must not hold up the rest."""


def examine_machine(*, as_json: bool) -> None:
    """Print the findings to standard output, as a table or as JSON.

    Raises:
        RequestError: images/versions.yaml is wrong.
    """
    findings = findings_here()
    if as_json:
        sys.stdout.write(to_json(findings) + "\n")
    else:
        open_console().print(findings_table(findings))


def findings_here() -> Sequence[Finding]:
    """Examine this machine. Looks; builds, pulls and changes nothing.

    Raises:
        RequestError: images/versions.yaml is wrong.
    """
    node = inspect_local()
    catalog = load_images(SUITE_ROOT)
    engines = (docker_facts(), LocalEngine(None, WORKLOADS).facts(), *host_facts())
    # The root of an engine behind ssh:// or tcp:// is a path of that machine, not of this one.
    root = next((Path(engine.root_dir) for engine in engines if engine.root_dir), None)
    vitals = take_vitals(
        node, images=root if root and root.exists() else None, cache=cache_dir(), results=SUITE_ROOT / "results"
    )
    return diagnose(node=node, vitals=vitals, engines=engines, images=image_fits(catalog, node))


def docker_facts() -> EngineFacts:
    """What the Docker engine says of itself, or why it does not answer."""
    try:
        return DockerEngine(docker.connect(timeout_s=_ANSWER_S), WORKLOADS).facts()
    except EngineError as error:
        return EngineFacts(name="docker", available=False, reason=str(error))


def host_facts() -> tuple[EngineFacts, ...]:
    """What ENGINE=host would run here; nothing where its own Python has no framework, which is no fault."""
    python = own_python()
    if python is None or not python.frameworks:
        return ()
    version = f"{' and '.join(python.frameworks)} of {python.path}"
    return (EngineFacts(name="host", available=True, version=version),)


def image_fits(catalog: Catalog, node: Node) -> tuple[ImageFit, ...]:
    """Hold every image against the node's devices and driver."""
    return tuple(
        ImageFit(
            name=image.name,
            size_mib=image.size_mib,
            misfit=(
                "it needs a GPU, and there is none to use"
                if image.device == "gpu" and not node.gpus
                else misfit(image, node.gpus, node.driver)
            ),
        )
        for image in catalog.images
    )
