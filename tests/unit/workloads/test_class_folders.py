"""Prevents: labels that differ from run to run or between frameworks, a folder without images taken for a class, a truncated JPEG
taken for a whole one, a stem of the wrong size, flags that a record's command line would leave out."""

import argparse

import arguments
import class_folders
import pytest
import stem

from runner import dataset

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


def test_the_runner_counts_what_the_programs_read(tree):
    classes, images = class_folders.class_folders(tree)
    found = dataset.inspect(tree)
    assert (found.classes, found.images) == (len(classes), len(images))


@pytest.mark.parametrize(
    ("jpeg", "whole"),
    [
        (SOI + b"data" + EOI, True),
        (SOI + b"data" + EOI + b"\0" * 100, True),  # padded, as some cameras do
        (SOI + b"data", False),
        (SOI + EOI + b"\0" * 5000, False),  # a thumbnail's end far before the file's
        (b"", False),
    ],
)
def test_a_whole_jpeg_ends_with_its_marker(jpeg, whole):
    assert class_folders.is_whole(jpeg) is whole


@pytest.mark.parametrize(("size", "small"), [(32, True), (64, True), (95, True), (96, False), (224, False)])
def test_small_images_get_the_small_stem(size, small):
    assert stem.is_small(size) is small


def test_every_flag_of_a_training_program_is_required_but_those_of_one_strategy_or_framework():
    parser = arguments.training_parser("", models=("lenet",))
    optional = [a.dest for a in parser._actions if a.option_strings and not a.required and a.dest != "help"]
    profile = ["profile", "profile_after", "profile_iterations", "profile_region"]
    assert optional == ["kvstore", "compression", "probe", *profile, "epoch_iterations", "xla"]


def test_sizes_of_the_probe_are_whole_elements_each_once():
    assert arguments.byte_sizes("") == ()
    assert arguments.byte_sizes("4194304,65536,65536") == (65536, 4194304)
    for text in ("0", "-4", "6", "4,6"):
        with pytest.raises(argparse.ArgumentTypeError, match="no multiple of 4"):
            arguments.byte_sizes(text)
    with pytest.raises(ValueError, match="many"):  # argparse makes a refusal of it
        arguments.byte_sizes("many")


def test_a_refusal_is_one_line_and_code_2(capsys):
    with pytest.raises(SystemExit) as stop:
        arguments.refuse("no GPU here")
    assert stop.value.code == 2
    assert capsys.readouterr() == ("", "no GPU here\n")
