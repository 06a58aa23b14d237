"""Prevents: bad input that starts something. Every mistake is one sentence that names the variable and what to type."""

from typing import get_args

import pytest

from runner.core import parsing
from runner.core import request as ask
from runner.core.container_spec import Mount
from runner.core.contradictions import refuse_contradictions
from runner.core.errors import RequestError
from runner.core.parsing import LIMITS, MAX_NUMBER, MAX_SLOTS
from runner.core.request import Request
from runner.core.wire import Link

SLOW = Link(rate_mbit=100, emulated=True)
IN_IMAGE = {"image": "i:1", "framework": "pytorch"}
OPT = Mount(source="/opt", target="/opt")


@pytest.mark.parametrize("text", ["0", "-1", "abc", "1.5", "1e3", "٣"])
def test_a_count_is_a_whole_number_of_at_least_one(text):
    with pytest.raises(
        RequestError, match=f"^BATCH={text} is not a whole number of at least 1; type for example BATCH=4$"
    ):
        parsing.count("BATCH", text)


@pytest.mark.parametrize("text", [None, ""])
def test_an_empty_variable_counts_as_unset(text):
    assert parsing.count("BATCH", text) is None
    assert parsing.counts("GPUS", text) is None
    assert parsing.choice("DEVICE", text, ask.Device) is None
    assert parsing.choices("INTERCONNECT", text, ask.Interconnect) is None
    assert parsing.links(text, text) is None


def test_a_sweep_is_sorted_and_distinct_without_empty_items():
    assert parsing.counts("GPUS", "4,1, 2,1") == (1, 2, 4)
    with pytest.raises(RequestError, match="has an empty item"):
        parsing.counts("GPUS", "1,,2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), *((bad, None) for bad in ("0", "soon", "5d", "-3s", ""))],
)
def test_durations(text, expected):
    if expected:
        assert parsing.seconds("TIMEOUT", text) == expected
        return
    with pytest.raises(RequestError, match="is not a duration"):
        parsing.seconds("TIMEOUT", text)


LONG = "9" * 5000


@pytest.mark.parametrize(
    ("parse", "variable", "text", "most"),
    [
        (parsing.count, "BATCH", "99999999999999999999999", 10**6),
        (parsing.non_negative, "SEED", "18446744073709551616", 10**9),
        (parsing.count, "ITERATIONS", "0" * 5000 + "1000000001", 10**9),
        (parsing.counts, "GPUS", f"1,{LONG}", 10**9),
        (parsing.count, "IMAGE_SIZE", "65536", 65535),
        (parsing.seconds, "TIMEOUT", f"{LONG}h", 10**9),
        (parsing.seconds, "TIMEOUT", "1000000h", 10**9),
    ],
)
def test_numbers_too_large_for_programs_are_refused(parse, variable, text, most):
    """Such a seed crashed PyTorch and TensorFlow in their containers, and a number of 5000 digits crashed Python's int()."""
    with pytest.raises(RequestError, match=rf"^{variable}=\S+ is too large; the maximum is {most}$") as caught:
        parse(variable, text)
    assert len(str(caught.value)) < 200


def test_the_maximum_of_each_variable_is_accepted():
    for variable, most in LIMITS.items():
        assert parsing.count(variable, str(most)) == most
    assert parsing.non_negative("SEED", str(MAX_NUMBER)) == MAX_NUMBER
    assert parsing.count("BATCH", "0" * 5000 + "7") == 7
    assert MAX_NUMBER + MAX_SLOTS < 2**31  # the largest seed plus the largest rank still fits the programs' int32


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("ResNet50", "resnet50"),
        ("resnet-50", "resnet50"),
        ("VGG_16", "vgg16"),
        ("Inception V3", "inception-v3"),
        ("rn50", "resnet50"),
    ],
)
def test_a_name_in_other_case_or_punctuation_is_accepted_with_a_notice(capsys, text, meant):
    names = ("resnet50", "vgg16", "inception-v3")
    assert parsing.one_of("MODEL", text, names, aliases={"rn50": "resnet50"}) == meant
    assert capsys.readouterr().err == f"MODEL={text} is taken as {meant}\n"


