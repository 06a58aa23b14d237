"""Images as files. Prevents: a SIF of an older lock that runs under the new one's name, half a SIF, and a job whose record names another image."""

import gzip
from pathlib import Path

import pytest

from runner.core.errors import RequestError
from runner.core.provenance import SUITE_ROOT
from runner.engines import docker, owner
from runner.engines.base import EngineError
from runner.engines.process import CommandError
from runner.images import sif
from runner.images.build import Archived, Manifest
from runner.images.catalog import load_images

IMAGE = load_images(SUITE_ROOT).find("mxnet", "1.9.1", "cpu", gpus=(), driver=None)
ID = "sha256:0123456789abcdef"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """No Docker, an empty cache, and an Apptainer that copies."""

    def refuse():
        raise EngineError("no Docker engine answers")

    def follow(argv, *, on_line):
        Path(argv[3]).write_bytes(b"SIF of " + Path(argv[4].removeprefix("docker-archive:")).read_bytes())

    monkeypatch.setenv("DLSCALE_CACHE", str(tmp_path))
    monkeypatch.setattr(docker, "connect", refuse)
    monkeypatch.setattr(sif, "follow", follow)


def archive(lock=IMAGE.lock_sha256, identifier=ID):
    """An archive in the image's folder, as `images archive` leaves it."""
    where = sif.folder(IMAGE)
    where.mkdir(parents=True, exist_ok=True)
    (where / "x.tar.gz").write_bytes(gzip.compress(b"layers"))
    entry = Archived(file="x.tar.gz", sha256="0", reference=IMAGE.reference, id=identifier, lock_sha256=lock)
    (where / "images.json").write_text(Manifest(images=(entry,)).model_dump_json())


def made():
    return sif.ensure_sif(IMAGE, report=lambda _: None)


def test_a_sif_is_made_once_and_describes_its_source():
    archive()
    path, details = made()
    assert path.read_bytes() == b"SIF of layers"
    assert (path.name, details.id, details.lock_sha256) == (
        "dlscale-mxnet-1.9.1-0123456789ab.sif",
        ID,
        IMAGE.lock_sha256,
    )
    (path.parent / "x.tar.gz").unlink()
    assert made() == (path, details)
    assert [one.suffix for one in path.parent.iterdir() if one.suffix in (".draft", ".tar")] == []


def test_a_sif_of_another_lock_is_made_again_or_else_refused():
    archive(lock="0" * 64)
    with pytest.raises(RequestError, match=r"on a machine with Docker type `dlscale images archive DIR mxnet:1\.9\.1`"):
        made()
    archive()
    first, _ = made()
    archive(identifier="sha256:ffff56789abcdef")
    entry, packed = sif.find_archive(IMAGE, sif.folder(IMAGE))
    second, _ = sif.make_sif(entry, packed, where=sif.folder(IMAGE), report=lambda _: None)
    assert first != second
    assert made()[0] == second


def test_a_sif_that_was_changed_is_refused():
    archive()
    path, _ = made()
    path.write_bytes(b"half")
    with pytest.raises(RequestError, match="differs from the SIF that was made"):
        made()


def test_podman_loads_an_image_that_is_missing_or_of_another_lock():
    archive()
    has, asked = [f"{ID} {'0' * 64}"], []

    def ask(argv):
        asked.append(argv[1])
        if argv[1] == "load":
            assert Path(argv[-1]).read_bytes() == b"layers"
            has[:] = [f"{ID} {IMAGE.lock_sha256}"]
            return ""
        if not has:
            raise CommandError(argv, 125, "no such image")
        return has[0]

    assert sif.ensure_in_podman(IMAGE, ask, report=lambda _: None) == ID
    assert sif.ensure_in_podman(IMAGE, ask, report=lambda _: None) == ID
    assert asked == ["image", "load", "image", "image"]


def test_the_tar_of_a_killed_runner_is_removed_unless_it_ran_on_another_machine():
    """It is as large as the image, and nothing else would remove it."""
    archive()
    place, mine, started = owner.this_process().rsplit(".", 2)
    gone, unknown = (f"{place}.{mine}.{int(started) - 1}", f"{'0' * 8}{place[8:]}.{mine}.{started}")
    tars = [sif.folder(IMAGE) / f"x.tar-{runner}.tar" for runner in (gone, unknown)]
    for path in tars:
        path.write_bytes(b"layers")
    made()
    assert [path.exists() for path in tars] == [False, True]
