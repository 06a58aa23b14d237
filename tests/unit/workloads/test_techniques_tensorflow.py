"""Prevents: a technique of TensorFlow that is accepted without effect, or where its kernel or its batches do not exist."""

from argparse import Namespace

import pytest
from with_tensorflow.techniques import TECHNIQUES, check

PLAIN = {"device": "gpu", "precision": "bf16", "data": "synthetic", "xla": False}


def asked(*names, **changes):
    return Namespace(techniques=names, **(PLAIN | changes))


def test_supported_techniques_are_accepted():
    check(asked(*TECHNIQUES), offered=TECHNIQUES)
    check(asked("xla", "step-loop", device="cpu", precision="fp32"), offered=TECHNIQUES)


@pytest.mark.parametrize(
    ("args", "offered", "sentence"),
    [
        (asked("faster"), TECHNIQUES, "is not offered by this program; it has channels-last, "),
        (asked("step-loop"), ("xla",), "it has xla\n"),
        (asked("channels-last", device="cpu"), TECHNIQUES, "is for GPUs"),
        (asked("persistent-norm"), TECHNIQUES, "add channels-last"),
        (asked(*TECHNIQUES[:2], precision="tf32"), TECHNIQUES, "ask for bf16 or fp16"),
        (asked("step-loop", data="/data"), TECHNIQUES, "or ask for --data=synthetic"),
        (asked("xla", xla=True), TECHNIQUES, "mean the same"),
    ],
)
def test_unsupported_techniques_are_refused(args, offered, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        check(args, offered=offered)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
