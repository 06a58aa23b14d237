"""Prevents: images that can't be rebuilt, that reveal their package mirrors, that run as root, that differ from their
lock, or that are rebuilt each time.
"""

from __future__ import annotations

import json

import pytest
from commands import ROOT

from runner.core.cache import cache_dir
from runner.core.errors import RequestError
from runner.engines.images import image_id
from runner.images import build
from runner.images.base import build_archive, debian_sources, fetch_base
from runner.images.build import LABEL_BUILDER, ensure
from runner.images.catalog import load_images
from runner.images.wheelhouse import Target, file_sha256

pytestmark = pytest.mark.beside

CATALOG = load_images(ROOT)
CPU = [image for image in CATALOG.newest if image.device == "cpu"]
MODULES = {"pytorch": "torch"}
# Like a job: see runner/engines/docker.py.
LOCKED_UP = {
    "remove": True,
    "network_mode": "none",
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "tmpfs": {"/tmp": "rw,exec,mode=1777"},
}


@pytest.fixture(scope="session", params=CPU, ids=lambda image: image.name)
def image(request, client):
    ensure(request.param, client=client, cache=cache_dir(), report=print)
    return request.param


def inside(client, image, *argv, **options) -> str:
    return client.containers.run(image.reference, list(argv), **{**LOCKED_UP, **options}).decode()


def test_an_existing_image_is_not_rebuilt(client, image):
    before = client.images.get(image.reference).id
    built = ensure(image, client=client, cache=cache_dir(), report=pytest.fail)
    assert (built.id, built.lock_sha256) == (before, image.lock_sha256)


def test_its_labels_name_its_sources(client, image):
    labels = client.images.get(image.reference).labels
    assert labels["org.opencontainers.image.version"] == image.tag
    assert labels["dlscale.lock.sha256"] == file_sha256(image.lock_path)
    assert labels["dlscale.base.id"] == image_id(client, image.base.reference)
    assert labels["dlscale.base"] in ("mirror", "registry")
    packages = inside(client, image, "sha256sum", "/usr/share/dlscale/packages.txt").split()[0]
    assert labels["dlscale.base.packages.sha256"] == packages
    assert len(labels["org.opencontainers.image.revision"]) == 40


def module(image):
    """The module that its programs import."""
    name = MODULES.get(image.framework, image.framework)
    return f"{image.extension}.{name}" if image.extension else name


def test_its_smoke_test_passes_in_a_jobs_sandbox_and_its_import_compiles_nothing(client, image):
    """The root is read-only, so byte code missing from the image would be compiled at each start of each rank."""
    code = (
        f"import os, runpy, sys, {module(image)}; "
        "print([m.__name__ for m in sys.modules.values() if isinstance(c := getattr(m, '__cached__', None), str) and not os.path.exists(c)]); "
        "runpy.run_path('/opt/dlscale/smoke.py', run_name='__main__')"
    )
    said = inside(client, image, "python3", "-c", code, image.version.partition("-")[0], "cpu")
    compiled, *_, works = said.splitlines()
    assert compiled == "[]"
    assert works.endswith("works")


HOROVOD = [image for image in CPU if image.extension]


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
@pytest.mark.parametrize("image", HOROVOD, ids=lambda image: image.name, indirect=True)
def test_two_ranks_sum_up_in_a_jobs_sandbox(client, image, controller):
    """In a container without a network, whose name has no address, Gloo's collectives must use the named interface.

    By default, Open MPI tries to read the other rank's memory for each message, and reports that it is not permitted.
    """
    code = (
        f"import runpy; runpy.run_path('/opt/dlscale/smoke_horovod.py'); import {module(image)} as hvd; "
        "print(len(hvd.allgather_object(bytes(10**7))))"
    )
    words = ("python3", "-c", code, image.framework, image.extension_version, controller)
    launcher = ("horovodrun", f"--{controller}", "--network-interfaces", "lo", "-np", "2")
    said = inside(client, image, *launcher, *words, stderr=True)
    assert [f"rank {rank} of 2 by {controller} works" in said for rank in (0, 1)] == [True, True]
    assert said.count("<stdout>:2") == 2
    assert controller == "gloo" or "errno" not in said


