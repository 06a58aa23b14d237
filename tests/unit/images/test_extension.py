"""Prevents: Horovod built into another framework's image, an image with Horovod that is not outdated by a change of its parent or of a patch,
one that is chosen without a request for Horovod, and one that is built before its parent.
"""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import examples
import pytest
from wheels import make_sdist

from runner.core.errors import DlscaleError, RequestError
from runner.images import build
from runner.images.build import LABEL_BASE, LABEL_INPUTS, LABEL_PARENT, build_inputs_sha256, ensure, is_current
from runner.images.catalog import load_images
from runner.images.lock import check_lock
from runner.images.render import render
from runner.images.wheelhouse import fetch, read_lock

ROOT = Path(__file__).parents[3]
CATALOG = load_images(ROOT)
PLAIN = CATALOG.find("mxnet", "1.9.1", "cpu")
MXNET = CATALOG.with_horovod(PLAIN)


@pytest.fixture
def copied(tmp_path):
    """The catalog of a copy of images/, which tests may change."""
    shutil.copytree(ROOT / "images", tmp_path / "images")
    return load_images(tmp_path)


def test_its_name_has_both_versions_and_its_version_is_the_frameworks():
    assert MXNET.name == "mxnet 1.9.1 with horovod 0.28.1"
    assert (MXNET.framework, MXNET.version, MXNET.reference) == ("mxnet", "1.9.1", "dlscale/mxnet:1.9.1-horovod")
    assert (MXNET.extension, PLAIN.extension, MXNET.parent) == ("horovod", None, PLAIN)
    assert MXNET.directory == ROOT / "images/mxnet/1.9.1/horovod"


@pytest.mark.parametrize(
    ("image", "those"),
    [
        (("mxnet", "1.9.1-cu112", "gpu"), "versions of mxnet that have: 1.9.1, 1.9.1-nvidia"),
        (("caffe", "1.0", "cpu"), "these have: mxnet 1.9.1, mxnet 1.9.1-nvidia, pytorch 2.13.0-cpu"),
    ],
)
def test_an_image_without_horovod_is_refused_with_those_that_have_it(image, those):
    catalog = examples.catalog("1.9.1", "1.9.1-cu112", "1.9.1-nvidia", "2.13.0-cpu", "1.0")
    with pytest.raises(RequestError, match=f"{image[0]} {image[1]} has no image with Horovod; {those}$"):
        catalog.with_horovod(catalog.find(*image))


def test_selecting_plain_images_never_selects_one_with_horovod():
    chosen = [image for name in CATALOG.frameworks for image in CATALOG.of(name)]
    assert {image.extension for image in (*chosen, *CATALOG.images)} == {None}


def test_its_dockerfile_extends_the_framework_compiles_on_one_base_and_runs_on_another():
    lines = dict(render(CATALOG))[MXNET.dockerfile].splitlines()
    starts = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert starts == [PLAIN.reference, MXNET.build_base.reference, MXNET.base.reference]
    assert MXNET.base.name == "bookworm-mpi"
    text = "\n".join(lines)
    assert "HOROVOD_WITH_MXNET=1" in text
    assert "HOROVOD_WITHOUT_MXNET" not in text
    assert all(f"HOROVOD_WITHOUT_{other}=1" in text for other in ("PYTORCH", "TENSORFLOW"))
    assert "g++" not in MXNET.base.packages


def test_cudas_compiler_is_used_by_the_build_but_not_installed():
    image = CATALOG.with_horovod(CATALOG.find("pytorch", "2.15.0", "gpu"))
    assert "nvidia-cuda-nvcc" in image.build_requirements
    assert {pin.name for pin in read_lock(image.lock_path.read_text(encoding="utf-8"))} > set(image.build_requirements)
    builder, runtime = dict(render(CATALOG))[image.dockerfile].split(f"FROM {image.base.reference}")
    assert "HOROVOD_GPU_OPERATIONS=NCCL" in builder
    assert "HOROVOD_BUILD_CUDA_CC_LIST=75,80,86,90,100,120" in builder
    for name in image.build_requirements:
        assert f"/^{name}==/,/[^\\\\]$/d" in builder  # removed from the requirements of the environment
    assert "/compiler" not in runtime


