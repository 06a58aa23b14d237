"""`dlscale images`: add, render, lock, verify, base, build, fetch, list, archive, load, sif."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from runner.commands.catalog import AS_JSON, print_facts
from runner.commands.options import Commands, Text, directory_argument, flag
from runner.core import parsing
from runner.core import request as ask
from runner.core.cache import cache_dir
from runner.core.console import open_console
from runner.core.errors import RequestError, nearest
from runner.core.provenance import SUITE_ROOT
from runner.images.catalog import Catalog, load_images
from runner.images.spec import ImageSpec
from runner.report.progress import progress

images_app = Commands(help="Make, build and move the container images.")

Names = Annotated[list[str] | None, typer.Argument(help="FRAMEWORK or FRAMEWORK:VERSION", show_default=False)]
DeviceFlag = Annotated[Text, flag("--device", help="cpu or gpu")]


@images_app.command()
def add(
    framework: Annotated[str, typer.Argument(help="mxnet, pytorch or tensorflow")],
    version: Annotated[str, typer.Argument(help="its version, with an existing suffix: 2.14.1, 2.14.1-cpu")],
    cuda: Annotated[Text, flag("--cuda", help="its build for a CUDA release: cu126, cu130")] = None,
    python: Annotated[Text, flag("--python", help="the image's Python: 3.13")] = None,
) -> None:
    """Add a version of a framework: its entry in versions.yaml, its lock and its Dockerfile."""
    from runner.images.add import add as add_version

    with progress(open_console(stderr=True)) as shown:
        image = add_version(
            SUITE_ROOT, framework, version, cuda=cuda, python=python, cache=cache_dir(), report=shown.stage
        )
    _print(
        f"{image.directory}: written, with its entry in images/versions.yaml; next: "
        f"dlscale images build {framework}:{image.version}, then dlscale matrix and make verify"
    )


@images_app.command()
def render() -> None:
    """Write the Dockerfiles from versions.yaml and the templates."""
    from runner.images.render import write

    for path in write(load_images(SUITE_ROOT)):
        _print(f"{path}: written")


@images_app.command()
def lock(
    names: Names = None,
    *,
    upgrade: Annotated[bool, typer.Option("--upgrade", help="newest versions of what is not pinned")] = False,
) -> None:
    """Lock what each image is made of: wheels with their hashes, Debian packages, a vendor's digest."""
    for image in select(load_images(SUITE_ROOT), names, None):
        _print(f"{image.lock_path}: {'written' if _lock(image, upgrade=upgrade) else 'same'}")
    render()  # a Dockerfile names its lock


def _lock(image: ImageSpec, *, upgrade: bool) -> bool:
    if image.kind == "wheels":
        from runner.images.lock import write_lock

        return write_lock(image, upgrade=upgrade)
    if image.kind == "container":
        from runner.images.lock import write_container

        return write_container(image, report=_print)
    from runner.engines.docker import connect_or_refuse
    from runner.images.base import write_packages

    with progress(open_console(stderr=True)) as shown:
        return write_packages(image, client=connect_or_refuse(), cache=cache_dir(), report=shown.stage, upgrade=upgrade)


@images_app.command()
def verify() -> None:
    """Fail if a Dockerfile or a lock differs from what versions.yaml and the templates give."""
    from runner.images.lock import check_lock
    from runner.images.render import check

    catalog = load_images(SUITE_ROOT)
    check(catalog)
    for image in catalog.all_images:
        check_lock(image)
    _print(f"{len(catalog.all_images)} images: Dockerfiles and locks match versions.yaml")


@images_app.command()
def base(
    names: Annotated[
        list[str] | None, typer.Argument(help="bases of versions.yaml (default: all)", show_default=False)
    ] = None,
    way: Annotated[Text, flag("--way", help="registry or mirror (default: the registry if it answers)")] = None,
    *,
    refresh: Annotated[bool, typer.Option("--refresh", help="rebuild it with today's packages")] = False,
) -> None:
    """Make the base images, from a registry or from this machine's own Debian mirror."""
    from runner.engines.docker import connect_or_refuse
    from runner.images.base import Way, ensure_base

    bases = load_images(SUITE_ROOT).bases
    known = [spec.name for spec in bases]
    for name in names or ():
        if name not in known:
            raise RequestError(f"unknown base {name!r}; known: {nearest(name, known)}")
    client = connect_or_refuse()
    for spec in (spec for spec in bases if spec.name in (names or known)):
        with progress(open_console(stderr=True)) as shown:
            identifier = ensure_base(
                spec,
                client=client,
                root=SUITE_ROOT,
                cache=cache_dir(),
                report=shown.stage,
                way=cast("Way | None", parsing.choice("--way", way, Way)),
                refresh=refresh,
            )
        _print(f"{spec.reference} {identifier}")


@images_app.command()
def build(names: Names = None, device: DeviceFlag = None) -> None:
    """Build images that are missing or outdated; without names, the newest of each framework, for CPUs unless --device says otherwise."""
    from runner.engines.docker import connect_or_refuse
    from runner.images.add import record_size
    from runner.images.build import ensure

    client = connect_or_refuse()
    for image in _to_build(names, device):
        with progress(open_console(stderr=True)) as shown:
            built = ensure(image, client=client, cache=cache_dir(), report=shown.stage)
        _print(f"{built.reference} {built.id} {built.size_mib} MiB")
        if record_size(SUITE_ROOT, image, built.size_mib):
            _print("images/versions.yaml: size written")


