"""Prevents: a vendor's container whose tag was silently moved to other software, a digest that nobody has verified, and a build that starts
although the container is not available.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from docker.errors import APIError, ImageNotFound

from runner.core.errors import DlscaleError, RequestError
from runner.engines.images import Answer
from runner.images import lock
from runner.images.catalog import load_images
from runner.images.lock import check_lock, ensure_container, source, write_container

CATALOG = load_images(Path(__file__).parents[3])
CAFFE = CATALOG.find("caffe", "0.17.3-nvidia", "gpu")
NAME = "nvcr.io/nvidia/caffe:20.03-py3"
ONE, OTHER = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"


@pytest.fixture
def image(tmp_path):
    return CAFFE.model_copy(update={"directory": tmp_path / "images" / "caffe" / "0.17.3-nvidia"})


def registry_says(monkeypatch, answer):
    asked = []
    monkeypatch.setattr(lock, "ask_registry", lambda reference: asked.append(reference) or answer)
    return asked


SILENT = Answer(None, "no such host")


def test_without_a_registry_the_lock_has_the_tag_and_an_unknown_digest(image, monkeypatch):
    registry_says(monkeypatch, SILENT)
    said: list[str] = []
    assert write_container(image, report=said.append) is True
    assert said == [f"{NAME}: its registry does not answer (no such host); its digest remains unknown"]
    assert image.lock_path.read_text(encoding="utf-8").splitlines()[2:] == [
        "# digest: unknown; no registry has answered yet",
        NAME,
    ]
    assert source(image) == NAME
    check_lock(image)


def test_a_known_digest_is_kept_and_used(image, monkeypatch):
    registry_says(monkeypatch, Answer(ONE, None))
    write_container(image, report=pytest.fail)
    assert source(image) == f"{NAME}@{ONE}"
    registry_says(monkeypatch, SILENT)
    assert write_container(image, report=lambda _: None) is False
    assert source(image) == f"{NAME}@{ONE}"


def test_a_moved_tag_is_refused(image, monkeypatch):
    registry_says(monkeypatch, Answer(ONE, None))
    write_container(image, report=pytest.fail)
    registry_says(monkeypatch, Answer(OTHER, None))
    with pytest.raises(RequestError) as caught:
        write_container(image, report=pytest.fail)
    assert str(caught.value).startswith(
        f"{NAME} is {OTHER} in its registry and {ONE} here: the tag was moved; to accept that, remove {image.lock_path}"
    )


class Engine:
    """An engine that has an image or pulls it."""

    def __init__(self, held=(), error=None):
        self.held, self.error, self.images = set(held), error, self

    def get(self, reference):
        if reference not in self.held:
            raise ImageNotFound(reference)
        return type("Image", (), {"id": "sha256:id"})

    def pull(self, reference):
        if self.error:
            raise self.error
        self.held.add(reference)


def test_a_missing_container_is_pulled_by_digest_and_later_used_offline(image, monkeypatch):
    asked = registry_says(monkeypatch, Answer(ONE, None))
    write_container(image, report=pytest.fail)
    engine, said = Engine(), []
    ensure_container(image, client=engine, report=said.append)
    assert said == [f"pulling {NAME}@{ONE}"]
    assert engine.held == {f"{NAME}@{ONE}"}
    assert asked.pop() == f"{NAME}@{ONE}"
    asked.clear()
    ensure_container(image, client=engine, report=pytest.fail)
    assert asked == []


@pytest.mark.parametrize(
    ("answer", "engine", "why"),
    [
        (SILENT, Engine(), "no such host"),
        (Answer(ONE, None), Engine(error=APIError("500", explanation="disk full")), "disk full"),
    ],
)
def test_an_unavailable_container_is_reported_in_one_sentence(image, monkeypatch, answer, engine, why):
    registry_says(monkeypatch, Answer(ONE, None))
    write_container(image, report=pytest.fail)
    registry_says(monkeypatch, answer)
    with pytest.raises(RequestError) as caught:
        ensure_container(image, client=engine, report=lambda _: None)
    assert str(caught.value).startswith(f"{NAME}@{ONE}, the base of caffe 0.17.3-nvidia, is not in the engine, and its")
    assert f"({why}); bring the image with `dlscale images load`" in str(caught.value)


def test_without_a_digest_nothing_is_built_even_if_the_engine_has_the_tag(image, monkeypatch):
    """A tag can be moved: two machines built different images of the same name."""
    registry_says(monkeypatch, SILENT)
    write_container(image, report=lambda _: None)
    with pytest.raises(
        RequestError, match=r"the digest of .* is unknown; type `dlscale images lock caffe:0.17.3-nvidia` on a"
    ):
        ensure_container(image, client=Engine(held={NAME}), report=pytest.fail)


def test_a_digest_in_versions_yaml_is_locked_unless_a_registry_has_another(image, monkeypatch):
    image = image.model_copy(update={"digest": ONE})
    registry_says(monkeypatch, SILENT)
    write_container(image, report=lambda _: None)
    assert source(image) == f"{NAME}@{ONE}"
    with pytest.raises(DlscaleError, match=r"run `dlscale images lock`"):
        check_lock(image.model_copy(update={"digest": OTHER}))
    registry_says(monkeypatch, Answer(OTHER, None))
    with pytest.raises(RequestError, match="the tag was moved"):
        write_container(image, report=pytest.fail)


@pytest.mark.parametrize("image", [i for i in CATALOG.images if i.kind == "container"], ids=lambda image: image.name)
def test_every_committed_digest_is_complete(image):
    """A digest comes only from a registry's answer, and in full."""
    reference = source(image)
    assert reference == image.container or len(reference.removeprefix(f"{image.container}@sha256:")) == 64
