"""Prevents: a typo in workload.yaml that silently gives a default, a model that a framework can't build, an image smaller than a model
accepts, a precision that the program refuses only after the containers have started, and a catalog that differs from the programs."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from runner.core.errors import RequestError
from runner.core.strategies import STRATEGIES
from runner.core.workload import choose_workload, load_workloads, shown_settings

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ROOT / "workloads/imagenet_cnn"


@pytest.fixture(scope="module")
def cnn():
    (workload,) = (w for w in load_workloads(ROOT) if w.name == "imagenet_cnn")
    return workload


@pytest.fixture
def changed(tmp_path):
    """Load the real workload.yaml after one replacement in its text."""

    def change(old, new):
        folder = tmp_path / "workloads/imagenet_cnn"
        folder.mkdir(parents=True)
        text = (PROGRAMS / "workload.yaml").read_text()
        assert old in text
        (folder / "workload.yaml").write_text(text.replace(old, new, 1))
        for program in PROGRAMS.glob("*.py"):
            (folder / program.name).touch()
        return load_workloads.__wrapped__(tmp_path)  # uncached: another replacement may have been read from this path

    return change


EXCEPTIONS_OF_PROGRAM = """
import json, train_pytorch
from with_pytorch.training import Training
classes = [one for one in vars(train_pytorch).values() if isinstance(one, type) and issubclass(one, Training)]
(program,) = [one for one in classes if one is not Training]
print(json.dumps([sorted(program.lacks), program.cuts]))
"""


@pytest.mark.parametrize(
    "workload",
    [w for w in load_workloads(ROOT) if "pytorch" in w.frameworks("train")],
    ids=lambda workload: workload.name,
)
def test_the_catalog_offers_the_strategies_that_the_pytorch_program_accepts(workload):
    folder = ROOT / "workloads" / workload.name
    run = subprocess.run(
        [sys.executable, "-c", EXCEPTIONS_OF_PROGRAM],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{folder}:{folder.parent}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lacks, cuts = json.loads(run.stdout)
    of_pytorch = {name: one for name, one in STRATEGIES.items() if "pytorch" in one.frameworks}
    accepted = {name for name, one in of_pytorch.items() if cuts or not one.cuts} - set(lacks)
    assert {name for name in of_pytorch if workload.offers(name, "pytorch")} == accepted


def test_the_catalog_lists_what_the_programs_build(cnn):
    built = runpy.run_path(str(PROGRAMS / "networks.py"))["MODELS"]
    assert sorted(model.name for model in cnn.models) == sorted(built)


def test_defaults_are_small_on_a_cpu_and_the_published_size_on_a_gpu(cnn):
    inception = cnn.find_model("inception-v3", framework="mxnet")
    assert cnn.image_size(inception, device="gpu") == 299
    assert cnn.image_size(inception, device="cpu") == 32
    assert cnn.image_size(inception, device="cpu", requested=256) == 256


def test_resnets_of_the_frameworks_differ_by_the_biases_of_the_zoo_only(cnn):
    # Each bottleneck has two 1x1 convolutions with biases: width and 4 x width, times the blocks of each stage.
    deep = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}
    deep |= {f"{name}-imagenet-stem": deep[name] for name in ("resnet50", "resnet152")}
    for name, blocks in deep.items():
        counts = cnn.find_model(name, framework="mxnet").parameters
        biases = sum(depth * 5 * 64 * 2**stage for stage, depth in enumerate(blocks))
        assert counts["mxnet"] - counts["pytorch"] == biases
    others = [model.parameters for model in cnn.models if model.name not in deep]
    assert all(counts["mxnet"] == counts["pytorch"] for counts in others if "mxnet" in counts)


def test_an_unavailable_model_or_size_is_refused(cnn, changed):
    vgg = cnn.find_model("vgg16", framework="mxnet")
    with pytest.raises(RequestError, match="IMAGE_SIZE=31 is too small for MODEL=vgg16, whose layers need 32 pixels"):
        cnn.image_size(vgg, device="cpu", requested=31)
    with pytest.raises(RequestError, match="unknown MODEL 'resnet51'; did you mean resnet50[?] Known: resnet50, "):
        cnn.find_model("resnet51", framework="mxnet")
    dense = cnn.models[0].model_copy(update={"image_size": None, "min_image_size": None})
    assert cnn.image_size(dense, device="cpu") is None
    with pytest.raises(RequestError, match="^IMAGE_SIZE=64 given, but MODEL=alexnet takes no images; leave it out$"):
        cnn.image_size(dense, device="cpu", requested=64)
    (workload,) = changed("mxnet: 61100840, pytorch: 61100840", "pytorch: 61100840")
    with pytest.raises(RequestError, match=r"MODEL=alexnet is not offered by FRAMEWORK=mxnet \(only by caffe, pytorch"):
        workload.find_model("alexnet", framework="mxnet")


@pytest.mark.parametrize(
    ("framework", "device", "precision", "offered"),
    [
        ("mxnet", "cpu", "fp32", True),
        ("mxnet", "cpu", "bf16", True),
        ("mxnet", "gpu", "bf16", False),
        ("mxnet", "gpu", "fp16", True),
        ("pytorch", "cpu", "bf16", True),
        ("pytorch", "cpu", "tf32", False),
        ("pytorch", "gpu", "tf32", True),
        ("caffe", "cpu", "fp16", False),
        ("caffe", "gpu", "fp16", True),
        ("theano", "gpu", "fp32", False),
    ],
)
def test_precisions(cnn, framework, device, precision, offered):
    if offered:
        cnn.check_precision(precision, framework=framework, device=device)
        return
    with pytest.raises(RequestError, match=f"PRECISION={precision} is not offered by FRAMEWORK={framework}"):
        cnn.check_precision(precision, framework=framework, device=device)


def test_the_program_is_named_from_the_workloads_folder(cnn):
    assert cnn.program("pytorch") == "imagenet_cnn/train_pytorch.py"
    with pytest.raises(RequestError, match="no program for FRAMEWORK=cafe"):
        cnn.program("cafe")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("momentum:", "momentun:", r"workload\.yaml:\d+: unknown key 'momentun'"),
        ("momentum: 0.9", "momentum: fast", r"workload\.yaml:\d+: momentum is 'fast'"),
        ("warmup: 4}", "warmup: 0}", r"workload\.yaml:\d+: defaults\.cpu\.warmup is 0"),
        ("model: resnet18,", "model: resnet19,", "default model of cpu is 'resnet19'"),
        ("name: vgg16", "name: vgg19", "listed twice"),
        ("parameters: {caffe: 61100840", "parameters: {theano: 61100840", "'theano' has no program"),
        ("mxnet: train_mxnet.py", "mxnet: train_mx.py", r"programs\.train\.mxnet is 'train_mx\.py', which is not in"),
        ("name: imagenet_cnn", "name: imagenet", "its folder 'imagenet_cnn'; make them equal"),
        ("\nprofiles:\n", "\nprofiles:\n  mxnetto: [kernels]\n", "'mxnetto' has no program"),
        ("unit: images", "lacks: {mxnetto: [ps]}\nunit: images", "'mxnetto' has no program"),
        ("\nregions:\n", "\nregions:\n  mxnetto: [input]\n", "'mxnetto' has no program"),
        ("caffe: [kernels, memory]", "caffe: [kernel, memory]", "profiles"),
        ("unit: images", "batches: n-critic\nunit: images", "the setting 'n-critic', which is missing in settings"),
        ("unit: images", "fixed: {mxnet: [longest]}\nunit: images", "fixed names longest, missing in settings"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(changed, old, new, sentence):
    with pytest.raises(RequestError, match=sentence):
        changed(old, new)


@pytest.mark.parametrize(
    ("kinds", "region", "framework", "sentence"),
    [
        (("kernels", "metrics", "region"), None, "caffe", "PROFILE=metrics,region is not offered by FRAMEWORK=caffe;"),
        (("kernels",), "backward", "tensorflow", "PROFILE_REGION=backward is not offered by FRAMEWORK=tensorflow;"),
        (("kernels",), "input", "caffe", "PROFILE_REGION=input is not offered by FRAMEWORK=caffe; leave it out$"),
    ],
)
def test_an_unsupported_pass_is_refused_with_the_supported_ones(cnn, kinds, region, framework, sentence):
    cnn.check_profiles(("kernels", "memory"), framework="caffe")
    cnn.check_profiles(("kernels",), region="backward", framework="mxnet")
    with pytest.raises(RequestError, match=f"^{sentence}"):
        cnn.check_profiles(kinds, region=region, framework=framework)


def test_a_model_selects_its_workload_and_an_unknown_one_gets_the_nearest_of_all(cnn):
    workloads = load_workloads(ROOT)
    assert choose_workload(workloads, None) == cnn
    assert choose_workload(workloads, "vgg19") == cnn
    with pytest.raises(RequestError, match="^unknown MODEL 'resnet51'; did you mean resnet50[?] Known: resnet50, "):
        choose_workload(workloads, "resnet51")


def test_two_workloads_with_a_model_of_one_name_are_refused(changed, tmp_path):
    """Otherwise MODEL would select the workload that comes first in the alphabet."""
    changed("name: imagenet_cnn", "name: imagenet_cnn")
    twin = tmp_path / "workloads/zoo"
    (tmp_path / "workloads/imagenet_cnn").rename(twin)
    (twin / "workload.yaml").write_text((twin / "workload.yaml").read_text().replace("name: imagenet_cnn", "name: zoo"))
    with pytest.raises(
        RequestError, match="^workloads imagenet_cnn and zoo both have a model 'alexnet'; rename one of them$"
    ):
        changed("name: imagenet_cnn", "name: imagenet_cnn")


def test_an_unsupported_mode_is_refused_with_the_supported_ones(cnn):
    without = cnn.model_copy(update={"programs": {"train": cnn.programs["train"]}, "converge": ("pytorch",)})
    assert without.frameworks("converge") == ("pytorch",)
    assert without.program("pytorch", "converge") == "imagenet_cnn/train_pytorch.py"
    with pytest.raises(RequestError, match="^MODE=infer is not offered by imagenet_cnn; ask for train or converge$"):
        without.program("pytorch", "infer")
    with pytest.raises(
        RequestError, match="^MODE=converge of imagenet_cnn has no program for FRAMEWORK=caffe; known: pytorch$"
    ):
        without.program("caffe", "converge")


def test_a_framework_without_a_program_is_refused_with_those_that_offer_the_model():
    """`MODEL=gpt-tiny FRAMEWORK=mxnet` named TensorFlow, which was refused next."""
    language = next(one for one in load_workloads(ROOT) if one.name == "language_model")
    assert language.program("pytorch", model="gpt-tiny")
    with pytest.raises(RequestError, match="^MODEL=gpt-tiny .* FRAMEWORK=mxnet; ask for FRAMEWORK=pytorch$"):
        language.program("mxnet", model="gpt-tiny")


def test_an_inference_only_precision_is_refused_for_training(cnn):
    able = cnn.model_copy(update={"inference_precisions": {"mxnet": {"cpu": ("fp32", "int8")}}})
    able.check_precision("int8", framework="mxnet", device="cpu", mode="infer")
    with pytest.raises(
        RequestError,
        match="^PRECISION=int8 is not offered by FRAMEWORK=mxnet on DEVICE=cpu; ask for fp32 or bf16, or for MODE=infer$",
    ):
        able.check_precision("int8", framework="mxnet", device="cpu")
    with pytest.raises(RequestError, match="on DEVICE=gpu with MODE=infer; ask for fp32 or fp16$"):
        able.check_precision("int8", framework="mxnet", device="gpu", mode="infer")


def test_an_iteration_reads_as_many_batches_as_a_setting_says(cnn):
    (wgan,) = (w for w in load_workloads(ROOT) if w.name == "wgan")
    assert wgan.batches_an_iteration(wgan.settings) == 5
    assert cnn.batches_an_iteration(cnn.settings) == 1


@pytest.fixture(scope="module")
def language():
    return choose_workload(load_workloads(ROOT), "gpt2-124m")


def test_requested_settings_replace_the_models_own(language):
    llama = language.find_model("llama-8b", framework="pytorch")
    asked = (("sequence-length", "4096"), ("checkpointing", "block"))
    settings = language.settings_of(llama, asked, mode="train")
    assert (settings["sequence-length"], settings["checkpointing"], settings["weights"]) == (4096, "block", "bf16")
    assert language.settings_of(llama, (), mode="train")["sequence-length"] == 2048
    assert language.settings["sequence-length"] == 1024


def test_inference_has_settings_of_its_own(language):
    tiny = language.find_model("llama-tiny", framework="pytorch")
    assert language.settings_of(tiny, (), mode="infer") == {"sequence-length": 128, "new-tokens": 32}
    assert "new-tokens" not in language.settings_of(tiny, (), mode="train")
    big = language.find_model("llama-8b", framework="pytorch")
    assert language.settings_of(big, (), mode="infer") == {"sequence-length": 2048, "new-tokens": 128}
    for asked in (("new-tokens", "128"), ("sequence-length", "32")):
        with pytest.raises(RequestError, match="leaves no room for a prompt in sequence-length="):
            language.settings_of(tiny, (asked,), mode="infer")
    bert = language.find_model("bert-base", framework="pytorch")
    assert language.settings_of(bert, (), mode="infer") == {"sequence-length": 512, "new-tokens": 0}
    with pytest.raises(RequestError, match="SETTINGS=new-tokens is not a setting of MODEL=bert-base; leave it out"):
        language.settings_of(bert, (("new-tokens", "8"),), mode="infer")
    with pytest.raises(RequestError, match="SETTINGS=weights is not a setting of MODEL=llama-tiny"):
        language.settings_of(tiny, (("weights", "bf16"),), mode="infer")


@pytest.mark.parametrize(
    ("name", "word", "sentence"),
    [
        ("seqence-length", "64", "=seqence-length is not a setting of MODEL=gpt2-124m; it has sequence-length, "),
        ("sequence-length", "2048", "give a number above 0, 1024 at most"),
        ("gradient-accumulation", "0", "give a number above 0"),
        ("gradient-accumulation", "two", "give a number above 0"),
        ("checkpointing", "layer", "ask for checkpointing=none or block"),
    ],
)
def test_a_setting_that_a_program_would_refuse_is_refused_before_it_starts(language, name, word, sentence):
    with pytest.raises(RequestError, match=sentence):
        language.settings_of(language.find_model("gpt2-124m", framework="pytorch"), ((name, word),), mode="train")


def test_sequence_lengths_and_unusual_settings_are_shown_to_the_reader():
    usual = {"sequence-length": 2048, "gradient-accumulation": 1, "checkpointing": "none", "weights": "fp32"}
    assert shown_settings(usual, model="llama-1b", mode="train") == {"sequence-length": 2048}
    other = usual | {"checkpointing": "block", "weights": "bf16"}
    told = {"sequence-length": 2048, "checkpointing": "block", "weights": "bf16"}
    assert shown_settings(other, model="llama-1b", mode="train") == told
    del told["weights"]
    assert shown_settings(other, model="llama-8b", mode="train") == told
    assert shown_settings({"depth": 3}, model="of another suite", mode="train") == {"depth": 3}