@images_app.command()
def fetch(names: Names = None, device: DeviceFlag = None) -> None:
    """Fetch all inputs of images into the cache, so that `images build` needs no network; without names, those that `images build` makes."""
    from runner.images.base import fetch_base
    from runner.images.wheelhouse import fetch as fetch_wheels

    for image in _to_build(names, device):
        if image.kind == "container":
            raise RequestError(
                f"{image.name} is its vendor's container; build it, and move it with `dlscale images archive`"
            )
        with progress(open_console(stderr=True)) as shown:
            for each in filter(None, (image.parent, image)):
                fetch_wheels(each, cache=cache_dir(), report=shown.stage)
                for base in filter(None, (each.base, each.build_base)):
                    fetch_base(base, cache=cache_dir(), report=shown.stage)
        _print(f"{image.reference}: everything that it is built from is in {cache_dir()}")


@images_app.command(name="list")
def list_images(*, as_json: Annotated[bool, AS_JSON] = False) -> None:
    """List the images, what they run on, and which of them the engine has."""
    from runner.engines.base import EngineError
    from runner.engines.docker import connect
    from runner.images.build import find_built

    try:
        client = connect()
    except EngineError:
        client = None
    facts = []
    for image in load_images(SUITE_ROOT).all_images:
        built = find_built(image, client) if client else None
        state = built.id.partition(":")[2][:12] if built else "no"
        capabilities = image.compute_capabilities
        facts.append(
            {
                "image": f"{image.framework}:{image.tag}",  # the name that `images build` takes
                "device": image.device,
                "gpu_code": f"{capabilities[0]}–{capabilities[-1]}" if capabilities else None,
                "minimum_driver": image.minimum_driver,
                "brings": ", ".join(image.brings) or None,
                "built": "outdated" if built and not built.current else state,
                "size_mib": built.size_mib if built else image.size_mib if image.measured else f"≈ {image.size_mib}",
            }
        )
    print_facts(facts, as_json=as_json)


@images_app.command()
def archive(
    directory: Annotated[Path, directory_argument("where to write", example="dlscale images archive /tmp/images")],
    names: Names = None,
) -> None:
    """Save built images to files for a machine without a network; without names, all built images and the helpers that hosts and emulated nodes need."""
    from runner.cluster.hosts.endpoint import BASE
    from runner.engines.docker import connect_or_refuse
    from runner.images.base import TOOLS
    from runner.images.build import find_built, save

    client = connect_or_refuse()
    chosen = select(load_images(SUITE_ROOT), names, None)
    references = [image.reference for image in chosen if names or find_built(image, client)]
    if not names:
        helpers = (load_images(SUITE_ROOT).base(name).reference for name in (BASE, TOOLS))
        references += [reference for reference in helpers if client.images.list(reference)]
    with progress(open_console(stderr=True)) as shown:
        save(references, client=client, directory=directory, report=shown.stage)
    _print(f"{directory}: {len(references)} images")


@images_app.command()
def load(
    directory: Annotated[
        Path, directory_argument("what `images archive` wrote", example="dlscale images load /tmp/images")
    ],
) -> None:
    """Check an archive and load its images."""
    from runner.engines.docker import connect_or_refuse
    from runner.images.build import load as load_archive

    client = connect_or_refuse()
    with progress(open_console(stderr=True)) as shown:
        loaded = load_archive(directory, client=client, report=shown.stage)
    for entry in loaded:
        _print(f"{entry.reference} {entry.id}")


@images_app.command()
def sif(
    names: Annotated[list[str], typer.Argument(help="FRAMEWORK:VERSION", show_default=False)],
    *,
    directory: Annotated[
        Text,
        flag("--archive", help="take them from a folder of `images archive` (default: from Docker)", metavar="DIR"),
    ] = None,
) -> None:
    """Convert images to SIF files for Apptainer, in the cache (DLSCALE_CACHE), which all nodes of a cluster must see."""
    from runner.images.sif import ensure_sif, find_archive, folder, make_sif

    for image in select(load_images(SUITE_ROOT), names, None):
        with progress(open_console(stderr=True)) as shown:
            path, made = (
                make_sif(*find_archive(image, Path(directory)), where=folder(image), report=shown.stage)
                if directory
                else ensure_sif(image, report=shown.stage)
            )
        _print(f"{path} sha256:{made.sha256}")


def select(catalog: Catalog, names: list[str] | None, device: str | None) -> tuple[ImageSpec, ...]:
    """The named images in the catalog's order, or all; only those of `device`, if it is given. Raises RequestError if a name matches no image."""
    wanted: set[str] = set()
    for name in names or ():
        framework, _, tag = name.partition(":")
        _ = catalog.of(framework)  # raises if there is no such framework
        own = [image for image in catalog.all_images if image.framework == framework]
        matches = [image.reference for image in own if tag in ("", image.tag)]
        if not matches:
            raise RequestError(
                f"unknown image {name!r}; known: {', '.join(f'{image.framework}:{image.tag}' for image in own)}"
            )
        wanted.update(matches)
    return tuple(i for i in catalog.all_images if (not names or i.reference in wanted) and device in (None, i.device))


def _to_build(names: list[str] | None, device: str | None) -> tuple[ImageSpec, ...]:
    """The named images for the flag's device, else for CPUs unless a name has a version; without names, the newest of each framework."""
    chosen = parsing.choice("DEVICE", device, ask.Device) or (
        "cpu" if not any(":" in name for name in names or ()) else None
    )
    catalog = load_images(SUITE_ROOT)
    found = tuple(image for image in select(catalog, names, chosen) if names or image in catalog.newest)
    if not found:
        raise RequestError(
            f"none of {', '.join(names or ())} is for DEVICE={chosen}; leave out DEVICE, or name another version"
        )
    return found


def _print(text: str) -> None:
    open_console(soft_wrap=True).print(text)
