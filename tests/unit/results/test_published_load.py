"""The files of results/published.

Prevents: a copying error that passes for a figure of the source; a unit that does not fit its metric; an unknown or duplicate id; a
contradiction in a source that goes unnoticed, or a declared one that no longer exists; a source that can't be looked up; a schema that
the files do not match.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest
import yaml

from runner.core.errors import RequestError
from runner.results.published.derive import contradictions
from runner.results.published.load import DIRECTORY, load, load_all, published_schema

SCHEMA = jsonschema.Draft202012Validator(json.loads(published_schema()))
SOURCES = {each.id: each for each in load_all()}

WHOLE = """\
id: whole
source: {title: Whole, authors: [Somebody], date: "2020", kind: paper}
hardware:
  gpus:
  - {id: v100, model: V100}
runs:
- {models: [resnet50], gpu: [v100]}
tables:
- metric: throughput
  unit: images/s
  where: Table 1
  conditions: {model: resnet50, gpu: v100}
  rows:
  - {id: one, gpus: 1, value: 219}
  - {id: eight, gpus: 8, value: 1734}
- metric: speedup
  unit: x
  where: Table 2
  rows:
  - {id: printed, model: resnet50, gpu: v100, gpus: 8, versus: {gpus: 1}, value: 7.92}
findings:
- id: rises
  says: more GPUs are faster
  basis: stated
  where: sec. 3
  predicate: {type: monotonic, metric: throughput, over: gpus, direction: increasing, for_all: {gpu: v100}}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "whole.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(tmp_path: Path, old: str, new: str) -> str:
    """Return the error for the file above after one replacement, from its line number on."""
    assert WHOLE.count(old) == 1, old
    with pytest.raises(RequestError) as error:
        load(written(tmp_path, WHOLE.replace(old, new)))
    return str(error.value).removeprefix(f"{tmp_path / 'whole.yaml'}:")


def test_a_complete_file_is_read(tmp_path):
    published = load(written(tmp_path, WHOLE))
    assert [(figure.id, figure.value, figure.where) for figure in published.figures] == [
        ("one", Decimal(219), "Table 1"),
        ("eight", Decimal(1734), "Table 1"),
        ("printed", Decimal("7.92"), "Table 2"),
    ]
    assert published.figures[1].conditions.stated == {"model": "resnet50", "gpu": "v100", "gpus": 8}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("unit: images/s", "unit: '%'", "10: tables[0].unit is '%': throughput is given in images/s, sequences/s"),
        ("unit: images/s", "unit: img/s", "10: tables[0].unit is 'img/s'"),
        ("metric: speedup", "metric: speed-up", "16: tables[1].metric is 'speed-up': no such metric; known: accuracy"),
        ("gpu: v100}\n  rows", "gpu: p100}\n  rows", "14: one names the gpu 'p100', which is not in `hardware` of this file; known: v100"),
        ("for_all: {gpu: v100}", "for_all: {gpu: p100}", "22: rises names the gpu 'p100'"),
        ("for_all: {gpu: v100}", "for_all: {model: vgg16}", "22: rises names the model 'vgg16', which is not in figures and"),
        ("for_all: {gpu: v100}", "for_all: {case: both at once}", "22: rises names the case 'both at once'"),
        ("[resnet50], gpu: [v100]", "[resnet50], gpu: [v10]", "7: v10 names the gpu 'v10'"),
        ("id: eight", "id: one", "14: another figure has the id 'one' as well; rename one of them"),
        ("value: 7.92", "value: 7.29", "20: printed is 7.29 x, but eight and one make it 7.91781 (ratio); correct the copy, or"),
        ("gpus: 8, value: 1734", "gpu: v100, gpus: 8, value: 1734", "13: tables[0].rows is"),
        ("  where: Table 2\n", "", "18: tables[1].rows is"),
        ('date: "2020"', "date: May 2020", "2: source.date is 'May 2020': a date begins with its year"),
        ("id: whole", "id: other", "1: id is 'other'; name the file after it"),
        ("over: gpus", "over: gpu_count", "26: findings[0].predicate.over is 'gpu_count': input should be"),
        (
            "type: monotonic, metric: throughput, over: gpus, direction: increasing",
            "type: steady, metric: throughput, window: 5",
            "26: findings[0].predicate",
        ),
        ("basis: stated", "basis: guessed", "24: findings[0].basis is 'guessed'"),
    ],
)  # fmt: skip
def test_an_error_in_a_file_is_refused_with_its_line(tmp_path, old, new, said):
    assert refusal(tmp_path, old, new).startswith(said)


