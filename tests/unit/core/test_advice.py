"""Advice that its reader can't type: a flag to somebody who typed `make`, or a variable of make that is none."""

import examples
import pytest

from runner.commands.documents import make_variables
from runner.core import advice
from runner.core.console import complain
from runner.core.request import Request
from runner.run.bench import _smoke_test


@pytest.mark.parametrize(
    ("sentence", "under_make"),
    [
        ("ask for WORKERS=2 or add --oversubscribe", "ask for WORKERS=2 or add OVERSUBSCRIBE=1"),
        ("--image corp/net:7 without a command", "IMAGE=corp/net:7 without a command"),
        ("give --batch N, the samples", "give BATCH=N, the samples"),
        ("--timeout or --link-rate describes", "TIMEOUT or LINK_RATE describes"),
        ("add --model=resnet50 --image-size=224", "add MODEL=resnet50 IMAGE_SIZE=224"),
        ("`dlscale doctor` says more", "`make doctor` says more"),
        (
            "`dlscale bench --image I -- COMMAND`; --dialect",
            "`.venv/bin/dlscale bench --image I -- COMMAND`; --dialect",
        ),
        ("docker's --gpus-by is none of the suite's", "docker's --gpus-by is none of the suite's"),
    ],
)
def test_under_make_advice_speaks_its_language(monkeypatch, sentence, under_make):
    assert advice.spoken(sentence) == sentence
    monkeypatch.setenv(advice.UNDER_MAKE, "1")
    assert advice.spoken(sentence) == under_make


def test_complaints_are_advice_too(monkeypatch, capsys):
    monkeypatch.setenv(advice.UNDER_MAKE, "1")
    complain(["add --oversubscribe"])
    assert capsys.readouterr().err == "add OVERSUBSCRIBE=1\n"


def test_every_variable_that_is_named_is_one_of_make():
    text = (examples.ROOT / "Makefile").read_text("utf-8")
    assert f"DLSCALE := {advice.UNDER_MAKE}=1 " in text
    known = {name for names in make_variables(text).values() for name in names}
    assert {name.upper() for name in advice._VARIABLES} <= known
    assert {name for name in advice._TARGETS if f"\n{name}: " not in text} == set()


@pytest.mark.parametrize(
    ("asked", "device", "said"),
    [({}, "cpu", 1), ({"model": "resnet18"}, "cpu", 0), ({"image_size": 64}, "cpu", 0), ({}, "gpu", 0)],
)
def test_the_default_on_cpus_is_said_to_be_a_smoke_test(asked, device, said):
    found = list(_smoke_test(Request(**asked), examples.trial(device=device)))
    assert len(found) == said
    assert all("resnet18 at 32×32 is a smoke test" in one for one in found)
