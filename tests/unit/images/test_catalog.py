"""Prevents: an image without machine code for the GPU (every kernel launch fails after minutes of set-up), a driver too old for the
image's CUDA that only shows inside the container, and a default version that is not the newest.
"""

from __future__ import annotations

from pathlib import Path

import examples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.commands.documents import strategies_of
from runner.core.errors import RequestError
from runner.core.node import Gpu
from runner.images.catalog import load_images
from runner.images.spec import ImageSpec

ROOT = Path(__file__).parents[3]
CATALOG = examples.catalog(
    *(
        "1.9.1",
        "1.9.1-cu112",
        "2.13.0-cpu",
        "2.6.0",
        "2.15.0",
        "2.21.0-cpu",
        "2.21.0",
        "1.15.5-nvidia",
        "1.0",
        "0.17.3-nvidia",
    )
)
VENDOR = examples.catalog("1.9.1", "1.9.1-cu112", "1.9.1-nvidia")


def gpu(capability: str) -> Gpu:
    return Gpu(index=0, uuid="GPU-0", name="made up", memory_mib=1, compute_capability=capability)


def image(version: str) -> ImageSpec:
    return next(i for i in CATALOG.images if i.version == version)


@pytest.mark.parametrize(
    ("version", "capability", "expected"),
    [
        ("1.9.1-cu112", "5.0", True),
        ("1.9.1-cu112", "5.2", True),  # machine code runs on a higher minor version
        ("1.9.1-cu112", "7.5", True),
        ("1.9.1-cu112", "8.6", True),
        ("1.9.1-cu112", "8.9", True),
        ("1.9.1-cu112", "9.0", False),  # no PTX to compile
        ("1.9.1-cu112", "3.7", False),
        ("2.21.0", "7.5", True),
        ("2.21.0", "12.0", True),  # from PTX
        ("0.17.3-nvidia", "7.5", True),
        ("0.17.3-nvidia", "8.0", False),
        ("2.6.0", "9.0", True),
        ("2.6.0", "10.0", False),
        ("2.15.0", "7.0", False),
        ("2.15.0", "7.5", True),
        ("2.15.0", "10.3", True),
        ("2.15.0", "11.0", False),
        ("2.15.0", "12.1", True),
    ],
)
def test_an_image_supports_the_gpus_of_its_machine_code_and_ptx(version, capability, expected):
    assert image(version).supports(capability) is expected


@given(major=st.integers(1, 20), minor=st.integers(0, 9), higher=st.integers(0, 9))
def test_support_extends_to_later_minor_versions(major, minor, higher):
    """If a compute capability is supported, so are all later minor versions of it."""
    for spec in load_images(ROOT).images:
        if spec.supports(f"{major}.{minor}") and higher >= minor:
            assert spec.supports(f"{major}.{higher}")


@pytest.mark.parametrize(
    ("version", "driver", "expected"),
    [
        ("1.9.1-cu112", "450.80.02", True),
        ("1.9.1-cu112", "450.80.01", False),
        ("1.9.1-cu112", "450.51.06", False),
        ("2.6.0", "525.60.13", True),
        ("2.6.0", "525.60", False),
        ("2.15.0", "580.159", True),
        ("2.15.0", "580.65.06-server", True),
        ("2.15.0", "575.64", False),
        ("1.9.1", "1.0", True),
    ],
)
def test_drivers_are_compared_as_numbers_not_as_text(version, driver, expected):
    assert image(version).runs_with(driver) is expected


@pytest.mark.parametrize(
    ("framework", "typed", "device", "expected"),
    [
        ("mxnet", None, "gpu", "1.9.1-cu112"),
        ("pytorch", None, "cpu", "2.13.0-cpu"),
        ("pytorch", None, "gpu", "2.15.0"),  # as text, 2.6.0 is greater
        ("pytorch", "2.13", "cpu", "2.13.0-cpu"),
        ("pytorch", "2.13.0", "cpu", "2.13.0-cpu"),
        ("pytorch", "2.6", "gpu", "2.6.0"),
        ("pytorch", "2.15.0", "gpu", "2.15.0"),
    ],
)
def test_a_unique_prefix_selects_a_version_and_none_the_newest(framework, typed, device, expected):
    assert CATALOG.find(framework, typed, device).version == expected


