"""Prevents a preset that is not what it says: with a technique that cannot work here, a reference with techniques, different techniques
under one key.

Also prevents: older records that seem to have no techniques, and so are compared with programs that are slower on purpose.
"""

import json
from pathlib import Path

import examples
import pytest
from planned import resources, workload_of

from runner.cluster.cluster import Cluster
from runner.core.contradictions import refuse_contradictions
from runner.core.errors import RequestError
from runner.core.node import Member
from runner.core.request import Request
from runner.core.trial import techniques_of_older_record
from runner.core.wire import NodeWires
from runner.plan.plan import plan
from runner.plan.techniques import apply_defaults
from runner.results.store import read_record

ALL = (
    *("channels-last", "fused-optimizer", "space-to-depth", "pooling-kernel"),
    *("compile", "kernel-search", "cuda-graphs"),
    *("local-statistics", "one-message", "bf16-gradients"),
)


def planned(**asked):
    return plan(Request(repeat=1, **asked), resources("pytorch", "gpu"))


def test_tuned_has_all_techniques_with_an_effect_at_each_scale():
    one, two = planned(gpus=(1, 2), preset="tuned")
    assert one.techniques == ALL[:7]
    assert two.techniques == ALL
    assert (one.precision, two.precision) == ("bf16", "bf16")
    assert one.key == two.key


def test_between_nodes_tuned_leaves_out_one_message_unless_requested():
    members = tuple(Member(examples.gpu_node(2, name=name), NodeWires()) for name in ("n1", "n2"))
    on = resources("pytorch", "gpu", cluster=Cluster("hosts", "n1 and n2", members))
    settled = apply_defaults(Request(preset="tuned", nodes=2), on)
    assert settled.techniques == tuple(name for name in ALL if name != "one-message")
    asked = Request(techniques=("one-message",), nodes=2)
    assert apply_defaults(asked, on) == asked


def test_data_parallel_and_its_baseline_leave_out_techniques_that_keep_one_network():
    one, two = planned(gpus=(1, 2), preset="tuned", strategy="dp")
    assert one.techniques == two.techniques == ALL[:4]
    with pytest.raises(RequestError, match="TECHNIQUES=compile keeps one network, but STRATEGY=dp copies"):
        planned(gpus=(2,), techniques=("compile",), strategy="dp")


TENSORFLOW = ("channels-last", "persistent-norm", "space-to-depth", "xla", "pooling-index", "step-loop")


@pytest.mark.parametrize(
    ("device", "asked", "left"),
    [
        ("gpu", {}, TENSORFLOW),
        ("gpu", {"precision": "tf32"}, tuple(name for name in TENSORFLOW if name != "persistent-norm")),
        ("gpu", {"xla": True}, tuple(name for name in TENSORFLOW if name != "xla")),
        ("cpu", {}, ("xla", "step-loop")),
        ("cpu", {"data": Path("images")}, ("xla",)),
        ("cpu", {"model": "wgan"}, ("xla",)),
    ],
)
def test_tuned_tensorflow_leaves_out_techniques_without_kernel_or_effect(device, asked, left):
    workload = workload_of(asked.get("model", "resnet18"))
    settled = apply_defaults(Request(preset="tuned", **asked), resources("tensorflow", device, workload=workload))
    assert settled.techniques == left


MXNET = ("channels-last", "amp", "aggregated-updates")


@pytest.mark.parametrize(
    ("device", "asked", "precision", "left"),
    [
        ("gpu", {}, "fp16", MXNET),
        ("gpu", {"precision": "fp32"}, "fp32", ("channels-last", "aggregated-updates")),
        ("gpu", {"kvstore": "dist_async"}, "fp32", ("channels-last",)),
        ("cpu", {}, "fp32", ("aggregated-updates",)),
        ("cpu", {"kvstore": "dist_async"}, "fp32", ()),
    ],
)
def test_tuned_mxnet_scales_losses_in_fp16_and_leaves_updates_to_asynchronous_servers(device, asked, precision, left):
    settled = apply_defaults(Request(preset="tuned", **asked), resources("mxnet", device))
    assert (settled.precision, settled.techniques) == (precision, left)


def test_the_reference_is_plain_and_a_requested_precision_is_kept():
    (trial,) = planned(gpus=(1,))
    assert (trial.techniques, trial.precision) == ((), "fp32")
    assert planned(gpus=(1,), preset="tuned", precision="tf32")[0].precision == "tf32"


def test_each_list_of_techniques_has_its_own_key():
    asked = [{}, {"techniques": ALL[:1]}, {"techniques": ALL[:2]}, {"preset": "tuned", "precision": "fp32"}]
    assert len({planned(gpus=(1,), **words)[0].key for words in asked}) == len(asked)


