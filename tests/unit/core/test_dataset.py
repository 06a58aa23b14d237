"""Prevents: an empty or half-packed data set that fails after minutes instead of immediately, two data sets taken for the same, and
a record that counts images which the job could not read.
"""

import errno
import json
import os

import examples
import pytest

from runner.core import dataset
from runner.core.errors import RequestError
from runner.core.workload import choose_workload, load_workloads
from runner.run.data import packed_path


def folder(root, **classes):
    for name, sizes in classes.items():
        (root / name).mkdir(parents=True)
        for number, size in enumerate(sizes):
            (root / name / f"{number}.jpg").write_bytes(b"x" * size)
    return root


def index(path, images=3, **more):
    facts = {"classes": ["a", "b"], "images": images, "skipped": [], **more}
    path.with_suffix(".json").write_text(json.dumps(facts))


def test_images_are_counted_by_class_and_every_fifth_of_a_class_is_for_validation(tmp_path):
    found = dataset.inspect(folder(tmp_path / "set", cats=[1] * 11, dogs=[1] * 4))
    assert (found.images, found.classes, found.validation_images) == (15, 2, 2)


def test_the_digest_differs_for_other_names_or_sizes(tmp_path):
    sets = {
        "one": {"a": [1, 2]},
        "same": {"a": [1, 2]},
        "size": {"a": [1, 3]},
        "name": {"b": [1, 2]},
        "more": {"a": [1, 2, 2]},
    }
    assert len({dataset.inspect(folder(tmp_path / name, **classes)).digest for name, classes in sets.items()}) == 4


@pytest.mark.parametrize(("suffix", "beside"), [(".rec", ".idx"), (".tfrecord", None), (".lmdb", None)])
def test_a_packed_set_is_what_its_index_says(tmp_path, suffix, beside):
    path = tmp_path / f"set{suffix}"
    if suffix == ".lmdb":
        path.mkdir()
        (path / "data.mdb").write_bytes(b"x")
    else:
        path.write_bytes(b"x")
    with pytest.raises(RequestError, match=r"has no set\.json beside it; pack it again with `dlscale data pack DIR"):
        dataset.inspect(path)
    index(path, **({"size": 256} if suffix == ".lmdb" else {}))
    if beside:
        with pytest.raises(RequestError, match=rf"has no set\{beside} beside it"):
            dataset.inspect(path)
        path.with_suffix(beside).touch()
    found = dataset.inspect(path)
    assert (found.images, found.classes) == (3, 2)
    assert dataset.mount_source(path) == tmp_path
    index(path, images=0)
    with pytest.raises(RequestError, match="holds no image"):
        dataset.inspect(path)


def test_paths_without_a_data_set_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.zip").touch(mode=0o644)
    folder(tmp_path / "flat", cats=[])
    (tmp_path / "flat" / "a.jpg").touch()
    for name, why in {
        "absent": "does not exist; `dlscale data sample DIR` writes a small",
        "empty": "is empty",
        "file.zip": "is neither a folder nor a .rec, .lmdb, .tfrecord",
        "flat": "holds no JPEG in class folders",
    }.items():
        for readable_by_others in (False, True):
            with pytest.raises(RequestError, match=why):
                dataset.inspect(tmp_path / name, readable_by_others=readable_by_others)


def test_every_form_has_a_packer_and_a_framework_that_reads_it():
    for form in dataset.PACKED.values():
        assert (examples.ROOT / "workloads" / form.program).is_file()
        assert form.framework in choose_workload(load_workloads(examples.ROOT), None).frameworks("train")


def test_only_forms_with_one_image_size_are_packed_again_for_another(tmp_path):
    data = dataset.inspect(folder(tmp_path / "set", a=[1]))
    for framework, form in dataset.PACKED_FOR.items():
        paths = {packed_path(data, tmp_path, framework=framework, image_size=size) for size in (32, 224)}
        assert len(paths) == (2 if form.sized else 1)
    # Each is packed in a separate directory, which is moved into place as a whole.
    folders = {packed_path(data, tmp_path, framework=name, image_size=32).parent for name in dataset.PACKED_FOR}
    assert len(folders) == len(dataset.PACKED_FOR)


def test_tokens_have_two_bytes_and_the_digest_tells_files_of_equal_size_apart(tmp_path):
    paths = [tmp_path / name for name in ("one.bin", "other.bin")]
    for path, text in zip(paths, (b"a\0b\0c\0", b"a\0b\0d\0"), strict=True):
        path.write_bytes(text)
    one, other = (dataset.inspect(path, "tokens") for path in paths)
    assert (one.images, one.classes) == (3, 0)
    assert one.digest != other.digest
    for content in (b"", b"odd"):
        paths[0].write_bytes(content)
        with pytest.raises(RequestError, match="one.bin is not a file of 16-bit token numbers; `dlscale data tokens "):
            dataset.inspect(paths[0], "tokens")


