"""Debian packages as a lock: each package of a base, with its version, for a suite that has had its last update.

Debian's mirrors keep one version of a package. A lock therefore can't fetch what it names; it says what an image is made of, and
a base that came out otherwise is refused: pinned means pinned.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from runner.core.errors import RequestError
from runner.images.base import MIRROR_VARIABLE, ensure_base, package_list
from runner.images.lock import header, replace
from runner.images.spec import ImageSpec
from runner.images.versions import BaseSpec

if TYPE_CHECKING:
    from runner.engines.docker import Client


def write_packages(
    image: ImageSpec, *, client: Client, cache: Path, report: Callable[[str], None], upgrade: bool
) -> bool:
    """Write down the packages that the base of an image of kind `debian` holds; returns whether the lock changed.

    With `upgrade` the base is made again first, with what the mirror has today. Raises RequestError where it can't be had.
    """
    base = _base(image)
    ensure_base(base, client=client, root=image.directory.parents[2], cache=cache, report=report, refresh=upgrade)
    return replace(image.lock_path, header(image) + package_list(base, client))


def check_packages(image: ImageSpec, *, client: Client) -> None:
    """Hold the packages of an image's base against its lock; a refusal names the first difference and the two ways out."""
    base = _base(image)
    locked = set(_packages(image.lock_path.read_text(encoding="utf-8")))
    found = set(_packages(package_list(base, client)))
    if locked == found:
        return
    names = {package.partition("=")[0] for package in locked ^ found}
    first = min(names)
    versions = [
        next((package.partition("=")[2] for package in side if package.partition("=")[0] == first), "nothing")
        for side in (found, locked)
    ]
    raise RequestError(
        f"{base.reference} differs in {len(names)} packages from {image.lock_path} ({first}: {versions[0]} instead of "
        f"{versions[1]}); set {MIRROR_VARIABLE} to a mirror that has the locked ones and type `dlscale images base {base.name} --refresh`, "
        f"or accept these with `dlscale images lock {image.framework}:{image.tag}`"
    )


def _base(image: ImageSpec) -> BaseSpec:
    if image.base is None:
        raise TypeError(f"{image.name} stands on no base")
    return image.base


def _packages(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]