def test_the_default_is_the_newest_that_fits_the_gpus():
    assert CATALOG.find("pytorch", None, "gpu", gpus=[gpu("7.0")], driver="580.65.06").version == "2.6.0"
    assert CATALOG.find("pytorch", None, "gpu", gpus=[gpu("9.0")], driver="560.28").version == "2.6.0"
    # If none fits, the newest is returned, for the check to refuse.
    assert CATALOG.find("mxnet", None, "gpu", gpus=[gpu("9.0")], driver="580.65.06").version == "1.9.1-cu112"
    CATALOG.check_fit(image("2.15.0"), [gpu("9.0")], "580.65.06")
    CATALOG.check_fit(image("1.9.1"), [gpu("9.0")], None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("mxnte", None, "cpu"), "unknown FRAMEWORK 'mxnte'; did you mean mxnet? Known: mxnet, caffe, pytorch,"),
        (("pytorch", "2.5.0", "gpu"), "unknown VERSION '2.5.0' of pytorch; did you mean 2.15.0? Known: 2.15.0, 2.6.0"),
        (("mxnet", "1.9.1-cu112", "cpu"), "mxnet 1.9.1-cu112 is built for DEVICE=gpu, not cpu; versions for cpu:"),
    ],
)
def test_an_unknown_image_is_refused_with_similar_names(arguments, sentence):
    with pytest.raises(RequestError) as caught:
        CATALOG.find(*arguments)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("version", "capabilities", "driver", "sentence"),
    [
        (
            *("1.9.1-cu112", ["9.0", "9.0"], "580.65.06"),
            "mxnet 1.9.1-cu112 has no code for compute capability 9.0; none of mxnet does, these do: pytorch 2.6.0, pytorch 2.15.0, tensorflow 2.21.0, tensorflow 1.15.5-nvidia",
        ),
        (
            *("2.6.0", ["10.0", "9.0"], "580.65.06"),
            "pytorch 2.6.0 has no code for compute capability 10.0; versions that do: 2.15.0",
        ),
        (
            *("2.15.0", ["8.0"], "535.104.05"),
            "pytorch 2.15.0 does not run on driver 535.104.05 (CUDA 13.2 needs 580.65.06 or newer); versions that do: 2.6.0",
        ),
        (
            *("2.15.0", ["3.7"], "580.65.06"),
            "pytorch 2.15.0 has no code for compute capability 3.7; no image of this suite does; ask for DEVICE=cpu",
        ),
    ],
)
def test_an_image_that_cannot_run_is_refused_with_those_that_can(version, capabilities, driver, sentence):
    with pytest.raises(RequestError) as caught:
        CATALOG.check_fit(image(version), [gpu(c) for c in capabilities], driver)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("typed", ["2.1", ""])
def test_half_a_number_selects_nothing(typed):
    """2.1 is not 2.15.0."""
    with pytest.raises(RequestError, match="unknown VERSION"):
        CATALOG.find("pytorch", typed, "gpu")


def test_an_ambiguous_prefix_is_refused_with_the_versions_that_it_can_mean():
    """1.9 was called unknown once there was a 1.9.2 beside 1.9.1."""
    plain = image("1.9.1")
    two = CATALOG.model_copy(update={"images": (plain, plain.model_copy(update={"version": "1.9.2"}))})
    with pytest.raises(RequestError, match=r"VERSION=1.9 of mxnet can be 1.9.2 or 1.9.1; ask for one"):
        two.find("mxnet", "1.9", "cpu")
    assert two.find("mxnet", "1.9.1", "cpu") == plain
    with pytest.raises(RequestError, match=r"mxnet 1.9.2 is built for DEVICE=cpu, not gpu"):
        two.find("mxnet", "1.9", "gpu")


def test_mxnet_runs_on_hopper_in_its_vendors_container():
    """MXNet's own wheels have no code for it: MXNet did not run on an H100."""
    assert VENDOR.find("mxnet", None, "gpu", gpus=[gpu("8.6")], driver="580.65.06").version == "1.9.1-cu112"
    assert VENDOR.find("mxnet", None, "gpu", gpus=[gpu("9.0")], driver="580.65.06").version == "1.9.1-nvidia"
    assert VENDOR.find("mxnet", "1.9.1", "gpu", gpus=[gpu("9.0")]).version == "1.9.1-nvidia"
    with pytest.raises(RequestError) as caught:
        VENDOR.check_fit(image("1.9.1-cu112"), [gpu("9.0")], None)
    assert str(caught.value).endswith("no code for compute capability 9.0; versions that do: 1.9.1-nvidia")