@pytest.mark.parametrize("image", HOROVOD, ids=lambda image: image.name, indirect=True)
def test_its_sshd_has_no_keys_and_its_user_has_a_shell(client, image):
    """Installing the package generates keys, which all owners of the image would share; a login needs a shell."""
    as_root = {"user": "0", "cap_drop": []}
    assert inside(client, image, "find", "/etc/ssh", "/tmp", "/root", "-name", "*_key*", **as_root) == ""
    assert inside(client, image, "sh", "-c", "getent passwd bench").strip().split(":")[-2:] == ["/tmp", "/bin/sh"]
    # The file that brings a run's keys may be missing.
    assert "\nuser bench\n" in inside(client, image, "ssh", "-G", "somewhere")


def test_it_runs_as_an_ordinary_user_who_can_not_modify_it(client, image):
    assert inside(client, image, "id", "--user").strip() == "10001"
    found = inside(
        client,
        image,
        "sh",
        "-c",
        "find / -xdev -writable -not -type l 2>/dev/null | grep -vE '^/(dev|proc|sys|tmp)' || true",
        read_only=False,
    )
    # Debian's own world-writable directories.
    assert set(found.split()) <= {"/run/lock", "/var/tmp", "/var/lock"}


def test_it_contains_exactly_the_locked_packages(client, image):
    if image.kind == "debian":
        listing = inside(client, image, "dpkg-query", "--show", "--showformat", "${Package}=${Version}\n")
        assert listing.splitlines() == image.lock_path.read_text(encoding="utf-8").splitlines()[2:]
        return
    listing = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    held = {
        name.lower().replace("_", "-").replace(".", "-"): version
        for name, version in json.loads(inside(client, image, "python3", "-c", listing)).items()
    }
    locked = {
        pin.name: pin.version
        for path in filter(None, (image.parent and image.parent.lock_path, image.lock_path))
        for pin in Target.of(image.base).pins(path.read_text(encoding="utf-8"))
    }
    # `python3 -m venv` installs its own pip, and setuptools if the lock has none.
    assert {**locked, "pip": held["pip"], "setuptools": held["setuptools"]} == held


def test_it_reveals_nothing_about_this_machine(client, image):
    left = inside(
        client,
        image,
        "sh",
        "-c",
        "cat /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/apt/apt.conf.d/* /etc/machine-id 2>/dev/null || true",
    )
    mirrors = {line.split()[1].split("/")[2] for line in debian_sources(image.base.suite)}
    history = json.dumps(client.images.get(image.reference).history())
    assert mirrors
    assert not [mirror for mirror in mirrors if mirror in left + history]
    kept = inside(
        client,
        image,
        "find",
        "/var/lib/apt/lists",
        "/var/cache/apt",
        "/var/log",
        "-type",
        "f",
        "-not",
        "-empty",
        user="0",
        cap_drop=[],
    )
    assert kept == ""


def test_a_build_leaves_nothing_behind(client, image):
    assert client.images.list(filters={"dangling": True, "label": f"{LABEL_BUILDER}={image.reference}"}) == []


def test_a_base_is_reproducible(tmp_path):
    """Rebuild Open MPI's base: it contains the plain one, and the packages with the most maintainer scripts."""
    base = next(base for base in CATALOG.bases if base.name == "bookworm-mpi")
    before = fetch_base(base, cache=cache_dir(), report=print)
    build_archive(base, tmp_path / "again.tar", report=print)
    assert file_sha256(tmp_path / "again.tar") == file_sha256(before)


def test_images_can_be_saved_and_loaded(client, tmp_path):
    """Save, remove, and load an image with the same id, as for a machine without a network."""
    ensure(CPU[0], client=client, cache=cache_dir(), report=print)
    (tmp_path / "Dockerfile").write_text(f"FROM {CPU[0].base.reference}\nLABEL moved=1\n", encoding="utf-8")
    reference = "dlscale/test:moved"
    made, _ = client.images.build(path=str(tmp_path), tag=reference, rm=True)
    try:
        build.save([reference], client=client, directory=tmp_path / "set", report=print)
        client.images.remove(reference)
        (loaded,) = build.load(tmp_path / "set", client=client, report=print)
        assert loaded.id == made.id == client.images.get(reference).id
        file = tmp_path / "set" / loaded.file
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(RequestError, match="differs from its hash"):
            build.load(tmp_path / "set", client=client, report=print)
    finally:
        client.images.remove(reference, force=True)