def test_an_exact_name_gives_no_notice_and_a_misspelt_one_the_nearest_first(capsys):
    assert parsing.choice("PRECISION", "bf16", ask.Precision) == "bf16"
    assert capsys.readouterr().err == ""
    with pytest.raises(RequestError, match="^unknown PRECISION 'bf61'; did you mean bf16[?] Known: bf16, "):
        parsing.choice("PRECISION", "bf61", ask.Precision)


def test_an_unknown_technique_lists_all():
    """docs/running.md says so; eight were listed, "and 10 more"."""
    with pytest.raises(RequestError) as caught:
        parsing.choices("TECHNIQUES", "none", ask.Technique)
    assert all(name in str(caught.value) for name in get_args(ask.Technique))


@pytest.mark.parametrize("text", ["A-B", "--", "c"])
def test_an_ambiguous_or_empty_name_is_refused(text):
    with pytest.raises(RequestError, match="^unknown MODEL"):
        parsing.one_of("MODEL", text, ("ab", "a-b", "a_b"))


def test_a_sweep_of_words_keeps_its_order_and_drops_duplicates():
    found = parsing.choices("INTERCONNECT", "infiniband, ethernet,infiniband", ask.Interconnect)
    assert found == ("infiniband", "ethernet")
    with pytest.raises(RequestError, match="^unknown INTERCONNECT 'ethernot'; did you mean ethernet[?]"):
        parsing.choices("INTERCONNECT", "nvlink,ethernot", ask.Interconnect)
    with pytest.raises(RequestError, match="^INTERCONNECT=ethernet, has an empty item; type for example"):
        parsing.choices("INTERCONNECT", "ethernet,", ask.Interconnect)


def test_links_are_rates_in_tcs_notation_or_none_for_an_unshaped_link():
    gigabit = Link(rate_mbit=1000, emulated=True)
    assert parsing.links("100mbit,none,1gbit", None) == (SLOW, None, gigabit)
    assert parsing.links("none", "0.2ms") == (Link(delay_ms=0.2, emulated=True),)
    assert parsing.links("10tbit", "1000s")