def test_pytorchs_gpu_images_have_a_c_compiler_for_triton():
    wanted = ("pytorch", "gpu", "wheels")
    gpu = [image for image in CATALOG.all_images if (image.framework, image.device, image.kind) == wanted]
    assert {image.extension for image in gpu} == {None, "horovod"}
    assert all({"g++", "libpython3-dev"} <= {*image.base.packages} for image in gpu)


@pytest.mark.parametrize("framework", ["mxnet", "pytorch", "tensorflow"])
def test_every_supported_framework_has_horovod_on_cpus_and_each_patch_says_why(framework):
    plain = CATALOG.find(framework, None, "cpu")
    image = CATALOG.with_horovod(plain)
    assert image.parent == plain
    for path in image.patches:
        comment = path.read_text(encoding="utf-8").partition("--- a/")[0]
        assert len(comment.split()) > 10, path


def test_packages_shared_with_the_parent_have_the_parents_version():
    """The framework was tested with these; a second version would silently replace the first."""
    for image in CATALOG.extended:
        held = {pin.name: pin.version for pin in read_lock(image.parent.lock_path.read_text(encoding="utf-8"))}
        own = {pin.name: pin.version for pin in read_lock(image.lock_path.read_text(encoding="utf-8"))}
        assert {name: own[name] for name in own.keys() & held.keys()}.items() <= held.items()


@pytest.mark.parametrize(
    ("changed", "lock_too"),
    [
        ("mxnet/1.9.1/requirements.lock", True),
        ("templates/horovod/common.patch", True),
        ("mxnet/1.9.1/Dockerfile", False),
    ],
    ids=["parent", "patch", "parent's template"],
)
def test_a_changed_parent_or_patch_outdates_the_image_and_its_lock(copied, changed, lock_too):
    """Its lock alone identifies, by digest, everything in the image."""
    image = copied.with_horovod(copied.find("mxnet", "1.9.1", "cpu"))
    check_lock(image)
    before = build_inputs_sha256(image)
    with (copied.root / "images" / changed).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert build_inputs_sha256(image) != before
    with pytest.raises(DlscaleError, match=r"horovod/requirements.lock: is outdated") if lock_too else nullcontext():
        check_lock(image)


def test_it_is_outdated_once_the_parent_is_another_image():
    labels = {LABEL_INPUTS: build_inputs_sha256(MXNET), LABEL_BASE: "base 1", LABEL_PARENT: "parent 1"}
    assert is_current(MXNET, labels, based_on={LABEL_BASE: "base 1", LABEL_PARENT: "parent 1"})
    assert not is_current(MXNET, labels, based_on={LABEL_BASE: "base 1", LABEL_PARENT: "parent 2"})
    assert not is_current(MXNET, labels, based_on={LABEL_BASE: "base 2", LABEL_PARENT: "parent 1"})


def test_the_framework_is_built_first(monkeypatch, tmp_path):
    built: list[str] = []
    monkeypatch.setattr(build, "check_disk", lambda *_: None)
    monkeypatch.setattr(build, "_ensure_bases", lambda *_, **__: None)
    monkeypatch.setattr(build, "fetch", lambda *_, **__: ())
    monkeypatch.setattr(build, "_build", lambda image, *_, **__: built.append(image.reference))
    monkeypatch.setattr(build, "find_built", lambda image, _: SimpleNamespace(id="x", current=image.reference in built))
    monkeypatch.setattr(build, "remove_unnamed", lambda *_: None)
    ensure(MXNET, client=None, cache=tmp_path, report=print)
    assert built == [PLAIN.reference, MXNET.reference]


def test_the_source_distribution_is_fetched_and_checked_each_time(tmp_path, monkeypatch):
    sources = tmp_path / "sources"
    sdist, sha256 = make_sdist(sources, "horovod", "0.28.1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(sources))
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    (tmp_path / "requirements.lock").write_text(f"horovod==0.28.1 --hash=sha256:{sha256}\n", encoding="utf-8")
    image = MXNET.model_copy(update={"directory": tmp_path})
    (found,) = fetch(image, cache=tmp_path / "cache", report=lambda _: None)
    assert (found.name, found.read_bytes()) == ("horovod-0.28.1.tar.gz", sdist.read_bytes())
    assert fetch(image, cache=tmp_path / "cache", report=pytest.fail) == (found,)
    found.write_bytes(b"damaged")
    assert fetch(image, cache=tmp_path / "cache", report=lambda _: None) == (found,)
    assert found.read_bytes() == sdist.read_bytes()
