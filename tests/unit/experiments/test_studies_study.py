"""The files of workloads/studies.

Prevents: a study that names a source, network, model, image or case that does not exist, which only shows after an hour; a misspelt key that is
silently ignored; a row of a source that no study runs.
"""

import re

import pytest

from runner.core.errors import RequestError
from runner.experiments.studies.study import load_study, study_names

WHOLE = """\
id: whole
source: dell-emc-2016-p100
title: Whole
nearest: {mxnet: [1.9.1-cu112]}
networks:
  eth: {interconnect: ethernet, rate: 10gbit}
same: {gpus: {p100-pcie: [Tesla P100-PCIE-16GB]}, why: made up}
tolerances:
- {metrics: [throughput], share: 0.1, why: made up}
blocks:
- id: one
  says: one block
  where: {framework: mxnet, network: ib}
  models: {googlenet: googlenet}
  points: [{gpus: 1}, {gpus: 4, nodes: 2}]
  batches: [64]
  networks: [eth]
  iterations: 10
  small: {iterations: 2}
"""


PROGRAM = '{file: train.py, url: x, models: {googlenet: g}, %s, arguments: ["--batch=%s"]}'


def loaded(tmp_path, text):
    (tmp_path / "whole.yaml").write_text(text, encoding="utf-8")
    return load_study("whole", tmp_path)


def test_a_file_is_loaded_with_its_source(tmp_path):
    study, source = loaded(tmp_path, WHOLE)
    assert (study.id, source.id, study.repeat) == ("whole", "dell-emc-2016-p100", 3)
    assert study.tolerance("throughput").share == 0.1
    assert study.tolerance("accuracy") is None


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("source: dell-emc-2016-p100", "source: nobody", 2, "no published source 'nobody'"),
        ("  eth: {", "  myrinet: {", 6, "the source has no network 'myrinet'; known: eth, ib"),
        ("metrics: [throughput]", "metrics: [speed]", 9, "the suite has no metric 'speed'"),
        ("[1.9.1-cu112]", "[1.8.0]", 4, "mxnet has no version '1.8.0'; known: "),
        ("googlenet: googlenet", "googlenet: googlenot", 14, "the suite has no model 'googlenot'"),
        (
            "  iterations: 10",
            "  iterations: 10\n  concurrent: 2\n  cases: {at once: together}",
            20,
            "the source has no case 'at once'",
        ),
        ("{googlenet: googlenet}", "{wgan: wgan}", 11, "block one: model wgan has no framework 'mxnet'"),
        ("says: one block", "say: one block", 12, "unknown key 'say' in blocks[0]; did you mean 'says'?"),
        ("  iterations: 10", "  iterations: 10\n  epochs: 3", 11, "iterations, epochs and samples exclude each other"),
        ("nodes: 2", "nodes: 3", 11, "must be divisible by its nodes"),
        ("  batches: [64]\n", "", 11, "give `batches`, or a batch for every point"),
        ("  networks: [eth]\n", "", 11, "runs on several nodes need `networks`"),
        ("  iterations: 10", "  iterations: 10\n  passes_only: true", 11, "leaves nothing to run"),
        ("  iterations: 10", "  iterations: 10\n  concurrent: 2", 11, "give both or none"),
        (
            "  iterations: 10",
            "  iterations: 10\n  differs: [{field: loss, published: a, here: b, models: [vgg16]}]",
            11,
            "loss differs for 'vgg16', which is not in `models`",
        ),
        (
            "  iterations: 10",
            "  iterations: 10\n  differs: [{field: loss, published: a, here: a}]",
            19,
            "`published` and `here` are equal",
        ),
        (
            "networks:\n",
            "differs: [{field: loss, published: a, here: b}, {field: loss, published: a, here: c}]\nnetworks:\n",
            1,
            "one: `differs` has loss more than once for googlenet",
        ),
        (
            "networks:\n",
            "differs: [{field: loss, published: a, here: b, models: [vgg16]}]\nnetworks:\n",
            1,
            "loss differs for 'vgg16', which no block has",
        ),
        (
            "  iterations: 10",
            f"  iterations: 10\n  program: {PROGRAM % ('dialect: mxnet', '{bacth}')}",
            19,
            "train.py: unknown placeholder {bacth} in --batch={bacth}; known: batch, data, gpus",
        ),
        (
            "  iterations: 10",
            f"  iterations: 10\n  program: {PROGRAM % ('on_gpus: []', '{batch}')}",
            19,
            "train.py: give either `dialect` or `pattern`, to read its log",
        ),
        ("small: {iterations: 2}", "small: {models: {vgg16: lenet}}", 19, "block one has no model 'vgg16'"),
        ("id: whole", "id: hole", 1, "id is 'hole'"),
    ],
)
def test_mistakes_are_reported_with_their_line(tmp_path, old, new, line, told):
    assert old in WHOLE
    with pytest.raises(RequestError) as raised:
        loaded(tmp_path, WHOLE.replace(old, new, 1))
    assert told in str(raised.value)
    assert re.search(rf"whole\.yaml:{line}: ", str(raised.value)), raised.value


def test_a_mode_without_a_program_of_the_framework_is_refused(tmp_path):
    text = WHOLE.replace("framework: mxnet", "framework: caffe").replace("iterations: 10", "mode: converge")
    with pytest.raises(
        RequestError, match=r"whole.yaml:11: block one: MODE=converge of googlenet has no framework 'caffe'"
    ):
        loaded(tmp_path, text)


def test_two_blocks_of_one_name_are_refused(tmp_path):
    block = WHOLE[WHOLE.index("- id: one") :]
    with pytest.raises(RequestError, match="two blocks have the id 'one'"):
        loaded(tmp_path, WHOLE + block)


def test_an_unknown_study_is_refused_with_the_known_ones():
    with pytest.raises(RequestError, match=r"unknown STUDY 'dell-p10'; did you mean dell-p100\? Known: dell-p100, "):
        load_study("dell-p10")


def test_the_log_of_tensorflows_trainer_of_2016_is_read():
    """As inception_train.py prints it every ten steps."""
    study, _ = load_study("dell-p100")
    (line,) = study.block("tensorflow").program.pattern.lines
    said = "2016-10-20 10:11:12.131415: step 20, loss = 13.02 (64.1 examples/sec; 0.998 sec/batch)"
    assert re.search(line, said).groupdict() == {"step": "20", "loss": "13.02", "rate": "64.1"}


def test_the_five_studies_exist():
    assert study_names() == ("cern-wgan", "dell-p100", "nyu-profiling", "tbd-analysis", "uw-hardware")


@pytest.mark.parametrize("name", study_names())
def test_every_framework_and_model_of_the_source_is_run(name):
    study, source = load_study(name)
    assert (study.id, study.source) == (name, source.id)
    run = {(block.where.framework, model) for block in study.blocks for model in block.models}
    listed = {(runs.framework, model) for runs in source.runs for model in runs.models if runs.framework}
    assert listed <= run
