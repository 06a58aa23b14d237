"""Prevents: a technique that the runner plans and the program does not know, one without effect, a graph without a step,
a training that fails because its compilers may not write to their cache directory, compilers with another cache directory."""

import os
from argparse import Namespace
from types import SimpleNamespace
from typing import get_args

import examples
import pytest
from with_mxnet import techniques as techniques_mxnet
from with_pytorch import techniques
from with_tensorflow import techniques as techniques_tensorflow

from runner.core.request import Technique
from runner.core.workload import load_workloads

PLAIN = {
    "device": "gpu",
    "strategy": "ddp",
    "precision": "bf16",
    "profile": None,
    "profile_region": None,
    "warmup": 20,
}

DDP = SimpleNamespace(fails_with=(), tunes_exchange=True)


def flags(*names, **changes):
    return Namespace(techniques=names, **(PLAIN | changes))


def test_runner_and_program_have_the_same_names_in_the_same_order():
    known = {
        "mxnet": techniques_mxnet.TECHNIQUES,
        "pytorch": techniques.TECHNIQUES,
        "tensorflow": techniques_tensorflow.TECHNIQUES,
    }
    assert set(get_args(Technique)) == {name for names in known.values() for name in names}
    for workload in load_workloads(examples.ROOT):
        for framework, offered in (*workload.techniques.items(), *workload.inference_techniques.items()):
            for names in offered.values():
                assert list(names) == sorted(names, key=known[framework].index)


def test_supported_techniques_are_accepted():
    techniques.check(flags(*techniques.TECHNIQUES), DDP, offered=set(techniques.TECHNIQUES))
    techniques.check(flags("channels-last", device="cpu"), DDP, offered={"channels-last"})


@pytest.mark.parametrize(
    ("args", "offered", "sentence"),
    [
        (flags("faster"), techniques.TECHNIQUES, "is not offered by this program; it has channels-last, "),
        (flags("compile"), ("fused-optimizer",), "it has fused-optimizer\n"),
        (flags("compile", device="cpu"), techniques.TECHNIQUES, "is for GPUs"),
        (flags("cudnn-attention", precision="tf32"), techniques.TECHNIQUES, "ask for bf16"),
        (flags("pooling-kernel"), techniques.TECHNIQUES, "add channels-last"),
        (flags("kernel-search"), techniques.TECHNIQUES, "add compile"),
        (flags("cuda-graphs", precision="fp16"), techniques.TECHNIQUES, "ask for bf16"),
        (flags("cuda-graphs", profile="memory"), techniques.TECHNIQUES, "leave it out of this pass"),
        (flags("cuda-graphs", profile="kernels", profile_region="forward"), techniques.TECHNIQUES, "without regions"),
        (flags("cuda-graphs", warmup=11), techniques.TECHNIQUES, "ask for --warmup=12 or more"),
    ],
)
def test_unsupported_techniques_are_refused_in_one_sentence(args, offered, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        techniques.check(args, DDP, offered=set(offered))
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("mode", "told"), [(0o700, True), (None, False)])
def test_compilers_use_the_cache_directory_if_it_is_writable(monkeypatch, tmp_path, mode, told):
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "before")
    if mode:
        (tmp_path / "kept").mkdir(mode)
    techniques.use_cache(str(tmp_path / "kept"))
    techniques.use_cache(None)
    sent = [os.environ[name] for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")]
    assert sent == ([f"{tmp_path}/kept/inductor", f"{tmp_path}/kept/triton"] if told else ["before", "before"])
