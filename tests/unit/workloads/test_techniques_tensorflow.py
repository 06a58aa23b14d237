"""Prevents: a technique of TensorFlow that is accepted without effect, or where its kernel or its batches do not exist."""

from argparse import Namespace

import pytest
from with_tensorflow.techniques import TECHNIQUES, check

PLAIN = {"device": "gpu", "precision": "bf16", "data": "synthetic", "xla": False}


def flags(*names, **changes):
    return Namespace(techniques=names, **(PLAIN | changes))


def test_supported_techniques_are_accepted():
    check(flags(*TECHNIQUES), offered=TECHNIQUES)
    check(flags("xla", "step-loop", device="cpu", precision="fp32"), offered=TECHNIQUES)


@pytest.mark.parametrize(
    ("args", "offered", "sentence"),
    [
        (flags("faster"), TECHNIQUES, "is not offered by this program; it has channels-last, "),
        (flags("step-loop"), ("xla",), "it has xla\n"),
        (flags("channels-last", device="cpu"), TECHNIQUES, "is for GPUs"),
        (flags("persistent-norm"), TECHNIQUES, "add channels-last"),
        (flags(*TECHNIQUES[:2], precision="tf32"), TECHNIQUES, "ask for bf16 or fp16"),
        (flags("step-loop", data="/data"), TECHNIQUES, "or ask for --data=synthetic"),
        (flags("xla", xla=True), TECHNIQUES, "mean the same"),
    ],
)
def test_unsupported_techniques_are_refused(args, offered, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        check(args, offered=offered)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
