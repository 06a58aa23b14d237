"""Reads `workloads/studies/`, and refuses a study that names what there is not: a source, a network, a model, an image, a case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Final

from runner.core import yamlfile
from runner.core.errors import RequestError, nearest
from runner.core.provenance import SUITE_ROOT
from runner.core.workload import Workload, load_workloads
from runner.experiments.studies.study import Block, Study
from runner.images.catalog import Catalog, load_images
from runner.results.published import load as published
from runner.results.published.load import line_of
from runner.results.published.model import Published
from runner.results.published.units import METRICS

DIRECTORY: Final = SUITE_ROOT / "workloads" / "studies"

Wrong = tuple[str, str]
"""A word near which something is wrong, and the sentence about it."""


def names(directory: Path = DIRECTORY) -> tuple[str, ...]:
    """Ids of all studies, in order."""
    return tuple(sorted(path.stem for path in directory.glob("*.yaml")))


def load(name: str, directory: Path = DIRECTORY) -> tuple[Study, Published]:
    """A study with its source.

    Raises:
        RequestError: there is no such study, or its file is wrong; then the sentence names file and line.
    """
    path = directory / f"{name}.yaml"
    if not path.is_file():
        raise RequestError(f"unknown STUDY {name!r}; known: {nearest(name, names(directory))}")
    study = yamlfile.load(path, Study)
    if study.id != name:
        raise RequestError(f"{path}:1: id is {study.id!r}; name the file after it, or it after the file")
    sources = {file.stem: file for file in published.DIRECTORY.glob("*.yaml")}
    if study.source not in sources:
        raise RequestError(
            f"{path}:{line_of(path, study.source)}: no published source {study.source!r}; known: {nearest(study.source, sources)}"
        )
    source = published.load(sources[study.source])
    for word, sentence in _wrong(study, source):
        raise RequestError(f"{path}:{line_of(path, word)}: {sentence}")
    return study, source


def _wrong(study: Study, source: Published) -> Iterator[Wrong]:
    catalog, workloads = load_images(SUITE_ROOT), load_workloads(SUITE_ROOT)
    wires = {wire.id for wire in source.hardware.wires}
    yield from _missing(study.networks, "network", wires, of="the source")
    yield from _missing(study.same.gpus, "GPU", {gpu.id for gpu in source.hardware.gpus}, of="the source")
    for tolerance in study.tolerances:
        yield from _missing(tolerance.metrics, "metric", set(METRICS), of="the suite")
    ids = [block.id for block in study.blocks]
    for name in sorted({name for name in ids if ids.count(name) > 1}):
        yield name, f"two blocks have the id {name!r}; rename one of them"
    cases = {case for runs in source.runs for case in runs.cases}
    for block in study.blocks:
        yield from _missing(block.networks, "network", set(study.networks), of="`networks`")
        if block.where.network:
            yield from _missing((block.where.network,), "network", wires, of="the source")
        yield from _missing(block.cases, "case", cases, of="the source")
        yield from _missing(block.small.models, "model", set(block.models), of=f"block {block.id}")
        yield from _images(block, catalog)
        yield from _models(block, workloads)


def _images(block: Block, catalog: Catalog) -> Iterator[Wrong]:
    """Versions for which there is no image."""
    framework = block.framework or block.where.framework or ""
    for device, versions in block.versions.items():
        known = {image.version for image in catalog.images if (image.framework, image.device) == (framework, device)}
        yield from _missing(versions, "version", known, of=f"{framework} on {device.upper()}s")


def _models(block: Block, workloads: Sequence[Workload]) -> Iterator[Wrong]:
    """Models, modes and precisions that no program of the framework has."""
    framework = block.framework or block.where.framework or ""
    owners = {model.name: (workload, model) for workload in workloads for model in workload.models}
    for name in (*block.models.values(), *block.small.models.values()):
        yield from _missing((name,), "model", set(owners), of="the suite")
        workload, model = owners[name]
        for known, of in (
            (set(model.frameworks), f"model {name}"),
            (set(workload.frameworks(block.mode)), f"MODE={block.mode} of {name}"),
        ):
            for _, sentence in _missing((framework,), "framework", known, of=of):
                yield f"id: {block.id}", f"block {block.id}: {sentence}"
        for device, precision in product(block.versions, block.precisions):
            try:
                workload.check_precision(precision, framework=framework, device=device, mode=block.mode)
                workload.check_profiles(block.profile, region=block.profile_region, framework=framework)
                workload.image_size(model, device=device, asked=block.image_size)
            except RequestError as error:
                yield f"id: {block.id}", f"block {block.id}: {error}"


def _missing(asked: Iterable[str], what: str, known: set[str], *, of: str) -> Iterator[Wrong]:
    for name in asked:
        if name not in known:
            yield name, f"{of} has no {what} {name!r}; known: {nearest(name, known) or 'none'}"