@pytest.mark.parametrize(
    ("where", "asked", "says"),
    [
        (("pytorch", "cpu"), {"techniques": ("compile",)}, "channels-last"),
        (("mxnet", "cpu"), {"techniques": ("compile",)}, "not offered by FRAMEWORK=mxnet"),
        (("mxnet", "cpu"), {"techniques": ("channels-last",)}, "ask for aggregated-updates"),
        (("mxnet", "cpu"), {"techniques": ("amp",)}, "ask for aggregated-updates"),
        (("mxnet", "gpu"), {"techniques": ("amp",)}, "amp needs PRECISION=fp16, fp32 asked"),
        (
            ("mxnet", "cpu"),
            {"techniques": ("aggregated-updates",), "kvstore": "dist_async"},
            "ask for KVSTORE=dist_sync",
        ),
        (("caffe", "cpu"), {"preset": "tuned"}, "not offered by FRAMEWORK=caffe"),
        (("pytorch", "gpu"), {"techniques": ("pooling-kernel",)}, "TECHNIQUES=channels-last,pooling-kernel"),
        (("pytorch", "gpu"), {"techniques": ("kernel-search",)}, "TECHNIQUES=compile,kernel-search"),
        (("pytorch", "gpu"), {"techniques": ("xla",)}, "ask for"),
        (("tensorflow", "cpu"), {"techniques": ("channels-last",)}, "not offered by FRAMEWORK=tensorflow"),
        (("tensorflow", "gpu"), {"techniques": ("persistent-norm",)}, "TECHNIQUES=channels-last,persistent-norm"),
        (("tensorflow", "gpu"), {"techniques": ("pooling-index",)}, "TECHNIQUES=xla,pooling-index"),
        (("tensorflow", "gpu"), {"techniques": TENSORFLOW[:2]}, "persistent-norm needs PRECISION=bf16 or fp16"),
        (("tensorflow", "cpu"), {"techniques": ("step-loop",), "data": Path("images")}, "leave one of them out"),
    ],
)
def test_techniques_that_are_not_offered_are_refused(where, asked, says):
    with pytest.raises(RequestError, match=says):
        plan(Request(repeat=1, **asked), resources(*where))


NO_GRAPH = [
    {"warmup": 11},
    {"precision": "fp16"},
    {"profile": ("memory",)},
    {"profile": ("kernels",), "profile_region": "forward"},
]


@pytest.mark.parametrize("asked", NO_GRAPH, ids=str)
def test_without_graphs_tuned_leaves_them_out_and_a_request_is_refused(asked):
    assert "cuda-graphs" not in planned(gpus=(1,), preset="tuned", **asked)[0].techniques
    with pytest.raises(RequestError, match="TECHNIQUES=cuda-graphs does not go with"):
        planned(gpus=(1,), techniques=("cuda-graphs",), **asked)


def test_a_workload_offers_its_own_techniques():
    on = resources("pytorch", "gpu", workload=workload_of("wgan"))
    assert plan(Request(model="wgan", repeat=1, gpus=(1,), preset="tuned"), on)[0].techniques == ("channels-last",)


def test_inference_has_its_own_techniques_and_records_graphs_in_any_precision():
    (tuned,) = planned(gpus=(1,), preset="tuned", mode="infer", precision="fp16", warmup=2)
    assert tuned.techniques == ("folded-norm", "compile", "kernel-search", "cuda-graphs")
    with pytest.raises(RequestError, match="TECHNIQUES=fused-optimizer of imagenet_cnn is not offered .* MODE=infer"):
        planned(gpus=(1,), techniques=("fused-optimizer",), mode="infer")
    with pytest.raises(RequestError, match="TECHNIQUES=folded-norm of imagenet_cnn is not offered"):
        planned(gpus=(1,), techniques=("folded-norm",))


def test_contradictory_options_are_refused():
    compiled = {"techniques": ("compile",)}
    for asked in ({"preset": "tuned", **compiled}, {"xla": True, "techniques": ("xla",)}):
        with pytest.raises(RequestError):
            refuse_contradictions(Request(**asked))


GPU = {"framework": "pytorch", "device": "gpu", "precision": "bf16"}


@pytest.mark.parametrize(
    ("trial", "had"),
    [
        ({}, ("channels-last", "fused-optimizer")),
        ({"precision": "fp32"}, ("fused-optimizer",)),
        ({"device": "cpu"}, ("fused-optimizer",)),
        ({"workload": "wgan"}, ("channels-last",)),
        ({"mode": "infer"}, ()),
        ({"framework": "mxnet", "precision": "fp16"}, ()),
    ],
)
def test_techniques_of_older_programs_are_known(trial, had):
    assert techniques_of_older_record(GPU | trial) == had


def test_an_older_record_gets_its_programs_techniques(tmp_path):
    source = next(
        path
        for path in sorted((examples.ROOT / "results/h200").rglob("record.json"))
        if '"precision": "bf16"' in path.read_text()
    )
    fields = json.loads(source.read_text())
    fields["trial"].pop("techniques", None)
    (tmp_path / "record.json").write_text(json.dumps(fields))
    assert read_record(tmp_path).trial.techniques in {("channels-last", "fused-optimizer"), ("channels-last",)}