def test_utterances_are_wav_files_with_their_text(tmp_path):
    (tmp_path / "speaker").mkdir()
    for name in ("a.wav", "a.txt", "b.WAV", "b.txt", "alone.wav"):
        (tmp_path / "speaker" / name).write_bytes(b"x" * len(name))
    found = dataset.inspect(tmp_path, "audio")
    assert (found.images, found.classes, found.validation_images) == (2, 0, 0)
    (tmp_path / "speaker" / "a.wav").write_bytes(b"longer than before")
    assert dataset.inspect(tmp_path, "audio").digest != found.digest
    with pytest.raises(RequestError, match="holds no WAV file with a text file of the same name beside it"):
        dataset.inspect(tmp_path / "speaker" / "a.wav", "audio")


@pytest.mark.parametrize(
    ("name", "mode"), [("dogs", 0o700), ("dogs", 0o744), ("dogs/1.jpg", 0o640), ("cats/more", 0o750)]
)
def test_a_class_or_image_that_the_job_can_not_read_is_refused(tmp_path, name, mode):
    """A class folder of mode 700 was counted in the record of a training that could not read it."""
    root = folder(tmp_path / "a set", cats=[1, 2], dogs=[3, 4])
    (root / "cats" / "more").mkdir()
    (root / "cats" / "more" / "9.jpg").write_bytes(b"x")
    root.chmod(0o755)
    assert dataset.inspect(root, readable_by_others=True).images == 5
    bad = root / name
    bad.chmod(mode)
    assert dataset.inspect(root).images == 5
    with pytest.raises(RequestError) as caught:
        dataset.inspect(root, readable_by_others=True)
    assert str(caught.value) == (
        f"{bad} can be read by its owner only, and jobs in containers never run as root; type `chmod -R o+rX '{root}'`"
    )


def test_folders_without_images_may_be_unreadable(tmp_path):
    root = folder(tmp_path / "set", cats=[1])
    (root / "lost+found").mkdir(mode=0o700)
    (root / "cats" / "notes.txt").touch(mode=0o600)
    assert dataset.inspect(root, readable_by_others=True).classes == 1


def test_packed_data_and_utterances_that_the_job_can_not_read_are_refused(tmp_path):
    tmp_path.chmod(0o755)
    packed = tmp_path / "set.tfrecord"
    packed.write_bytes(b"x")
    index(packed)
    dataset.inspect(packed, readable_by_others=True)
    packed.with_suffix(".json").chmod(0o600)
    with pytest.raises(RequestError, match=r"set\.json can be read by its owner only"):
        dataset.inspect(packed, readable_by_others=True)
    for name in ("a.wav", "a.txt"):
        (tmp_path / name).touch()
    (tmp_path / "a.txt").chmod(0o600)
    with pytest.raises(RequestError, match=r"a\.txt can be read by its owner only"):
        dataset.inspect(tmp_path, "audio", readable_by_others=True)


@pytest.mark.parametrize("mode", [0o700, 0o600, 0o000])
def test_advice_for_an_unreadable_data_folder_names_it(tmp_path, mode):
    root = folder(tmp_path / "set", cats=[1])
    root.chmod(mode)
    with pytest.raises(RequestError, match=f"type `chmod o\\+rx {root}`"):
        dataset.inspect(root, readable_by_others=True)
    root.chmod(0o755)


def test_a_folder_that_can_not_be_listed_is_an_error(tmp_path, monkeypatch):
    """Root can list all folders, so the system's error is simulated."""
    root = folder(tmp_path / "set", cats=[1], dogs=[2])
    (root / "lost+found").mkdir()
    shut = {str(root / "dogs"), str(root / "lost+found")}
    scan = os.scandir

    def refusing(path):
        if str(path) in shut:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(RequestError, match=r"dogs can't be read \(Permission denied\)"):
        dataset.inspect(root)
    shut.remove(str(root / "dogs"))
    assert dataset.inspect(root).classes == 2


@pytest.mark.parametrize("name", [b"caf\xe9/0.jpg", b"cats/\xff.jpg"])
def test_a_name_that_is_not_utf8_is_refused(tmp_path, name):
    path = tmp_path / os.fsdecode(name)
    path.parent.mkdir()
    path.touch()
    with pytest.raises(RequestError, match=r"the name of .*\\udc.* is not UTF-8; rename it"):
        dataset.inspect(tmp_path)


def test_links_are_followed_as_the_programs_do(tmp_path):
    other = folder(tmp_path / "other", deep=[1, 2])
    root = folder(tmp_path / "set", cats=[1])
    (root / "cats" / "linked").symlink_to(other / "deep")
    (root / "birds").symlink_to(other / "deep")
    (root / "cats" / "lost.jpg").symlink_to(tmp_path / "nowhere")
    found = dataset.inspect(root)
    assert (found.images, found.classes) == (5, 2)
