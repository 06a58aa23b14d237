"""Prevents: a stale image that is not built again, a current one that is, a build started on too small a disk, and an archive that is loaded
although a file in it is damaged.
"""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from pathlib import Path

import examples
import pytest
from docker.errors import ImageNotFound

from runner.commands.images import _to_build as images_to_build
from runner.commands.images import select
from runner.core.cache import file_lock
from runner.core.errors import RequestError
from runner.engines import images
from runner.images import build
from runner.images.build import (
    LABEL_BASE,
    LABEL_INPUTS,
    MANIFEST,
    build_inputs_sha256,
    check_disk,
    ensure,
    find_built,
    is_current,
    load,
    save,
)

ROOT = Path(__file__).parents[3]
CATALOG = examples.catalog("1.9.1", "1.9.1-cu112", "2.13.0-cpu", "2.6.0", "2.15.0")
IMAGE = CATALOG.find("mxnet", "1.9.1", "cpu")


class Image:
    def __init__(self, identifier, labels):
        self.id, self.labels, self.tags = identifier, labels, []
        self.attrs = {"RepoDigests": ["dlscale/mxnet@sha256:d"], "Size": 3 * 2**20}


class Engine:
    """The part of the Docker client that building and archiving call; a build gets the labels that it is given."""

    def __init__(self, steps=(), becomes=None):
        self.held, self.steps, self.removed, self.pruned, self.builds = {}, steps, [], [], []
        self.images = self.api = self
        self.loaded, self.becomes, self.bases = [], becomes, {IMAGE.base.reference: Image("base 1", {})}

    def get(self, reference):
        held = {**self.bases, **self.held}
        found = next((i for i in held.values() if i.id == reference), held.get(reference))
        if found is None:
            raise ImageNotFound(reference)
        return found

    def build(self, *, fileobj, tag, labels, **options):
        with tarfile.open(fileobj=fileobj) as tar:
            self.builds.append(({entry.name: entry for entry in tar}, options))
        self.old = self.held.get(tag)
        self.held[tag] = Image(f"built {len(self.builds)}", labels)
        yield from self.steps

    def prune(self, *, filters):
        self.pruned.append(filters)

    def remove(self, identifier):
        self.removed.append(identifier)

    def get_image(self, reference):
        return iter([b"content of ", self.held[reference].id.encode()])

    def load_image(self, file, *, quiet):
        held = {"one": "dlscale/mxnet:1.9.1", "two": "dlscale/pytorch:2.6.0"}
        identifier = file.read().decode().removeprefix("content of ")
        self.loaded.append(identifier)
        self.held[held[identifier]] = Image(self.becomes or identifier, {})
        return iter([{"stream": "Loaded image"}])

    def info(self):
        return {"DockerRootDir": "/"}


@pytest.fixture
def made(monkeypatch, tmp_path):
    """An image whose base and wheels need not be made or fetched."""
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    monkeypatch.setattr(build, "ensure_base", lambda *_, **__: "base 1")
    monkeypatch.setattr(build, "fetch", lambda *_, **__: (wheel,))
    return IMAGE.model_copy(update={"wheels_mib": 1, "size_mib": 1})


def make(image, client, tmp_path, said=None):
    return ensure(image, client=client, cache=tmp_path / "cache", report=(said if said is not None else []).append)


def test_an_image_is_built_once_without_a_network_and_then_pruned(made, tmp_path):
    client = Engine()
    assert make(made, client, tmp_path).id == "built 1"
    client.held[made.reference].labels["dlscale.lock.sha256"] = made.lock_sha256
    built = make(made, client, tmp_path)
    assert (built.id, built.reference, built.digest) == ("built 1", made.reference, "sha256:d")
    assert (built.lock_sha256, built.size_mib) == (made.lock_sha256, 3)
    ((members, options),) = client.builds
    assert sorted(members) == ["Dockerfile", "requirements.lock", "smoke.py", "wheels/tiny-1.0-py3-none-any.whl"]
    assert {(entry.mtime, entry.uid, entry.mode) for entry in members.values()} == {(0, 0, 0o644)}
    assert options["network_mode"] == "none"
    assert client.pruned == [{"dangling": True, "label": "dlscale.builder=dlscale/mxnet:1.9.1"}]