def test_a_container_that_includes_horovod_is_found_for_horovod():
    asked = {"gpus": [gpu("6.0")], "driver": "580.65.06"}
    found = VENDOR.find("mxnet", None, "gpu", horovod=True, **asked)
    assert found.version == "1.9.1-nvidia"
    assert VENDOR.with_horovod(found) == found
    assert "horovod" in strategies_of(found)
    assert "horovod" not in strategies_of(image("1.9.1-cu112"))
    with pytest.raises(RequestError, match="versions of mxnet that have: 1.9.1, 1.9.1-nvidia"):
        VENDOR.with_horovod(VENDOR.find("mxnet", "1.9.1-cu112", "gpu", horovod=True))


def test_an_older_version_is_built_only_if_named():
    """Each added version made `make images` minutes longer."""
    found = {image.tag for image in examples.catalog("2.13.0-cpu", "2.16.2-cpu", "2.21.0-cpu", "1.0").newest}
    assert found == {"2.13.0-cpu", "2.13.0-cpu-horovod", "2.21.0-cpu", "2.21.0-cpu-horovod", "1.0"}


def test_a_version_number_selects_among_builds_for_several_pythons():
    both = examples.catalog("2.15.0", "2.15.0-py313")
    assert both.find("pytorch", "2.15", "gpu").version == both.find("pytorch", None, "gpu").version == "2.15.0"
    assert both.find("pytorch", "2.15.0-py313", "gpu").base.python == "3.13"


def test_a_missing_lock_is_reported_with_the_command_that_makes_it():
    lost = image("1.9.1").model_copy(update={"directory": Path("/nowhere")})
    with pytest.raises(
        RequestError, match=r"/nowhere/requirements.lock: can't be read .*`dlscale images lock mxnet:1.9.1`"
    ):
        _ = lost.lock_sha256


SMALL = "size_mib: 652\n"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("mxnet==1.9.1\n", "mxnet>=1.9.1\n", "is 'mxnet>=1.9.1': a requirement is pinned to one version: 'numpy=="),
        ('"2.6.0"', "../up", "string should match pattern"),
        ('cuda: "12.4"', 'cuda: "12.9"', "images.mxnet 1.9.1-nvidia names CUDA 12.9, which 'cuda' does not list"),
        ('cuda: "12.4"\n', "ptx: true\n", "a gpu image, and no other, has both keys 'cuda' and 'compute_capabilities'"),
        ("2.15.0\n", "2.6.0\n", "images.pytorch has version 2.6.0 twice"),
        ('"==3.11.*"', '"==3.12.*"', "images.pytorch 2.13.0-cpu excludes the base's own Python 3.11"),
        ('"==3.11.*"', '"3.11"', "not a range of Python versions like '>=3.10,<3.13'"),
        ("580.65.06", "new", "not a driver version like '580.65.06'"),
        ("requires_python", "require_python", "did you mean 'requires_python'?"),
        ("    locked: true\n", "", "images.caffe 1.0 is Debian packages of bullseye, which is not locked"),
        ("base: bullseye\n", "base: sid\n", "images.caffe 1.0 stands on base sid, which 'bases' does not list"),
        ("    suite: bullseye\n", "    suite: sid\n", "bases.bullseye is of suite sid, which 'suites' does"),
        ("build_base: bookworm-build", "build_base: gcc", "horovod is built on base gcc, which 'bases' does not list"),
        ("size_mib: 652\n", "size_mib: 652\n      wheels_mib: 1\n", "an image of wheels, and no other, has the keys"),
        (SMALL, f"{SMALL}      horovod: {{wheels_mib: 1, size_mib: 1}}\n", "images.caffe 1.0 has Horovod, which is"),
        ("nvidia/caffe:20.03-py3", "nvidia/caffe", "string should match pattern"),
    ],
)
def test_an_invalid_versions_file_is_refused(tmp_path, old, new, sentence):
    text = (ROOT / "images/versions.yaml").read_text(encoding="utf-8").replace("version: 2.6.0\n", 'version: "2.6.0"\n')
    assert old in text
    (tmp_path / "images").mkdir()
    (tmp_path / "images/versions.yaml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(RequestError) as caught:
        load_images(tmp_path)
    assert sentence in str(caught.value)


def test_the_key_of_a_base_depends_on_its_contents_only():
    """Otherwise, fields added later would rebuild every image of every user."""
    base = CATALOG.find("mxnet", "1.9.1", "cpu").base
    assert base.reference == "dlscale/base:bookworm-8d6705acfbb9"
    assert len({base.reference for base in CATALOG.bases}) == len(CATALOG.bases)
    assert base.model_copy(update={"packages": (*base.packages, "gcc")}).reference != base.reference
    seen = base.registry.model_copy(update={"verified": not base.registry.verified})
    assert base.model_copy(update={"registry": seen}).reference == base.reference
    assert base.registry.pinned == f"debian@{base.registry.digest}"
