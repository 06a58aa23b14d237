"""Prevents: a Dockerfile edited by hand that the next `images render` silently reverts, and an image whose build uses a network, runs as root,
or does not match the base and lock on its label.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from runner.core.errors import DlscaleError, RequestError
from runner.images.catalog import Catalog, load_images
from runner.images.render import check, render, write

ROOT = Path(__file__).parents[3]
CATALOG = load_images(ROOT)


@pytest.fixture
def copied(tmp_path) -> Catalog:
    """The catalog of a copy of images/, which tests may damage."""
    shutil.copytree(ROOT / "images", tmp_path / "images")
    return load_images(tmp_path)


def refusal(catalog: Catalog) -> str:
    with pytest.raises(DlscaleError) as caught:
        check(catalog)
    return str(caught.value).removeprefix(f"{catalog.root}/")


def test_the_committed_dockerfiles_equal_the_rendered_ones():
    check(CATALOG)


@pytest.mark.parametrize("image", CATALOG.all_images, ids=lambda image: image.name)
def test_every_image_follows_the_house_rules(image):
    text = dict(render(CATALOG))[image.dockerfile]
    lines = text.splitlines()
    assert "do not edit" in lines[0]
    assert f'dlscale.lock.sha256="{image.lock_sha256}"' in text
    assert ("--no-index" in text) == ("--require-hashes" in text) == (image.kind == "wheels")
    # The smoke test is last, and runs as the user that will train.
    assert lines.index("USER 10001:10001") > max(n for n, line in enumerate(lines) if line.startswith("COPY "))
    number = image.version.partition("-")[0]
    expected = {
        "container": f"smoke.py {image.framework} {number} {image.python}",
        "wheels": f"smoke.py {number} {image.device}",
        "debian": f"smoke.py {number} {image.device}",
    }[image.kind]
    if image.extension:
        expected = f"smoke_horovod.py {image.framework} {image.extension_version} mpi"
    assert f"python3 /opt/dlscale/{expected}" in "\n".join(lines[lines.index("USER 10001:10001") :])
    assert "HEALTHCHECK" not in text
    assert "://" not in text


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        *((image, [image.base] * 2) for image in CATALOG.images if image.kind == "wheels"),
        *((image, [image.base]) for image in CATALOG.images if image.kind == "debian"),
    ],
    ids=lambda part: getattr(part, "name", ""),
)
def test_an_image_is_based_on_its_base(image, expected):
    lines = dict(render(CATALOG))[image.dockerfile].splitlines()
    assert [line.split()[1] for line in lines if line.startswith("FROM ")] == [base.reference for base in expected]


def test_mxnets_gpu_image_finds_each_cuda_library():
    image = CATALOG.find("mxnet", "1.9.1-cu112", "gpu")
    (line,) = [line for line in dict(render(CATALOG))[image.dockerfile].splitlines() if "LD_LIBRARY_PATH" in line]
    folders = line.partition("=")[2].removesuffix(" \\").split(":")
    assert folders[0] == "/opt/dlscale/lib/python3.11/site-packages/nvidia/cublas/lib"
    assert len(folders) == len([pin for pin in image.requirements if pin.startswith("nvidia-") and "-cu11" in pin])


@pytest.mark.parametrize("base", CATALOG.bases, ids=lambda base: base.name)
def test_a_base_from_a_registry_is_pinned_by_digest(base):
    text = dict(render(CATALOG))[ROOT / "images/base" / base.name / "Dockerfile"]
    assert f"\nFROM debian@{base.registry.digest}\n" in text
    assert all(f"      {package}" in text for package in base.packages)
    # Updated to the suite's last state if the lock requires it; otherwise as the digest has it.
    assert ("apt-get upgrade" in text) == base.locked


def test_a_dockerfile_edited_by_hand_is_reported_with_its_line(copied):
    path = copied.images[0].dockerfile
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([*lines[:6], "RUN true\n", *lines[6:]]), encoding="utf-8")
    assert refusal(copied) == (
        "images/mxnet/1.9.1/Dockerfile:7: differs from the output of versions.yaml and the templates; change those, then run "
        "`dlscale images render`"
    )
    assert write(copied) == (path,)
    check(copied)
    assert write(copied) == ()
    left = copied.root / "images/mxnet/1.8.0/Dockerfile"
    left.parent.mkdir()
    left.write_text("FROM scratch\n", encoding="utf-8")
    assert refusal(copied) == "images/mxnet/1.8.0/Dockerfile: belongs to no image in versions.yaml; remove its folder"
    path.unlink()
    assert refusal(copied) == "images/mxnet/1.9.1/Dockerfile: is missing; run `dlscale images render`"


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("dockerfile", lambda text: text + "\n"),
        ("dockerfile", lambda text: text.rstrip("\n")),
        ("dockerfile", lambda text: text[: text.rindex("CMD")]),
        ("lock_path", lambda text: text + "# changed\n"),
    ],
    ids=["longer", "no last line's end", "shorter", "lock"],
)
def test_a_change_at_the_end_or_in_the_lock_is_detected_too(copied, file, change):
    path = getattr(copied.images[0], file)
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    assert "images/mxnet/1.9.1/Dockerfile:" in refusal(copied)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("mxnet.Dockerfile.j2", None, "images/templates/mxnet.Dockerfile.j2: is missing; every framework in"),
        ("mxnet.Dockerfile.j2", "{% if %}", "images/templates/mxnet.Dockerfile.j2:1: "),
        ("mxnet.Dockerfile.j2", "{{ image.verison }}", "images/templates: a template uses an unknown name ("),
    ],
)
def test_an_invalid_template_is_refused(copied, name, text, sentence):
    path = copied.root / "images/templates" / name
    path.unlink() if text is None else path.write_text(text, encoding="utf-8")
    with pytest.raises(RequestError) as caught:
        list(render(copied))
    assert str(caught.value).removeprefix(f"{copied.root}/").startswith(sentence)