def test_a_new_base_causes_a_new_build_and_removes_the_old_image(made, tmp_path):
    client = Engine()
    make(made, client, tmp_path)
    assert find_built(made, client).current
    client.bases[made.base.reference] = Image("base 2", {})
    assert not find_built(made, client).current
    client.held["kept by the engine without a name"] = client.held[made.reference]
    assert make(made, client, tmp_path).id == "built 2"
    assert client.removed == ["built 1"]


def test_an_image_is_current_if_its_inputs_are_unchanged():
    labels = {LABEL_INPUTS: build_inputs_sha256(IMAGE), LABEL_BASE: "base 1"}
    assert is_current(IMAGE, labels, based_on={LABEL_BASE: "base 1"})
    assert not is_current(IMAGE, labels, based_on={LABEL_BASE: "base 2"})
    assert is_current(IMAGE, labels, based_on={})  # loaded by `images load`, without its base
    assert not is_current(IMAGE, {**labels, LABEL_INPUTS: "0"}, based_on={LABEL_BASE: "base 1"})
    assert not is_current(IMAGE, {}, based_on={})


@pytest.mark.parametrize("name", ["Dockerfile", "requirements.lock"])
def test_changing_any_input_changes_the_digest(tmp_path, name):
    shutil.copytree(IMAGE.directory, tmp_path / "copy")
    copy = IMAGE.model_copy(update={"directory": tmp_path / "copy"})
    assert build_inputs_sha256(copy) == build_inputs_sha256(IMAGE)
    with (tmp_path / "copy" / name).open("a") as file:
        file.write("# changed\n")
    assert build_inputs_sha256(copy) != build_inputs_sha256(IMAGE)
    (tmp_path / "copy" / name).unlink()
    with pytest.raises(RequestError, match=rf"{name}: can't be read"):
        build_inputs_sha256(copy)


def test_a_failed_step_is_reported_with_its_last_output(made, tmp_path):
    client = Engine(
        steps=[
            {"stream": "Step 1/2 : FROM base"},
            {"stream": "ImportError: libgomp"},
            {"error": "returned a non-zero code: 1\n"},
        ]
    )
    said: list[str] = []
    with pytest.raises(RequestError) as caught:
        make(made, client, tmp_path, said)
    assert str(caught.value) == (
        "building dlscale/mxnet:1.9.1 failed: returned a non-zero code: 1 (last output: Step 1/2 : FROM base / ImportError: libgomp)"
    )
    assert said == ["building dlscale/mxnet:1.9.1", "dlscale/mxnet:1.9.1: Step 1/2 : FROM base"]
    assert len(client.pruned) == 1


def test_a_disk_that_is_too_small_is_refused_before_anything_is_fetched(monkeypatch, tmp_path):
    image = IMAGE.model_copy(update={"wheels_mib": 100, "size_mib": 600})
    monkeypatch.setattr(build, "free_mib", lambda _: 1399)
    with pytest.raises(RequestError, match=r"/ has 1399 MiB free, building mxnet 1.9.1 takes 1400 MiB; free some, or"):
        check_disk(image, Engine())
    monkeypatch.setattr(build, "free_mib", lambda _: 1400)
    check_disk(image, Engine())


@pytest.fixture
def directory(tmp_path):
    client = Engine()
    client.held = {"dlscale/mxnet:1.9.1": Image("one", {}), "dlscale/pytorch:2.6.0": Image("two", {})}
    save(list(client.held), client=client, directory=tmp_path / "archive", report=print)
    return tmp_path / "archive"


def test_an_archive_is_loaded_as_it_was_saved(directory):
    names = ["dlscale-mxnet-1.9.1.tar.gz", "dlscale-pytorch-2.6.0.tar.gz", MANIFEST]
    assert sorted(path.name for path in directory.iterdir()) == names
    loaded = load(directory, client=Engine(), report=print)
    expected = [("dlscale/mxnet:1.9.1", "one"), ("dlscale/pytorch:2.6.0", "two")]
    assert [(entry.reference, entry.id) for entry in loaded] == expected


