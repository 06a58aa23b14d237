"""Prevents: an empty or half-packed data set that fails after minutes instead of at once, two different sets taken for the same one."""

import json

import examples
import pytest

from runner import dataset
from runner.errors import RequestError
from runner.pack import PACKERS, packed_path
from runner.workload import choose_workload, load_workloads


def folder(root, **classes):
    for name, sizes in classes.items():
        (root / name).mkdir(parents=True)
        for number, size in enumerate(sizes):
            (root / name / f"{number}.jpg").write_bytes(b"x" * size)
    return root


def index(path, images=3, **more):
    facts = {"classes": ["a", "b"], "images": images, "skipped": [], **more}
    path.with_suffix(".json").write_text(json.dumps(facts))


def test_a_folder_is_counted_by_class(tmp_path):
    found = dataset.inspect(folder(tmp_path / "set", cats=[10, 20], dogs=[30]))
    assert (found.images, found.classes) == (3, 2)


def test_the_digest_tells_sets_with_other_names_or_sizes_apart(tmp_path):
    digests = {
        dataset.inspect(folder(tmp_path / name, **classes)).digest
        for name, classes in {
            "one": {"a": [1, 2]},
            "same": {"a": [1, 2]},
            "size": {"a": [1, 3]},
            "name": {"b": [1, 2]},
            "more": {"a": [1, 2, 2]},
        }.items()
    }
    assert len(digests) == 4


@pytest.mark.parametrize(("suffix", "beside"), [(".rec", ".idx"), (".tfrecord", None), (".lmdb", None)])
def test_a_packed_set_is_what_its_index_says(tmp_path, suffix, beside):
    path = tmp_path / f"set{suffix}"
    if suffix == ".lmdb":
        path.mkdir()
        (path / "data.mdb").write_bytes(b"x")
    else:
        path.write_bytes(b"x")
    with pytest.raises(
        RequestError, match=r"has no set\.json beside it; pack it again with `dlscale data pack DIR --out set\."
    ):
        dataset.inspect(path)
    index(path, **({"size": 256} if suffix == ".lmdb" else {}))
    if beside:
        with pytest.raises(RequestError, match=rf"has no set\{beside} beside it"):
            dataset.inspect(path)
        path.with_suffix(beside).touch()
    found = dataset.inspect(path)
    assert (found.images, found.classes) == (3, 2)
    assert dataset.place(path) == tmp_path
    index(path, images=0)
    with pytest.raises(RequestError, match="holds no image"):
        dataset.inspect(path)


def test_what_is_no_data_set_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.zip").touch()
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.jpg").touch()
    for name, why in {
        "absent": "does not exist; `dlscale data sample DIR` writes a small",
        "empty": "is empty",
        "file.zip": "is neither a folder nor a .rec, .lmdb, .tfrecord",
        "flat": "holds no JPEG in class folders",
    }.items():
        with pytest.raises(RequestError, match=why):
            dataset.inspect(tmp_path / name)


def test_every_packer_is_a_program_of_the_workload_and_writes_a_form_that_its_framework_reads():
    for framework, packer in PACKERS.items():
        assert (examples.ROOT / "workloads" / packer.program).is_file()
        assert dataset.PACKED[packer.suffix].framework == framework
        assert framework in choose_workload(load_workloads(examples.ROOT), None).frameworks("train")


def test_only_a_form_with_one_image_size_is_packed_anew_for_another(tmp_path):
    data = dataset.inspect(folder(tmp_path / "set", a=[1]))
    for framework, packer in PACKERS.items():
        paths = {packed_path(data, tmp_path, framework=framework, image_size=size) for size in (32, 224)}
        assert len(paths) == (2 if packer.sized else 1)
    # Each in a directory of its own, which is moved into place as a whole.
    folders = {packed_path(data, tmp_path, framework=name, image_size=32).parent for name in PACKERS}
    assert len(folders) == len(PACKERS)


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


def test_every_fifth_image_of_a_class_is_kept_for_validation(tmp_path):
    for name, count in (("cats", 11), ("dogs", 4)):
        (tmp_path / name).mkdir()
        for number in range(count):
            (tmp_path / name / f"{number}.jpg").write_bytes(b"x")
    found = dataset.inspect(tmp_path)
    assert (found.images, found.validation_images) == (15, 2)
