"""Prevents: crops of another size than requested, beyond the edge of a photograph, or empty."""

import argparse
import random

import pytest
from imagenet_cnn import make_sample
from PIL import Image
from typer.testing import CliRunner

from runner.commands.cli import app
from runner.core.errors import RequestError


@pytest.mark.parametrize(("side", "sizes"), [((96, 160), (96, 160)), ((350, 500), (300, 300)), ((7, 7), (7, 7))])
def test_crops_are_squares_within_the_range_and_within_the_photograph(side, sizes):
    photograph, generator = Image.new("RGB", (451, 300)), random.Random(1)
    found = [make_sample.crop(photograph, side, generator) for _ in range(200)]
    assert all(image.width == image.height for image in found)
    assert (min(image.width for image in found), max(image.width for image in found)) == sizes


def test_crops_are_scaled_to_one_side():
    photograph, generator = Image.new("RGB", (451, 300), "red"), random.Random(1)
    found = [make_sample.crop(photograph, (96, 160), generator, scale_to=32) for _ in range(20)]
    assert {image.size for image in found} == {(32, 32)}
    assert {image.getpixel((31, 31)) for image in found} == {(255, 0, 0)}


@pytest.mark.parametrize("text", ["0-10", "20-10", "96", "big"])
def test_an_invalid_range_of_pixels_is_refused(text, tmp_path):
    with pytest.raises((argparse.ArgumentTypeError, ValueError)):
        make_sample.sides(text)
    done = CliRunner().invoke(app, ["data", "sample", str(tmp_path / "new"), f"--side={text}"])
    assert isinstance(done.exception, RequestError)
    assert "SIDE=" in str(done.exception)
    assert not (tmp_path / "new").exists()
