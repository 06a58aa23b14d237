"""A vendor's finished container: its lock, which holds the digest once a registry has told it, and how the engine gets it.

A tag can be moved to another image; a digest can't. Until a registry has answered, the tag is all that is known, and the lock says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from runner.core.errors import RequestError
from runner.engines.base import EngineError
from runner.engines.images import ask_registry, image_id, pull_image
from runner.images.lock import header, replace
from runner.images.spec import ImageSpec

if TYPE_CHECKING:
    from runner.engines.docker import Client

_UNKNOWN: Final = "# digest: unknown; no registry has answered yet\n"


def write_container(image: ImageSpec, *, report: Callable[[str], None]) -> bool:
    """Ask the registry for the container's digest and write the lock; returns whether it changed.

    A digest that is locked stays where no registry answers.

    Raises:
        RequestError: the registry has another digest for the tag than the lock.
    """
    name = _name(image)
    known = _digest(image)
    answer = ask_registry(name)
    if answer.silence:
        report(f"{name}: its registry does not answer ({answer.silence}); its digest stays {known or 'unknown'}")
    if known and answer.digest and known != answer.digest:
        raise RequestError(
            f"{name} is {answer.digest} at its registry and {known} in {image.lock_path}: the tag was moved; remove the lock to take the new one"
        )
    digest = answer.digest or known
    text = f"{name}@{digest}\n" if digest else f"{_UNKNOWN}{name}\n"
    return replace(image.lock_path, header(image) + text)


def source(image: ImageSpec) -> str:
    """What the image's Dockerfile starts from: the tag of its lock, with the digest if it is known."""
    _ = image.lock_sha256  # says so if it is not there
    digest = _digest(image)
    return f"{_name(image)}@{digest}" if digest else _name(image)


def ensure_container(image: ImageSpec, *, client: Client, report: Callable[[str], None]) -> None:
    """Have the vendor's container in the engine; raises RequestError where it is not there and no registry gives it."""
    wanted = source(image)
    if image_id(client, wanted):
        return
    silence = ask_registry(wanted).silence
    if silence is None:
        report(f"pulling {wanted}")
        try:
            pull_image(client, wanted)
        except EngineError as error:
            silence = str(error)
        else:
            return
    raise RequestError(
        f"{wanted}, which {image.name} is made from, is not in the engine and its registry does not give it ({silence}); bring the "
        f"image with `dlscale images load` from a machine that has it, or ask for another version"
    )


def _name(image: ImageSpec) -> str:
    if image.container is None:
        raise TypeError(f"{image.name} is no vendor's container")
    return image.container


def _digest(image: ImageSpec) -> str | None:
    """The digest that the lock holds."""
    if not image.lock_path.exists():
        return None
    lines = image.lock_path.read_text(encoding="utf-8").splitlines()
    return next((line.partition("@")[2] or None for line in lines if line.startswith(_name(image))), None)
