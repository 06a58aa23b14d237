"""Prevents: wheels chosen for the Python that runs the suite instead of the image's, a damaged or forged wheel built into an image, and a
second package index queried for packages that the machine's own sources have.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.tags import Tag
from wheels import make_index, make_wheel

from runner.core.errors import RequestError
from runner.images import wheelhouse
from runner.images.catalog import load_images
from runner.images.spec import ImageSpec
from runner.images.wheelhouse import Pin, Target, fetch, read_lock

CATALOG = load_images(Path(__file__).parents[3])
IMAGE = CATALOG.find("mxnet", "1.9.1", "cpu")
TARGET = Target.of(IMAGE.base)

LOCK = """\
# Generated; do not edit.
numpy==1.23.5 ; python_full_version < '3.12' \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
numpy==1.26.4 ; python_full_version >= '3.12' \\
    --hash=sha256:{c}
Typing_Extensions==4.16.0 --hash=sha256:{a}
nvidia-nccl-cu12==2.21.5 ; platform_machine == 'x86_64' and sys_platform == 'linux' \\
    --hash=sha256:{c}
pywin32==1 ; sys_platform == 'win32' --hash=sha256:{c}
""".format(a="a" * 64, b="b" * 64, c="c" * 64)


def test_a_lock_is_read_with_its_hashes_and_markers():
    first, *others = read_lock(LOCK)
    assert first == Pin("numpy", "1.23.5", Marker("python_full_version < '3.12'"), frozenset({"a" * 64, "b" * 64}))
    assert [(pin.name, pin.version) for pin in others] == [
        ("numpy", "1.26.4"),
        ("typing-extensions", "4.16.0"),
        ("nvidia-nccl-cu12", "2.21.5"),
        ("pywin32", "1"),
    ]
    assert first.line() == f"numpy===1.23.5 --hash=sha256:{'a' * 64} --hash=sha256:{'b' * 64}"


def test_markers_are_evaluated_for_the_images_python():
    """pip would evaluate them for its own interpreter: on Python 3.12, the image would get the wrong numpy."""
    assert [(pin.name, pin.version) for pin in TARGET.pins(LOCK)] == [
        ("numpy", "1.23.5"),
        ("typing-extensions", "4.16.0"),
        ("nvidia-nccl-cu12", "2.21.5"),
    ]
    newer = Target("3.13", TARGET.platforms)
    assert [pin.version for pin in newer.pins(LOCK)] == ["1.26.4", "4.16.0", "2.21.5"]


@pytest.mark.parametrize("image", [i for i in CATALOG.all_images if i.kind == "wheels"], ids=lambda image: image.name)
def test_every_pin_of_the_committed_locks_has_a_hash_and_one_version(image):
    pins = TARGET.pins(image.lock_path.read_text(encoding="utf-8"))
    assert all(pin.hashes for pin in pins)
    assert len({pin.name for pin in pins}) == len(pins)
    wanted = {Requirement(text).name for text in image.requirements if ">=" not in text}
    assert wanted <= {pin.name for pin in pins}


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.sets(st.binary(min_size=32, max_size=32), min_size=1)
    )
)
def test_pins_survive_a_round_trip(packages):
    pins = [Pin(name, "1.0", None, frozenset(digest.hex() for digest in digests)) for name, digests in packages.items()]
    assert list(read_lock("\n".join(pin.line().replace(" --", " \\\n    --") for pin in pins))) == pins


def test_wheels_fit_the_bases_python_and_c_library():
    tags = TARGET.tags()
    assert Tag("cp311", "cp311", "manylinux_2_36_x86_64") in tags
    assert Tag("cp311", "cp311", "manylinux_2_37_x86_64") not in tags
    assert Tag("cp312", "cp312", "manylinux_2_17_x86_64") not in tags
    assert Tag("py3", "none", "manylinux1_x86_64") in tags
    assert Tag("cp37", "abi3", "manylinux2014_x86_64") in tags
    assert Tag("py3", "none", "any") in tags


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A folder of wheels that is pip's only source."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "sources"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    return tmp_path / "sources"


def locked(tmp_path: Path, lines: str, **changes) -> ImageSpec:
    (tmp_path / "requirements.lock").write_text(lines, encoding="utf-8")
    return IMAGE.model_copy(update={"directory": tmp_path, **changes})


def test_wheels_are_fetched_once_and_checked_each_time(tmp_path, sources, monkeypatch):
    _, one = make_wheel(sources, "tiny", "1.2")
    # A wheel of the same version for another system: its hash is in the lock, but it must not be used.
    _, other = make_wheel(sources, "native", "2.0", tag="cp310-cp310-manylinux_2_17_x86_64")
    _, right = make_wheel(sources, "native", "2.0", tag="cp311-cp311-manylinux_2_17_x86_64")
    image = locked(
        tmp_path, f"tiny==1.2 --hash=sha256:{one}\nnative==2.0 --hash=sha256:{other} --hash=sha256:{right}\n"
    )
    said: list[str] = []
    found = fetch(image, cache=tmp_path / "cache", report=said.append)
    assert [wheel.name for wheel in found] == [
        "tiny-1.2-py3-none-any.whl",
        "native-2.0-cp311-cp311-manylinux_2_17_x86_64.whl",
    ]
    assert said == ["fetching tiny 1.2 (1 of 2)", "fetching native 2.0 (2 of 2)"]
    said.clear()
    monkeypatch.setattr(wheelhouse, "_download", lambda *_: pytest.fail("what is there was fetched again"))
    assert fetch(image, cache=tmp_path / "cache", report=said.append) == found
    assert said == []


def test_a_damaged_wheel_is_fetched_again(tmp_path, sources):
    _, sha256 = make_wheel(sources, "tiny", "1.2")
    image = locked(tmp_path, f"tiny==1.2 --hash=sha256:{sha256}\n")
    (wheel,) = fetch(image, cache=tmp_path / "cache", report=print)
    whole = wheel.read_bytes()
    wheel.write_bytes(whole[:-1])
    assert fetch(image, cache=tmp_path / "cache", report=print) == (wheel,)
    assert wheel.read_bytes() == whole


@pytest.mark.parametrize(
    ("there", "sentence"),
    [(True, "is not the file that was locked"), (False, "is not in this machine's package sources;")],
)
def test_a_forged_or_missing_wheel_is_refused(tmp_path, sources, there, sentence):
    sources.mkdir()
    if there:
        make_wheel(sources, "tiny", "1.2", body="forged = True\n")
    image = locked(tmp_path, f"tiny==1.2 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(RequestError, match=f"^mxnet 1.9.1 can't be built: tiny===1.2 {sentence}"):
        fetch(image, cache=tmp_path / "cache", report=print)
    assert list((tmp_path / "cache/wheels").iterdir()) == []


def test_the_images_own_index_is_used_for_missing_packages(tmp_path, sources, monkeypatch):
    wheel, sha256 = make_wheel(sources, "tiny", "1.2")
    index = make_index(tmp_path / "index", wheel)
    wheel.unlink()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "empty").as_uri())
    image = locked(tmp_path, f"tiny==1.2 --hash=sha256:{sha256}\n", extra_index=index)
    assert [w.name for w in fetch(image, cache=tmp_path / "cache", report=print)] == ["tiny-1.2-py3-none-any.whl"]


def test_a_disk_that_is_too_small_is_refused_before_anything_is_fetched(tmp_path, sources, monkeypatch):
    image = locked(tmp_path, f"tiny==1.2 --hash=sha256:{'0' * 64}\n", wheels_mib=500)
    monkeypatch.setattr(wheelhouse, "free_mib", lambda _: 499)
    with pytest.raises(RequestError, match=r"has 499 MiB free, the wheels of mxnet 1.9.1 need 500; free some or set"):
        fetch(image, cache=tmp_path / "cache", report=lambda _: pytest.fail("something was fetched"))
