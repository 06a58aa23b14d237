"""Renders the Dockerfiles from versions.yaml and the templates. The committed files equal its output, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jinja2

from runner.core.errors import DlscaleError, RequestError
from runner.images.base import base_dockerfile
from runner.images.catalog import IMAGES, Catalog
from runner.images.lock import source, write_if_changed
from runner.images.spec import ImageSpec


def render(catalog: Catalog) -> Iterator[tuple[Path, str]]:
    """Yield each generated file with its text. Raises RequestError if a template is missing or wrong."""
    folder = catalog.root / IMAGES
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 - Dockerfiles, not HTML
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    try:
        for base in catalog.bases:
            yield base_dockerfile(catalog.root, base), environment.get_template("base.Dockerfile.j2").render(base=base)
        for image in catalog.all_images:
            name = f"{template(image)}.Dockerfile.j2"
            above = source(image) if image.kind == "container" else None
            yield image.dockerfile, environment.get_template(name).render(image=image, template=name, source=above)
    except jinja2.TemplateNotFound as error:
        raise RequestError(
            f"{folder / 'templates' / str(error.name)}: is missing; every framework in versions.yaml needs its template"
        ) from error
    except jinja2.TemplateSyntaxError as error:
        raise RequestError(f"{error.filename}:{error.lineno}: {error.message}; fix the template") from error
    except jinja2.UndefinedError as error:
        raise RequestError(
            f"{folder / 'templates'}: a template uses an unknown name ({error.message}); fix it"
        ) from error


def template(image: ImageSpec) -> str:
    """Name the template of an image: its extension's, its framework's if it is made of wheels, otherwise that of its kind."""
    return image.extension or (image.framework if image.kind == "wheels" else image.kind)


def write(catalog: Catalog) -> tuple[Path, ...]:
    """Write the generated files; return those that changed."""
    return tuple(path for path, text in render(catalog) if write_if_changed(path, text))


def check(catalog: Catalog) -> None:
    """Compare the committed files with what would be written now. Raises DlscaleError for the first that is missing, different or unknown."""
    expected = dict(render(catalog))
    for path, text in expected.items():
        if not path.exists():
            raise DlscaleError(f"{path}: is missing; run `dlscale images render`")
        committed = path.read_text(encoding="utf-8")
        if committed != text:
            raise DlscaleError(
                f"{path}:{_first_difference(committed, text)}: differs from the output of versions.yaml and the templates; change those, "
                f"then run `dlscale images render`"
            )
    for path in sorted((catalog.root / IMAGES).glob("*/**/Dockerfile")):
        if path not in expected:
            raise DlscaleError(f"{path}: belongs to no image in versions.yaml; remove its folder")


def _first_difference(committed: str, rendered: str) -> int:
    """Return the number, from 1, of the first line in which two texts differ."""
    pairs = zip(f"{committed}\n\0".splitlines(), f"{rendered}\n\1".splitlines(), strict=False)
    return next(number for number, (one, other) in enumerate(pairs, start=1) if one != other)