def test_a_damaged_archive_loads_nothing(directory):
    with gzip.open(directory / "dlscale-pytorch-2.6.0.tar.gz", "wb") as file:
        file.write(b"content of three")
    client = Engine()
    with pytest.raises(RequestError, match=r"pytorch-2.6.0.tar.gz: is missing or differs from its hash in images.json"):
        load(directory, client=client, report=print)
    assert client.loaded == []


def test_an_image_with_another_id_after_loading_is_refused(directory):
    with pytest.raises(RequestError, match="has another id after loading than in images.json"):
        load(directory, client=Engine(becomes="another"), report=print)


def test_a_missing_archive_or_image_is_reported_in_one_sentence(tmp_path):
    with pytest.raises(
        RequestError, match=r"holds no readable images.json \(No such file.*; name a directory that `dlscale images"
    ):
        load(tmp_path, client=Engine(), report=print)
    with pytest.raises(RequestError, match=r"dlscale/mxnet:1.9.1 is not in the engine; build it first with `dlscale"):
        save(["dlscale/mxnet:1.9.1"], client=Engine(), directory=tmp_path, report=print)
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="can't be written"):
        save([], client=Engine(), directory=tmp_path / "file", report=print)


@pytest.mark.parametrize(
    ("names", "device", "expected"),
    [
        (None, None, [image.tag for image in CATALOG.all_images]),
        (None, "cpu", [image.tag for image in CATALOG.all_images if image.device == "cpu"]),
        (["mxnet:1.9.1-horovod"], None, ["1.9.1-horovod"]),
        (["pytorch"], None, ["2.13.0-cpu", "2.13.0-cpu-horovod", "2.6.0", "2.15.0", "2.15.0-horovod"]),
        (["pytorch:2.6.0", "mxnet:1.9.1"], None, ["1.9.1", "2.6.0"]),
        (["pytorch"], "gpu", ["2.6.0", "2.15.0", "2.15.0-horovod"]),
    ],
)
def test_names_select_images(names, device, expected):
    assert [image.tag for image in select(CATALOG, names, device)] == expected


def test_a_version_for_another_device_is_refused():
    """It built nothing, and exited with 0."""
    with pytest.raises(RequestError, match="none of mxnet:1.9.1-cu112 is for DEVICE=cpu"):
        images_to_build(["mxnet:1.9.1-cu112"], "cpu")
    assert [image.tag for image in images_to_build(["mxnet:1.9.1-cu112"], None)] == ["1.9.1-cu112"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mxnte", "unknown FRAMEWORK 'mxnte'; did you mean mxnet? Known: mxnet, pytorch"),
        ("mxnet:1.8", "unknown image 'mxnet:1.8'; known: mxnet:1.9.1, mxnet:1.9.1-horovod, mxnet:1.9.1-cu112"),
    ],
)
def test_an_unknown_name_is_refused(name, sentence):
    with pytest.raises(RequestError) as caught:
        select(CATALOG, [name], None)
    assert str(caught.value) == sentence


def test_the_context_contains_every_file_completely(made, tmp_path):
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    contexts = [io.BytesIO(), io.BytesIO()]
    for context in contexts:
        images.write_context(context, {"lock": made.lock_path, f"wheels/{wheel.name}": wheel})
    assert contexts[0].getvalue() == contexts[1].getvalue()
    contexts[0].seek(0)
    with tarfile.open(fileobj=contexts[0]) as tar:
        assert tar.extractfile("lock").read() == made.lock_path.read_bytes()
        assert tar.extractfile(f"wheels/{wheel.name}").read() == b"wheel"


def test_an_existing_image_does_not_wait_for_another_build(made, tmp_path):
    """A compile takes minutes, during which the runs of all other images would wait."""
    client = Engine()
    make(made, client, tmp_path)
    (tmp_path / "cache").mkdir(exist_ok=True)
    with file_lock(tmp_path / "cache" / "build.busy", waiting=pytest.fail):
        assert ensure(made, client=client, cache=tmp_path / "cache", report=pytest.fail).id == "built 1"