def test_a_declared_contradiction_has_to_exist(tmp_path):
    declared = "contradictions:\n- {check: ratio, figures: [printed], why: misprint}\n"
    assert load(written(tmp_path, WHOLE.replace("7.92", "7.29") + declared)).contradictions[0].why == "misprint"
    with pytest.raises(RequestError, match=r"whole.yaml:20: printed contradicts nothing here \(ratio\); remove it"):
        load(written(tmp_path, WHOLE + declared))
    with pytest.raises(RequestError, match=r"whole.yaml:28: no figure has the id 'nothing'"):
        load(written(tmp_path, WHOLE + declared.replace("[printed]", "[nothing]")))


def test_the_files_hold_what_was_imported():
    assert len(SOURCES) == 33
    assert sum(len(each.figures) for each in SOURCES.values()) == 1457
    assert sum(len(each.findings) for each in SOURCES.values()) == 112


@pytest.mark.parametrize(
    ("source", "figure", "value", "unit"),
    [
        ("dell-emc-2016-p100", "mxnet.googlenet.16.ips", "2955", "images/s"),
        ("dell-emc-2016-p100", "mxnet.inceptionbn.speedup16", "14.7", "x"),
        ("uwmadison-comparing-ml-hardware", "p100_16.util_avg", "86.14081547", "%"),
        ("cern-openlab-2018-wgan", "k40c.fp32_util", "85.7", "%"),
        ("nyu-dl-models-hpc", "broadcast.small_batch", "45", "%"),
        ("tbd-suite-analysis", "titanxp.memory_bandwidth", "547.6", "GB/s"),
        ("tensorflow-benchmarks-2017", "tf.dgx1.resnet50.synthetic.b64.g8", "1734", "images/s"),
        ("mxnet-image-classification-p2", "mxnetp2.alexnet.g1", "457.07", "images/s"),
        ("nvidia-dle-mxnet-rn50", "dlemx.a100.amp_over_tf32.g1", "2.18", "x"),
    ],
)
def test_figures_are_those_of_the_documents(source, figure, value, unit):
    found = next(each for each in SOURCES[source].figures if each.id == figure)
    assert (str(found.value), found.unit) == (value, unit)


def test_the_contradictions_of_the_sources():
    """Shows what a change of the checks, or of a file, finds or loses; each was verified in the document."""
    counted = {id_: Counter(found.check for found in contradictions(each)) for id_, each in SOURCES.items()}
    assert {id_: dict(counts) for id_, counts in counted.items() if counts} == {
        "convnet-benchmarks": {"sum": 1},  # 885 ms, forward and backward 883
        "nvidia-dle-mxnet-rn50": {"ratio": 4, "cut": 8},  # a speedup of 2.18 that is 3.23
        "nvidia-dle-pytorch-convnets": {"cut": 4},
        "oneflow-dlperf-v1": {"twice": 1},  # 11233.92 in the README, 11331.93 in the report
        "uwmadison-comparing-ml-hardware": {"twice": 1},  # more than 5 TFLOP/s in the text, 4.7 in the table
    }


@pytest.mark.parametrize("id_", SOURCES)
def test_a_reader_can_look_a_figure_up(id_):
    published = SOURCES[id_]
    assert all(figure.where for figure in published.figures)
    source = published.source
    assert source.url or source.repository or source.arxiv or source.organisation or len(source.authors) > 1
    assert source.repository is None or (source.path and re.fullmatch(r"[0-9a-f]{40}", source.commit or ""))


@pytest.mark.parametrize("id_", SOURCES)
def test_a_file_fits_the_exported_schema(id_):
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data = yaml.load((DIRECTORY / f"{id_}.yaml").read_text(encoding="utf-8"), Loader=loader)
    SCHEMA.validate(data)
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate({**data, "surprise": 1})


def test_models_of_the_suite_have_the_suites_names():
    """`--model resnet50` must find the figures that a source lists under ResNet-50, resnet_50 or RN50."""
    models = {figure.conditions.model for each in SOURCES.values() for figure in each.figures} - {None}
    resnets = {f"resnet{layers}" for layers in (50, 101, 152)}
    assert {"alexnet", "googlenet", "inception-bn", "inception-v3", "vgg16", *resnets} <= models
    assert not [name for name in models if re.search(r"resnet[-_]\d|vgg[-_]\d|[A-Z_]", name)]
