"""The recipe of a framework version (docs/extending/image.md), followed in a copy of images/.

Prevents: facts about a version that its wheel does not contain, packages that are incompatible, half an entry after a failure, a size reported
as measured that nobody measured, a Python without a wheel of some package, a CPU build of this machine locked into a GPU image.
"""

import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from wheels import make_index, make_wheel

from runner.core.errors import RequestError
from runner.images.add import _with_cuda, _with_entry, add, record_size
from runner.images.catalog import load_images
from runner.images.lock import check_lock
from runner.images.render import check
from runner.images.wheelhouse import file_sha256

ROOT = Path(__file__).parents[3]
ARCHITECTURES = b"\0\0sm_75 sm_80 sm_86 sm_90 sm_100 sm_120\0"
# From tensorflow-2.20.0's.
BUILD_INFO = (
    "build_info = collections.OrderedDict([('cuda_compute_capabilities', ['sm_60', 'sm_70', 'sm_80', 'sm_89', 'compute_90']), "
    "('cuda_version', '12.5.1'), ('cudnn_version', '9')])"
)


@pytest.fixture
def root(tmp_path):
    """A copy of images/ in which PyTorch's own index of builds is a folder."""
    shutil.copytree(ROOT / "images", tmp_path / "images")
    versions = tmp_path / "images" / "versions.yaml"
    text = versions.read_text()
    (home,) = re.findall(r"extra_index: (\S+)/cpu\n", text)
    versions.write_text(text.replace(home, (tmp_path / "whl").as_uri()))
    return tmp_path


