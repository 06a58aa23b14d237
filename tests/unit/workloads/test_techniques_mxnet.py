"""Prevents: a technique of MXNet that is accepted without effect, or where its kernel or its update does not exist."""

from argparse import Namespace

import pytest
from with_mxnet.techniques import TECHNIQUES, by_lists, check, effects

PLAIN = {"device": "gpu", "precision": "fp16", "kvstore": None}


def flags(*names, **changes):
    return Namespace(techniques=names, **(PLAIN | changes))


def test_supported_techniques_are_accepted():
    check(flags(*TECHNIQUES), offered=TECHNIQUES)
    check(flags("aggregated-updates", device="cpu", precision="bf16", kvstore="dist_sync"), offered=TECHNIQUES)
    check(flags(), offered=())


@pytest.mark.parametrize(
    ("args", "offered", "sentence"),
    [
        (
            flags("faster"),
            TECHNIQUES,
            "is not offered by this program; it has channels-last, amp, aggregated-updates\n",
        ),
        (flags("amp"), (), "is not offered by this program; leave it out\n"),
        (flags("channels-last", device="cpu"), TECHNIQUES, "is for GPUs; leave it out with --device=cpu"),
        (flags("amp", device="cpu", precision="bf16"), TECHNIQUES, "is for GPUs"),
        (flags("amp", precision="fp32"), TECHNIQUES, "not in fp32; ask for fp16"),
        (flags("aggregated-updates", kvstore="dist_async"), TECHNIQUES, "and --kvstore=dist_async in its servers"),
    ],
)
def test_unsupported_techniques_are_refused(args, offered, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        check(args, offered=offered)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("precision", "names", "target"),
    [("fp32", (), None), ("fp16", (), None), ("fp16", ("amp",), "float16"), ("bf16", (), "bfloat16")],
)
def test_operators_are_cast_by_lists_in_bf16_and_with_amp(precision, names, target):
    assert by_lists(flags(*names, precision=precision)) == target


def node(op, *inputs, **attrs):
    return {"op": op, "inputs": [[number, 0, 0] for number in inputs], "attrs": attrs}


def test_a_technique_without_effect_reports_zero():
    cast = [node("null"), node("amp_cast", 0), node("Convolution", 1, 0, layout="NHWC"), node("FullyConnected", 2, 0)]
    assert effects(flags(*TECHNIQUES), cast, [60, 2, 4, 60, 2, 4]) == {
        "channels-last": 1,
        "amp": 1,
        "aggregated-updates": 120,
    }
    plain = [node("null"), node("Convolution", 0, 0, layout="NCHW"), node("FullyConnected", 1, 0)]
    assert effects(flags(*TECHNIQUES), plain, [4, 4, 1]) == dict.fromkeys(TECHNIQUES, 0)
    assert effects(flags(), cast, []) == {}
