"""Prevents: an image of Debian packages that quietly is made of other versions than its lock names, and a user who is told so without
being told which package, and what to do.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.core.errors import DlscaleError, RequestError
from runner.images import base
from runner.images.base import check_packages, write_packages
from runner.images.catalog import load_images
from runner.images.lock import check_lock

CATALOG = load_images(Path(__file__).parents[3])
CAFFE = CATALOG.find("caffe", "1.0", "cpu")


@pytest.fixture
def image(tmp_path, monkeypatch):
    """Caffe's image in an empty checkout; its base is there, and holds the packages that a test gives as the client."""

    def run(client, reference, argv, *, network):
        assert (reference, argv, network) == (CAFFE.base.reference, ("cat", "/usr/share/dlscale/packages.txt"), "none")
        return client

    monkeypatch.setattr(base, "run_confined", run)
    monkeypatch.setattr(base, "ensure_base", lambda *_, **__: "sha256:base")
    return CAFFE.model_copy(update={"directory": tmp_path / "images" / "caffe" / "1.0"})


def write(image, listed):
    return write_packages(image, client=listed, cache=Path(), report=print, upgrade=False)


def test_the_lock_is_the_bases_own_list_under_the_header(image):
    assert write(image, "apt=2.2.4\ncaffe=1.0\n") is True
    assert write(image, "apt=2.2.4\ncaffe=1.0\n") is False
    assert image.lock_path.read_text(encoding="utf-8").splitlines()[2:] == ["apt=2.2.4", "caffe=1.0"]
    check_lock(image)
    check_packages(image, client="apt=2.2.4\ncaffe=1.0\n")


@pytest.mark.parametrize(
    ("listed", "count", "difference"),
    [
        ("apt=2.2.5\ncaffe=1.0\n", 1, "apt: 2.2.5 instead of 2.2.4"),
        ("apt=2.2.4\n", 1, "caffe: nothing instead of 1.0"),
        ("apt=2.2.4\nbash=5\ncaffe=1.1\n", 2, "bash: 5 instead of nothing"),
    ],
)
def test_a_base_of_other_packages_is_refused_with_the_first_of_them(image, listed, count, difference):
    write(image, "apt=2.2.4\ncaffe=1.0\n")
    with pytest.raises(RequestError) as caught:
        check_packages(image, client=listed)
    assert str(caught.value) == (
        f"{image.base.reference} differs in {count} packages from {image.lock_path} ({difference}); set DLSCALE_DEBIAN_MIRROR to a "
        f"mirror that has the locked ones and type `dlscale images base bullseye --refresh`, or accept these with "
        f"`dlscale images lock caffe:1.0`"
    )


def test_a_lock_of_other_wishes_is_found_out(image):
    write(image, "apt=2.2.4\n")
    other = image.base.model_copy(update={"packages": ("caffe=1.1",)})
    with pytest.raises(DlscaleError, match=r"packages.lock: was not made from .*; run `dlscale images lock`"):
        check_lock(image.model_copy(update={"base": other}))


def test_every_package_that_versions_yaml_pins_is_locked_in_that_version():
    locked = CAFFE.lock_path.read_text(encoding="utf-8").splitlines()
    assert set(CAFFE.base.packages) <= set(locked)
