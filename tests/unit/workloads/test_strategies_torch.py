"""Prevents: a strategy that is planned and started, and then refused by the program; one whose facts differ between the plan and the program;
a model that is trained once per process."""

import importlib
import sys
from argparse import Namespace
from unittest.mock import MagicMock

import pytest
from with_pytorch import techniques, training

from runner.core.request import Request
from runner.core.strategies import STRATEGIES
from runner.plan.techniques import effective

OF_PYTORCH = {name: one for name, one in STRATEGIES.items() if "pytorch" in one.frameworks}
PLAIN = {
    "device": "gpu",
    "devices": 1,
    "precision": "bf16",
    "compression": None,
    "profile": None,
    "profile_region": None,
    "warmup": 20,
    "epoch_iterations": None,
}
TORCH = (
    *("torch", "torch.distributed", "torch.distributed.algorithms.ddp_comm_hooks", "torch.distributed.device_mesh"),
    *("torch.distributed.fsdp", "torch.distributed.tensor", "torch.distributed.tensor.parallel", "torch.nn.parallel"),
)


@pytest.fixture
def strategies(monkeypatch):
    """The program's classes by strategy, with a stand-in for PyTorch."""
    for name in TORCH:
        monkeypatch.setitem(sys.modules, name, MagicMock())
    for name in ("with_pytorch.ranks", "with_pytorch.sharded"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    modules = [importlib.import_module(f"with_pytorch.{name}") for name in ("ranks", "sharded")]
    yield {name: one for module in modules for name, one in module.STRATEGIES.items()}
    for name in ("with_pytorch.ranks", "with_pytorch.sharded"):
        sys.modules.pop(name)


def flags(strategy, *names, **changes):
    return Namespace(strategy=strategy, techniques=names, **(PLAIN | changes))


def test_program_and_plan_have_the_same_strategies_with_the_same_facts(strategies):
    """One was planned and started, and then refused by the image classifiers, which had a list of their own."""
    stated = {
        name: (one.cuts, one.splits_layers, one.tunes_exchange, one.launcher is None)
        for name, one in strategies.items()
    }
    assert stated == {
        name: (one.cuts, bool(one.splits_layers), one.tunes_exchange, one.one_process)
        for name, one in OF_PYTORCH.items()
    }


@pytest.mark.parametrize("name", [name for name, one in OF_PYTORCH.items() if not one.copies_network])
def test_the_techniques_of_a_plan_are_accepted(name, strategies):
    planned = effective(Request(techniques=techniques.TECHNIQUES), strategy=name)
    techniques.check(flags(name, *planned), strategies[name], offered=set(techniques.TECHNIQUES))


@pytest.mark.parametrize(
    ("args", "launched", "sentence"),
    [
        (flags("ddp"), False, "needs several ranks; start this program with torchrun"),
        (flags("horovod"), False, "needs several ranks; start this program with horovodrun"),
        (flags("single"), True, "would train a model per process of the launcher"),
        (flags("single", devices=2), False, "--devices=2 needs --strategy=dp"),
        (flags("dp", devices=2, device="cpu"), False, "is for GPUs; on CPUs ask for ddp"),
        (flags("tp", precision="fp8"), True, "--precision=fp8 multiplies whole layers"),
        (flags("single", "one-message"), False, "leave it out with --strategy=single"),
        (flags("horovod", "bf16-gradients"), True, "leave it out with --strategy=horovod"),
        (flags("horovod", "cuda-graphs"), True, "does not work with --strategy=horovod"),
        (flags("fsdp+tp", "compile"), True, "does not work with --strategy=fsdp+tp"),
        (flags("dp", "compile", devices=2), False, "does not work with --strategy=dp"),
    ],
)
def test_what_a_strategy_does_not_support_is_refused_in_one_sentence(args, launched, sentence, strategies, capsys):
    with pytest.raises(SystemExit) as ended:
        training.check(args, strategies[args.strategy], launched=launched, offered=set(techniques.TECHNIQUES))
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "cuts", "lacks"), [("dp", False, {"dp"}), ("fsdp", False, ()), ("mirrored", True, ())]
)
def test_a_strategy_that_the_program_lacks_is_refused(name, cuts, lacks, strategies, capsys):
    with pytest.raises(SystemExit):
        training.choose(flags(name), Namespace(cuts=cuts, lacks=lacks))
    assert f"--strategy={name} is not this program's; it has single, ddp" in capsys.readouterr().err
    assert training.choose(flags("tp"), Namespace(cuts=True, lacks=())) is strategies["tp"]
