"""The recipe of a framework version (docs/extending/image.md), walked in a copy of images/: what is said of a version but is not in its
wheel, a version whose packages do not go together, half an entry after a failure, sizes that nobody measured taken for measured.
"""

import os
import shutil
import zipfile
from pathlib import Path

import pytest
from wheels import make_index, make_wheel

from runner.core.errors import RequestError
from runner.images.add import add, record_size
from runner.images.catalog import load_images
from runner.images.lock import check_lock
from runner.images.render import check

ROOT = Path(__file__).parents[2]
ARCHITECTURES = b"\0\0sm_75 sm_80 sm_86 sm_90 sm_100 sm_120\0"
# A part of tensorflow-2.20.0's.
BUILD_INFO = (
    "build_info = collections.OrderedDict([('cuda_compute_capabilities', ['sm_60', 'sm_70', 'sm_80', 'sm_89', 'compute_90']), "
    "('cuda_version', '12.5.1'), ('cudnn_version', '9')])"
)


@pytest.fixture
def root(tmp_path):
    shutil.copytree(ROOT / "images", tmp_path / "images")
    return tmp_path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index with PyTorch 9.1 for CUDA 13.9, and what goes with it."""
    folder = tmp_path / "made"
    torch, _ = make_wheel(folder, "torch", "9.1")
    with zipfile.ZipFile(torch, "a") as archive:
        archive.writestr("torch/version.py", "cuda: Optional[str] = '13.9'\n")
        archive.writestr("torch/lib/libtorch_python.so", ARCHITECTURES)
    others = {"torchvision": "9.7", "numpy": "2.2.6", "nvidia-ml-py": "13.615.71", "pillow": "12.0.0"}
    wheels = [make_wheel(folder, name.replace("-", "_"), version)[0] for name, version in others.items()]
    wheels.append(make_wheel(folder, "numpy", "9.9")[0])  # newer than what the others have
    wheels.append(make_wheel(folder, "torch", "9.2")[0])  # says nothing of itself
    wheels.append(make_wheel(folder, "tensorflow", "9.1")[0])
    with zipfile.ZipFile(wheels[-1], "a") as archive:
        archive.writestr("tensorflow/python/platform/build_info.py", BUILD_INFO)
    address = make_index(tmp_path / "index", torch, *wheels)
    (tmp_path / "index" / "nvidia_ml_py").rename(tmp_path / "index" / "nvidia-ml-py")
    for folder in (tmp_path / "index").iterdir():
        links = "".join(f'<a href="{wheel.name}">{wheel.name}</a>' for wheel in sorted(folder.glob("*.whl")))
        (folder / "index.html").write_text(f"<!DOCTYPE html>{links}")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", address)
    return address


def added(root, version, framework="pytorch"):
    return add(root, framework, version, cache=root / "cache", report=lambda _: None)


def test_a_version_is_one_entry_and_the_rest_is_generated(root, index):
    before = load_images(root)
    folder = added(root, "9.1")
    catalog = load_images(root)
    (image,) = [image for image in catalog.images if image not in before.images]
    assert image.directory == folder
    assert (image.name, image.device, image.cuda, image.minimum_driver) == ("pytorch 9.1", "gpu", "13.9", "580.65.06")
    assert image.compute_capabilities == ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
    assert image.requirements == (
        "torch==9.1", "torchvision==9.7", "numpy==2.2.6", "nvidia-ml-py==13.615.71", "pillow==12.0.0",
    )  # fmt: skip
    assert (image.wheels_mib, image.measured, image.base.name) == (1, False, "bookworm-rdma-cxx")
    check_lock(image)
    check(catalog)  # as `make verify` does
    # Until it is built it counts as large as the largest of its kind; what is measured stays.
    assert image.size_mib == max(other.size_mib for other in before.of("pytorch", "gpu"))
    assert record_size(root, image, 4711)
    (built,) = [image for image in load_images(root).images if image.version == "9.1"]
    assert (built.size_mib, built.measured) == (4711, True)
    assert not record_size(root, built, 1)
    with pytest.raises(RequestError, match=r"pytorch 9.1 is in images/versions.yaml already"):
        added(root, "9.1")


def test_tensorflow_says_what_it_was_built_for_in_a_file(root, index):
    added(root, "9.1", "tensorflow")
    image = load_images(root).find("tensorflow", "9.1", "gpu")
    assert (image.cuda, image.compute_capabilities, image.ptx) == ("12.5", ("6.0", "7.0", "8.0", "8.9", "9.0"), True)
    assert image.requirements[0] == "tensorflow[and-cuda]==9.1"


@pytest.mark.parametrize(
    ("framework", "version", "says"),
    [
        ("pytorch", "9.2", r"torch-9.2-py3-none-any.whl does not say which CUDA release and compute capabilities"),
        ("pytorch", "9.3", r"pytorch 9.3 can't be locked \(.*torch==9.3.*"),
        (
            "pytorch",
            "9.1-rocm",
            "no image of pytorch made of wheels is called like 9.1-rocm; these are: 2.15.0, 2.13.0-cpu",
        ),
        ("caffe", "2.0", "no image of caffe made of wheels is called like 2.0; these are: none"),
        ("torch", "9.1", "unknown FRAMEWORK 'torch'"),
    ],
)
def test_what_can_not_be_added_leaves_nothing(root, index, framework, version, says):
    before = sorted(path.read_bytes() for path in (root / "images").rglob("*") if path.is_file())
    with pytest.raises(RequestError, match=says):
        added(root, version, framework)
    assert sorted(path.read_bytes() for path in (root / "images").rglob("*") if path.is_file()) == before