@pytest.mark.parametrize(
    ("rate", "delay", "says"),
    [
        *((rate, None, "write for example") for rate in ("fast", "1gbps", "0mbit")),
        (None, "soon", "write for example"),
        *((rate, None, "is more than tc can") for rate in (f"{LONG}gbit", "11tbit")),
        *((None, delay, "is more than tc can") for delay in (f"{LONG}s", "1001s")),
    ],
)
def test_invalid_links_and_those_beyond_tcs_limits_are_refused(rate, delay, says):
    with pytest.raises(RequestError, match=says):
        parsing.links(rate, delay)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"nodes": 2}, "NODES=2 needs hosts to run on; add HOSTS=hosts.yaml (or HOSTS=a:4,b:4), or"),
        ({"hosts": "h.yaml", "engine": "host"}, "ENGINE=host emulates no nodes and runs on no other machines"),
        ({"cluster": "slurm", "engine": "docker"}, "ENGINE=docker does not run in a job of Slurm; ask for"),
        ({"cluster": "slurm", "hosts": "slurm"}, "CLUSTER=slurm allocates nodes, and HOSTS=slurm names"),
        ({"slurm_flags": "--time=5"}, "SLURM_FLAGS=--time=5 apply only with CLUSTER=slurm"),
        ({"engine": "pyxis"}, "ENGINE=pyxis is a plugin of Slurm's srun"),
        ({"hosts": "slurm", "links": (None,)}, "LINK_RATE and LINK_DELAY slow links of emulated nodes only"),
        ({"links": (SLOW,), "nodes": 2, "engine": "venv"}, "ENGINE=venv emulates no nodes and runs on no other"),
        ({"hosts": "h.yaml", "links": (SLOW,)}, "LINK_RATE and LINK_DELAY slow links of emulated nodes only"),
        ({"links": (SLOW,)}, "LINK_RATE and LINK_DELAY slow the links between nodes, and there is only one"),
        ({"hosts": "h.yaml", "image": "i:1", "command": ("t",)}, "--image runs a command of yours on one host"),
        ({"framework": "caffe", "nodes": 2}, "FRAMEWORK=caffe runs on one node only: Caffe has no distributed"),
        ({"hca": "mlx5_0"}, "HCA=mlx5_0 needs several hosts: a job on one host uses no network"),
        ({"interconnect": ("infiniband",)}, "INTERCONNECT=infiniband needs several hosts: a job on one host uses no"),
        ({"iface": "eth0"}, "IFACE=eth0 needs several hosts"),
        ({"gpus": (1,), "workers": (2,)}, "GPUS and WORKERS exclude each other"),
        ({"gpus": (1,), "device": "cpu"}, "GPUS and DEVICE=cpu exclude each other"),
        ({"workers": (2,), "device": "gpu"}, "WORKERS counts CPU workers and DEVICE=gpu asks for GPUs"),
        ({"decode": "gpu", "gpus": (1,)}, "DECODE=gpu applies only to real data; add DATA=DIR"),
        ({"loader_workers": 4}, "LOADER_WORKERS applies only to real data; add DATA=DIR"),
        ({"decode": "gpu", "data": "/d", "device": "cpu"}, "DECODE=gpu needs a GPU that trains, and CPUs are"),
        ({"decode": "gpu", "data": "/d", "workers": (2,)}, "DECODE=gpu needs a GPU that trains"),
        ({"decode": "gpu", "data": "/d", "mode": "infer"}, "DECODE=gpu feeds a training, and MODE=infer does not"),
        ({"iterations": 5, "epochs": 1}, "ITERATIONS and EPOCHS both set the length of the run"),
        ({"profile_after": 300}, "PROFILE_AFTER configures a profiling pass, and none is requested"),
        ({"profile_region": "forward", "profile_timeout_s": 60}, "PROFILE_REGION and PROFILE_TIMEOUT configure a"),
        ({"profile": ("metrics",), "telemetry_hz": 0}, "PROFILE=metrics needs the node's sampler if ncu can't read"),
        ({"profile": ("memory",), "profile_region": "forward"}, "PROFILE_REGION=forward narrows PROFILE=kernels or"),
        (
            {"image": "i:1", "command": ("t",), "profile": ("kernels",), "profile_timeout_s": 60},
            "--profile and --profile-timeout apply to the suite's own programs",
        ),
        ({"mode": "infer", "profile": ("kernels",)}, "PROFILE is of training, and MODE=infer does not train"),
        ({"mode": "infer", "strategy": "ddp"}, "STRATEGY=ddp needs several devices, and MODE=infer uses one"),
        ({"fit": 3}, "FIT trains before inference, and MODE=train does not infer; ask for MODE=infer"),
        ({"mode": "converge", "iterations": 9}, "ITERATIONS can't be combined with MODE=converge, which trains by"),
        ({"mode": "infer", "concurrent": 2}, "CONCURRENT needs MODE=train, and MODE=infer is requested"),
        ({"concurrent": 1}, "CONCURRENT=1 is a single training; ask for CONCURRENT=2 or more"),
        (
            {"concurrent": 2, "gpu_memory": "all"},
            "GPU_MEMORY=all leaves no memory for a second training, and CONCURRENT",
        ),
        ({"concurrent": 2, "profile": ("kernels",)}, "PROFILE can't be combined with CONCURRENT"),
        ({"concurrent": 2, "hosts": "a:1,b:1"}, "HOSTS can't be combined with CONCURRENT"),
        ({"image": "i:1"}, "--image i:1 has no command; type `dlscale bench --image i:1 -- COMMAND ...` to"),
        ({**IN_IMAGE, "version": "2.6.0"}, "VERSION=2.6.0 selects an image of the suite, and --image i:1 another"),
        ({**IN_IMAGE, "dialect": "mxnet"}, "--dialect reads the log of a command of yours; give -- COMMAND ... too"),
        ({**IN_IMAGE, "engine": "venv"}, "--image i:1 runs only in a container, and ENGINE=venv is requested; ask for"),
        ({**IN_IMAGE, "command": ("x",)}, "--framework applies to the suite's own programs, and --image runs your"),
        ({"framework": "pytorch", "mounts": (OPT,)}, "MOUNT=/opt needs an image of yours; add"),
        ({**IN_IMAGE, "mounts": (OPT,), "hosts": "a:4,b:4"}, "MOUNT mounts folders of this machine, and HOSTS=a:4,b:4"),
    ],
)
def test_contradictory_and_ineffective_options_are_refused(fields, sentence):
    with pytest.raises(RequestError) as caught:
        refuse_contradictions(Request(**fields))
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_a_region_has_to_narrow_only_one_of_the_requested_kinds():
    refuse_contradictions(Request(profile=("memory", "kernels"), profile_region="forward"))
