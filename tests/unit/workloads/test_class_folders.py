"""Prevents: labels that differ between runs or frameworks, a folder without images counted as a class, a truncated JPEG
accepted as a whole one, images used for both training and validation, or by two ranks, a class without validation images, a crop beyond
its image, outside the bounds of its size and aspect ratio, or not reproducible from its seed,
options that a record's command line would lack."""

import argparse

import arguments
import class_folders
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core import dataset

SOI, EOI = b"\xff\xd8", b"\xff\xd9"


@pytest.fixture
def tree(tmp_path):
    for name in ("zebra/2.JPEG", "zebra/1.jpg", "ant/deep/er/3.jpeg", "ant/notes.txt", "empty/readme.txt", "stray.jpg"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(SOI + EOI)
    return tmp_path


def test_labels_are_positions_in_the_sorted_names_of_folders_with_images(tree):
    classes, images = class_folders.class_folders(tree)
    assert classes == ["ant", "zebra"]
    assert images == [("ant/deep/er/3.jpeg", 0), ("zebra/1.jpg", 1), ("zebra/2.JPEG", 1)]


def test_the_runner_and_the_programs_count_the_same_images(tree):
    classes, images = class_folders.class_folders(tree)
    found = dataset.inspect(tree)
    assert (found.classes, found.images) == (len(classes), len(images))


def test_a_link_to_a_parent_folder_is_followed_once(tree):
    """Two such links in one class would lead to 2**40 folders."""
    for name in ("one", "two"):
        (tree / "zebra" / name).symlink_to(tree / "zebra")
        (tree / "ant" / name).symlink_to(tree)
    classes, images = class_folders.class_folders(tree)
    assert classes == ["ant", "zebra"]
    assert sorted(name for name, label in images if label) == ["zebra/1.jpg", "zebra/2.JPEG"]
    assert dataset.inspect(tree).images == len(images) == 6


def test_the_runner_and_the_programs_hold_out_equally_many_images(tmp_path):
    for name, count in (("ant", 11), ("bee", 4), ("cow", 5)):
        (tmp_path / name).mkdir()
        for number in range(count):
            (tmp_path / name / f"{number}.jpg").write_bytes(SOI + EOI)
    _, validation = class_folders.split(class_folders.class_folders(tmp_path)[1])
    assert dataset.inspect(tmp_path).validation_images == len(validation) == 3


def test_every_fifth_image_of_a_class_is_for_validation():
    images = [(f"ant/{number}", 0) for number in range(11)] + [(f"bee/{number}", 1) for number in range(4)]
    images += [(f"cow/{number}", 2) for number in range(5)]
    training, validation = class_folders.split(images)
    assert validation == [("ant/4", 0), ("ant/9", 0), ("cow/4", 2)]
    assert training == [image for image in images if image not in validation]


@given(sizes=st.lists(st.integers(0, 30), max_size=6), ranks=st.integers(1, 7))
def test_each_image_is_in_one_part_and_one_share(sizes, ranks):
    images = [(f"{label}/{number:02}", label) for label, size in enumerate(sizes) for number in range(size)]
    training, validation = class_folders.split(images)
    assert sorted(training + validation) == images
    assert len(validation) == sum(size // 5 for size in sizes)
    shares = [class_folders.share(validation, rank=rank, world_size=ranks) for rank in range(ranks)]
    assert sorted(image for share in shares for image in share) == sorted(validation)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_spread_covers_the_whole_list():
    assert class_folders.spread(list(range(10)), 4) == [0, 2, 5, 7]
    assert class_folders.spread([1, 2], 4) == [1, 2]
    assert class_folders.spread([], 4) == []


@pytest.mark.parametrize(
    ("width", "height", "square"),
    [(256, 256, (16, 16, 224)), (400, 320, (60, 20, 280)), (32, 32, (2, 2, 28)), (1, 9, (0, 4, 1))],
)
def test_validation_crops_seven_eighths_of_the_shorter_side(width, height, square):
    assert class_folders.central_square(width, height) == square


@pytest.mark.parametrize(
    ("jpeg", "whole"),
    [
        (SOI + b"data" + EOI, True),
        (SOI + b"data" + EOI + b"\0" * 100, True),  # padded, as by some cameras
        (SOI + b"data", False),
        (SOI + EOI + b"\0" * 5000, False),  # the end marker of a thumbnail, far before the end of the file
        (b"", False),
    ],
)
def test_a_whole_jpeg_ends_with_its_marker(jpeg, whole):
    assert class_folders.is_whole(jpeg) is whole


def test_all_training_options_are_required_except_those_of_one_strategy_or_framework():
    parser = arguments.training_parser("", models=("lenet",))
    optional = [a.dest for a in parser._actions if a.option_strings and not a.required and a.dest != "help"]
    profile = ["profile", "profile_after", "profile_iterations", "profile_region"]
    assert optional == [
        "measure_seconds",
        "gpu_memory",
        "kvstore",
        "compression",
        "probe",
        *profile,
        "epoch_iterations",
        "techniques",
        "compiled",
        "xla",
    ]


def test_all_inference_options_are_required_except_fit_and_those_of_one_framework():
    parser = arguments.inference_parser("", models=("lenet",))
    assert [a.dest for a in parser._actions if a.option_strings and not a.required and a.dest != "help"] == [
        "measure_seconds",
        "gpu_memory",
        "fit",
    ]
    (precision,) = (a for a in parser._actions if a.dest == "precision")
    assert "int8" in precision.choices


def test_probe_sizes_are_whole_elements_without_duplicates():
    assert arguments.byte_sizes("") == ()
    assert arguments.byte_sizes("4194304,65536,65536") == (65536, 4194304)
    for text in ("0", "-4", "6", "4,6"):
        with pytest.raises(argparse.ArgumentTypeError, match="not a multiple of 4"):
            arguments.byte_sizes(text)
    with pytest.raises(ValueError, match="many"):  # argparse turns it into a refusal
        arguments.byte_sizes("many")


def test_a_refusal_is_one_line_and_exit_code_2(capsys):
    with pytest.raises(SystemExit) as stop:
        arguments.refuse("no GPU here")
    assert stop.value.code == 2
    assert capsys.readouterr() == ("", "no GPU here\n")


SIDES = st.integers(1, 5000)


@given(seed=st.integers(0, 2**32), width=SIDES, height=SIDES)
def test_a_crop_lies_within_its_image_and_depends_only_on_the_seed(seed, width, height):
    left, top, w, h = class_folders.random_crop(np.random.default_rng(seed), width, height)
    assert 0 <= left <= left + w <= width
    assert 0 <= top <= top + h <= height
    assert w > 0
    assert h > 0
    assert class_folders.random_crop(np.random.default_rng(seed), width, height) == (left, top, w, h)


@given(seed=st.integers(0, 2**32))
def test_a_crop_has_8_to_100_percent_of_the_area_at_an_aspect_ratio_of_3_to_4(seed):
    """For 1000 x 1000 pixels, to which sides are rounded; if no draw fits, the whole image satisfies both bounds."""
    _, _, w, h = class_folders.random_crop(np.random.default_rng(seed), 1000, 1000)
    assert 0.0795 <= w * h / 1e6 <= 1
    assert 0.745 <= w / h <= 1.34


def test_an_image_too_flat_for_any_crop_is_used_whole():
    assert class_folders.random_crop(np.random.default_rng(1), 5000, 1) == (0, 0, 5000, 1)