def torch_for(folder, version, cuda):
    """A wheel of PyTorch that says what it was built for."""
    wheel, _ = make_wheel(folder, "torch", version)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("torch/version.py", f"cuda: Optional[str] = '{cuda}'\n")
        archive.writestr("torch/lib/libtorch_python.so", ARCHITECTURES)
    return wheel


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index with PyTorch 9.1 for CUDA 13.9, and its dependencies."""
    folder = tmp_path / "made"
    torch = torch_for(folder, "9.1", "13.9")
    dali = {"nvidia-dali-cuda120": "9.7", "nvidia-dali-cuda130": "9.7"}
    others = {**dali, "numpy": "2.2.6", "nvidia-ml-py": "13.615.71"}
    wheels = [make_wheel(folder, name.replace("-", "_"), version)[0] for name, version in others.items()]
    wheels += [make_wheel(folder, "pillow", "12.0.0", tag=f"cp3{minor}-none-any")[0] for minor in (11, 12, 13)]
    wheels.append(make_wheel(folder, "torch", "9.1+cpu")[0])  # newer than 9.1 by PEP 440
    wheels.append(make_wheel(folder, "numpy", "9.9")[0])  # newer than the others accept
    wheels.append(make_wheel(folder, "torch", "9.2")[0])  # without build information
    wheels.append(make_wheel(folder, "tensorflow", "9.1")[0])
    with zipfile.ZipFile(wheels[-1], "a") as archive:
        archive.writestr("tensorflow/python/platform/build_info.py", BUILD_INFO)
    address = make_index(tmp_path / "index", torch, *wheels)
    for name in (*dali, "nvidia-ml-py"):
        (tmp_path / "index" / name.replace("-", "_")).rename(tmp_path / "index" / name)
    make_index(tmp_path / "whl" / "cu126", torch_for(folder, "9.1+cu126", "12.6"))
    for folder in (*(tmp_path / "index").iterdir(), *(tmp_path / "whl" / "cu126").iterdir()):
        held = {wheel.name: file_sha256(wheel) for wheel in sorted(folder.glob("*.whl"))}
        links = "".join(f'<a href="{name}#sha256={digest}">{name}</a>' for name, digest in held.items())
        (folder / "index.html").write_text(f"<!DOCTYPE html>{links}")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", address)
    return address


def added(root, version, framework="pytorch", **asked):
    return add(root, framework, version, cache=root / "cache", report=lambda _: None, **asked)


def test_adding_a_version_writes_one_entry_and_generates_the_rest(root, index):
    before = load_images(root)
    written = (root / "images" / "versions.yaml").read_text()
    image = added(root, "9.1")
    catalog = load_images(root)
    assert [image] == [one for one in catalog.images if one not in before.images]
    # Everything else is unchanged, including comments.
    text = (root / "images" / "versions.yaml").read_text().splitlines()
    rest = iter(text)
    assert all(line in rest for line in written.splitlines())
    assert (
        text.index('  "13.9": {minimum_driver: 580.65.06}') == text.index('  "13.2": {minimum_driver: 580.65.06}') + 1
    )
    assert (image.name, image.device, image.cuda, image.minimum_driver) == ("pytorch 9.1", "gpu", "13.9", "580.65.06")
    assert image.compute_capabilities == ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
    assert image.requirements == (
        "torch==9.1", "nvidia-dali-cuda130==9.7", "numpy==2.2.6", "nvidia-ml-py==13.615.71", "pillow==12.0.0",
    )  # fmt: skip
    assert (image.wheels_mib, image.measured, image.base.name) == (1, False, "bookworm-rdma-cxx")
    assert image.requires_python == ">=3.11,<3.14"
    assert "torch==9.1+cpu" not in image.lock_path.read_text()
    check_lock(image)
    check(catalog)  # as `make verify` does
    # Until it is built, its size is that of the largest of its kind; then it is the measured one.
    assert image.size_mib == max(other.size_mib for other in before.of("pytorch", "gpu") if other.kind == "wheels")
    assert record_size(root, image, 4711)
    (built,) = [image for image in load_images(root).images if image.version == "9.1"]
    assert (built.size_mib, built.measured) == (4711, True)
    assert not record_size(root, built, 1)
    with pytest.raises(RequestError, match=r"pytorch 9.1 is in images/versions.yaml already"):
        added(root, "9.1")


def test_a_build_for_another_cuda_release_comes_from_the_frameworks_index(root, index):
    image = added(root, "9.1", cuda="cu126")
    assert (image.version, image.cuda, image.minimum_driver) == ("9.1-cu126", "12.6", "525.60.13")
    assert image.requirements[:2] == ("torch==9.1+cu126", "nvidia-dali-cuda120==9.7")
    assert image.extra_index.endswith("/whl/cu126")
    check_lock(image)
    assert added(root, "9.1", "tensorflow", cuda="cu125").version == "9.1"  # its only release


def test_another_python_selects_a_base_with_the_same_packages(root, index):
    image = added(root, "9.1", python="3.13")
    assert (image.version, image.base.name, image.base.python) == ("9.1-py313", "trixie-rdma-cxx", "3.13")
    assert "bookworm" not in image.dockerfile.read_text()
    assert added(root, "9.1", python="3.11").version == "9.1"


def test_an_entry_is_inserted_by_version_among_similar_ones(root):
    text = (root / "images" / "versions.yaml").read_text()
    alike = [image for image in load_images(root).of("pytorch", "gpu") if "-" not in image.version]
    older = alike[0].model_copy(update={"version": "2.12.0"})
    lines = _with_entry(text, older, alike, {"version": "2.12.0", "ptx": True}).splitlines()
    place = lines.index("    - version: 2.12.0")
    assert lines[place + 1 : place + 3] == ["      ptx: true", "    - version: 2.13.0"]


def test_tensorflows_build_info_is_read_from_its_wheel(root, index):
    image = added(root, "9.1", "tensorflow")
    assert (image.cuda, image.compute_capabilities, image.ptx) == ("12.5", ("6.0", "7.0", "8.0", "8.9", "9.0"), True)
    assert image.requirements[0] == "tensorflow[and-cuda]==9.1"


@pytest.mark.parametrize(
    ("framework", "version", "asked", "says"),
    [
        ("pytorch", "9.1", {"cuda": "cu130"}, r"no package source has pytorch 9.1 built for CUDA 13.0; leave out"),
        ("pytorch", "9.1", {"cuda": "12.6"}, r"--cuda 12.6 is not a CUDA release; .* cu126, cu130"),
        (
            "pytorch",
            "9.1",
            {"python": "3.12"},
            r"no base .* has Python 3.12 for pytorch .*: 3.11 \(bookworm-rdma-cxx\), 3.13",
        ),
        (
            "tensorflow",
            "9.1-cpu",
            {"python": "3.9"},
            r"no base .* has Python 3.9 .*: 3.11 \(bookworm\), 3.13 \(trixie\)$",
        ),
        ("tensorflow", "9.1", {"cuda": "cu126"}, r"tensorflow-9.1-.* is built for CUDA 12.5, not 12.6; leave out"),
        ("mxnet", "1.9.1", {"cuda": "cu117"}, "no image of mxnet made of wheels for GPUs is named like 1.9.1; known"),
        ("pytorch", "9.2", {}, r"torch-9.2-py3-none-any.whl does not say which CUDA release and compute capabilities"),
        (
            "pytorch",
            "9.3",
            {},
            r"pytorch 9.3 can't be locked \(.*torch==9.3.*\); name another .*`pip index versions torch`",
        ),
        (
            "pytorch",
            "9.1-rocm",
            {},
            "no image of pytorch made of wheels is named like 9.1-rocm; known: 2.15.0, ",
        ),
        ("caffe", "2.0", {}, "no image of caffe made of wheels is named like 2.0; known: none"),
        ("torch", "9.1", {}, "unknown FRAMEWORK 'torch'"),
    ],
)
@pytest.mark.usefixtures("index")
def test_a_failed_addition_leaves_nothing(root, framework, version, asked, says):
    before = sorted(path.read_bytes() for path in (root / "images").rglob("*") if path.is_file())
    with pytest.raises(RequestError, match=says):
        added(root, version, framework, **asked)
    assert sorted(path.read_bytes() for path in (root / "images").rglob("*") if path.is_file()) == before


def test_a_cuda_release_older_than_all_listed_comes_before_them(root):
    """It ended in a traceback."""
    text = (root / "images" / "versions.yaml").read_text("utf-8")
    catalog = load_images(root)
    oldest = min(
        (image.cuda for image in catalog.images if image.cuda), key=lambda cuda: tuple(map(int, cuda.split(".")))
    )
    older = f"{oldest.split('.')[0]}.0"
    lines = _with_cuda(text, catalog, older).splitlines()
    assert lines.index(next(line for line in lines if line.startswith(f'  "{older}":'))) < lines.index(
        next(line for line in lines if line.startswith(f'  "{oldest}":'))
    )
