"""Prevents: channels, rows or classes of the published files in another order; half a data set; other files accepted as these."""

import numpy as np
import pytest
from imagenet_cnn import import_imagenet32
from PIL import Image

from runner.core import dataset

COLOURS = ((250, 10, 20), (10, 240, 30), (20, 30, 230))


def flat(colour, *, corner=None):
    """An image of one colour in the files' layout: all red, then green, then blue values; the upper right quarter has the colour `corner`."""
    image = np.empty((3, 32, 32), np.uint8)
    image[:] = np.array(colour)[:, None, None]
    if corner:
        image[:, 0:16, 16:32] = np.array(corner)[:, None, None]
    return image.reshape(-1)


@pytest.fixture
def published(tmp_path):
    """Three images in each batch, of classes 1, 1000 and 2, and two for validation."""
    folder = tmp_path / "npz"
    folder.mkdir()
    data = np.stack([flat(colour, corner=(0, 0, 0)) for colour in COLOURS])
    for number in range(1, 11):
        np.savez(folder / f"train_data_batch_{number}.npz", data=data, labels=np.array([1, 1000, 2]), mean=data[0])
    np.savez(folder / "val_data.npz", data=data[:2], labels=[1000, 1])
    return folder


def test_pixels_and_classes_keep_their_places(published, tmp_path, capsys):
    out = tmp_path / "out"
    import_imagenet32.main([str(published), str(out)])
    assert capsys.readouterr().out.strip() == '{"train": 30, "val": 2}'
    for name, colour in (("0001", COLOURS[0]), ("1000", COLOURS[1]), ("0002", COLOURS[2])):
        found = sorted((out / "train" / name).iterdir())
        assert len(found) == 10
        pixels = np.asarray(Image.open(found[0]), int)
        assert pixels.shape == (32, 32, 3)
        assert np.abs(pixels[24, 4] - colour).max() < 8
        assert pixels[4, 28].max() < 8  # the first rows are at the top, the last columns on the right
    (only,) = (out / "val" / "1000").iterdir()
    assert np.abs(np.asarray(Image.open(only), int)[24, 4] - COLOURS[0]).max() < 8
    held = dataset.inspect(out / "train")
    assert (held.images, held.classes, held.validation_images) == (30, 3, 6)


def rewritten(folder, **changed):
    data = np.zeros((2, 3072), np.uint8)
    np.savez(folder / "train_data_batch_3.npz", **{"data": data, "labels": np.array([1, 2]), **changed})


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"data": np.zeros((2, 12288), np.uint8)}, "give the files of 32x32 pixels"),
        ({"data": np.zeros((2, 3072), np.float32)}, "in float32"),
        ({"labels": np.array([1])}, "1 labels"),
        ({"labels": np.array([0, 1])}, "not whole numbers of 1 to 1000"),
        ({"labels": np.array([1, 1001])}, "not whole numbers of 1 to 1000"),
    ],
)
def test_foreign_files_are_refused_in_one_sentence_and_leave_nothing(changed, sentence, published, tmp_path, capsys):
    rewritten(published, **changed)
    with pytest.raises(SystemExit) as ended:
        import_imagenet32.main([str(published), str(tmp_path / "out")])
    said = capsys.readouterr().err.splitlines()[-1]
    assert ended.value.code == 2
    assert "train_data_batch_3.npz" in said
    assert sentence in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["npz"]


def test_a_missing_file_or_one_that_is_not_npz_is_named(published, tmp_path, capsys):
    (published / "val_data.npz").write_bytes(b"<html>")
    with pytest.raises(SystemExit):
        import_imagenet32.main([str(published), str(tmp_path / "out")])
    assert "val_data.npz is no npz file" in capsys.readouterr().err.splitlines()[-1]
    (published / "val_data.npz").unlink()
    with pytest.raises(SystemExit):
        import_imagenet32.main([str(published), str(tmp_path / "out")])
    assert "has no val_data.npz" in capsys.readouterr().err.splitlines()[-1]


def test_a_folder_in_use_is_left_unchanged(published, tmp_path, capsys):
    (tmp_path / "mine").write_text("")
    with pytest.raises(SystemExit):
        import_imagenet32.main([str(published), str(tmp_path)])
    assert "is not an empty folder" in capsys.readouterr().err
