"""Differences between a run and its source's.

Prevents: planned instead of actual software, device, setting or wire in a table; a difference from the source that is not named, or is declared
although records contain it; a decision of the study passed off as the source's.
"""

from __future__ import annotations

import examples
import pytest
import studied
from made_up_source import source
from records import provenance, record
from swept import H200

from runner.core.record import ImageUsed
from runner.core.request import Request
from runner.experiments.studies.differences import from_records, merged
from runner.experiments.studies.model import Altered, Cell, CellRun, Pick
from runner.experiments.studies.reproduction import judge
from runner.experiments.studies.study import Difference, Study, load_study, study_names
from runner.experiments.studies.tables import differences as table
from runner.results.published import load as published
from runner.results.published.model import Software

SOURCE = source(wires=[{"id": "bus", "name": "PCIe", "gbyte_s": 6}, {"id": "ib", "name": "InfiniBand", "gbit_s": 100}])
LIBRARIES = {"CUDA": "8.0", "cuDNN": "7.1.3", "nvprof": None, "NCCL": "2.28.9"}
SOURCE = SOURCE.model_copy(
    update={"software": tuple(Software(name=name, version=version) for name, version in LIBRARIES.items())}
)
STUDY = Study.model_validate(
    {
        "id": "made-up-study",
        "source": "made-up",
        "title": "Made up",
        "networks": {"ib": {"interconnect": "infiniband"}},
        "same": {"gpus": {"v100": ["NVIDIA H200"]}, "why": "for a test"},
        "tolerances": [],
        "differs": [
            {"field": "batch", "published": "not stated", "here": "32"},
            {"field": "precision", "published": "not stated", "here": "fp32"},
        ],
        "blocks": [
            {
                "id": "block",
                "says": "made up",
                "where": {"framework": "tensorflow", "version": "1.3.0"},
                "models": {"resnet50": "resnet50", "vgg16": "vgg16"},
                "batches": [32],
                "image_size": 32,
                "iterations": 400,
                "differs": [
                    {"field": "optimizer", "published": "Adam", "here": "SGD", "models": ["resnet50"]},
                    {"field": "iterations", "published": "not stated", "here": "400 iterations"},
                    {"field": "updates", "published": "asynchronous", "here": "synchronous", "stands_in": True},
                ],
            }
        ],
    }
)
PLANNED = (
    Altered(field="framework", published="tensorflow", here="pytorch"),
    Altered(field="version", published="1.3.0", here="2.15.0"),
)


def run(*, run_id="run-1", status="valid", said=None, gpus=(), transport=None, **changes):
    """A run whose program reports `said`."""
    made = record(run_id=run_id, trial=examples.trial(**changes), status=status)
    reported = {"framework": "pytorch", "framework_version": "2.11.0+cu130", "gpus": gpus} | (said or {})
    update = {"provenance": provenance().model_copy(update=reported)}
    update["transport"] = made.transport.model_copy(update=transport or {})
    return made.model_copy(update=update)


def differs(*runs, model="resnet50", altered=PLANNED, study=STUDY, **where):
    """The cell completed from its runs, and the differences by field."""
    stated = {"framework": "tensorflow", "version": "1.3.0", "model": model, "gpus": 1, "nodes": 1, **where}
    cell = Cell(id="c", block="block", where=stated, altered=altered)
    ran = from_records(CellRun(cell=cell, runs=runs), study=study, published=SOURCE).cell
    return ran, {one.field: (one.published, one.here) for one in ran.altered}


class TestMerged:
    DECLARED = (
        Difference(field="optimizer", published="Adam", here="SGD"),
        Difference(field="image_size", published="not stated", here="64"),
    )

    def test_declared_and_found_differences_are_merged(self):
        found = merged(self.DECLARED, [Altered(field="data", published="ImageNet", here="synthetic images")])
        assert [(one.field, one.declared) for one in found] == [
            ("optimizer", True),
            ("image_size", True),
            ("data", False),
        ]

    def test_an_unstated_setting_is_not_attributed_to_the_source(self):
        """The study had chosen 64 pixels; its small scale was reported as reducing the source's 64 to 32."""
        (_, size) = merged(self.DECLARED, [Altered(field="image_size", published="64", here="32")])
        assert size == Altered(field="image_size", published="not stated", here="32")


class TestWhatRan:
    @pytest.mark.parametrize(
        ("runs", "found"),
        [
            # The table of cern-wgan listed PyTorch 2.15.0, of the planned image.
            ([{}], {"framework": ("tensorflow", "pytorch"), "version": ("1.3.0", "2.11.0+cu130")}),
            ([{}, {"framework_version": "2.15.0"}], {"version": ("1.3.0", "2.11.0+cu130 and 2.15.0")}),
            ([{"framework": "tensorflow", "framework_version": "1.3.0+nv"}], {"framework": None, "version": None}),
            ([{"cuda": "13.0", "cudnn": "91900"}], {"CUDA": ("8.0", "13.0"), "cuDNN": ("7.1.3", "9.19.0")}),
            ([{"nccl": "2.28.9", "cudnn": "7103"}], {"NCCL": None, "cuDNN": None}),
            ([{"cudnn": "8902"}], {"cuDNN": ("7.1.3", "8.9.2")}),
            ([], {"version": ("1.3.0", "2.15.0"), "optimizer": ("Adam", "SGD")}),  # a cell without runs keeps its plan
        ],
    )
    def test_software_comes_from_records_and_is_named_if_it_differs(self, runs, found):
        _, by_field = differs(*(run(run_id=f"run-{number}", said=said) for number, said in enumerate(runs)))
        assert {field: by_field.get(field) for field in found} == found

    def test_differences_of_a_stand_in_apply_to_the_framework_that_ran(self):
        own = {"framework": "tensorflow", "version": "1.15.5"}
        assert "updates" not in differs(run(**own, said=own), altered=())[1]
        assert differs(run(framework="pytorch"))[1]["updates"] == ("asynchronous", "synchronous")

    def test_an_unstated_version_is_a_named_difference(self):
        assert differs(run(), version=None)[1]["version"] == ("not stated", "2.11.0+cu130")

    def test_a_run_that_failed_early_has_the_requested_version(self):
        said = {"framework": None, "framework_version": None}
        assert differs(run(said=said, framework="mxnet", version="1.9.1"))[1]["version"] == ("1.3.0", "1.9.1")

    def test_invalid_runs_count_only_if_there_are_no_others(self):
        bad = run(run_id="bad", status="invalid", said={"framework_version": "9.9"})
        assert differs(run(), bad)[1]["version"] == ("1.3.0", "2.11.0+cu130")
        assert differs(bad)[1]["version"] == ("1.3.0", "9.9")

    def test_the_gpu_comes_from_the_record(self):
        ran, found = differs(run(device="gpu", gpus=(H200,)), gpu=None)
        assert ran.where.gpu == "v100"
        assert "gpu" not in found
        other = H200.model_copy(update={"name": "NVIDIA A100"})
        ran, found = differs(run(device="gpu", gpus=(other,)), gpu="v100")
        assert ran.where.gpu is None
        assert found["gpu"] == ("V100", "NVIDIA A100")

    @pytest.mark.parametrize(("own", "found"), [("bf16", ("fp32", "bf16")), ("fp32", None)])
    def test_precision_is_compared_with_a_stated_one(self, own, found):
        study = STUDY.model_copy(update={"differs": ()})
        assert differs(run(precision=own), study=study, precision="fp32")[1].get("precision") == found

    def test_settings_come_from_the_record(self):
        """The study now has 400 iterations; its runs on file had 300."""
        _, found = differs(run(iterations=300, batch_per_device=16, global_batch=16, precision="bf16"))
        assert found["precision"] == ("not stated", "bf16")
        assert found["iterations"] == ("not stated", "300 iterations")
        assert found["batch"] == ("not stated", "16")

    def test_a_difference_of_one_network_applies_to_it_only(self):
        assert "optimizer" not in differs(run(), model="vgg16")[1]

    @pytest.mark.parametrize(
        ("network", "nodes", "used", "emulated", "here"),
        [
            ("bus", 1, "pcie", None, None),
            ("bus", 1, "nvlink", None, "nvlink"),
            ("ib", 2, "infiniband", None, None),
            ("ib", 2, "ethernet", None, "ethernet"),
            ("ib", 2, "infiniband", "emulated: nodes of one machine", "infiniband, emulated: nodes of one machine"),
            ("ib", 1, "nvlink", None, None),  # nothing crosses a network on one node
        ],
    )
    def test_wires_come_from_the_evidence(self, network, nodes, used, emulated, here):
        own = run(world_size=2, processes=2, nodes=nodes, transport={"used": used, "emulated": emulated})
        _, found = differs(own, network=network, gpus=2, nodes=nodes)
        assert found.get("network", (None, None))[1] == here

    def test_a_wire_that_carried_more_than_the_sources_could_is_a_difference(self):
        """The link rate between hosts is unknown; 1e9 bytes per step are 8e9 bits."""
        two = {"world_size": 2, "processes": 2, "nodes": 2}
        for gbit, other in ((90, False), (110, True)):
            made = run(**two, transport={"used": "infiniband", "sent_bytes_per_step": {"a": 1e9}})
            step = made.measurement.step_time_s.model_copy(update={"p50": 8 / gbit})
            made = made.model_copy(update={"measurement": made.measurement.model_copy(update={"step_time_s": step})})
            assert ("network" in differs(made, network="ib", nodes=2, gpus=2)[1]) is other
        assert differs(made, network="ib", nodes=2, gpus=2)[1]["network"] == (
            "InfiniBand, 100 Gb/s",
            "infiniband, 110 Gb/s and more",
        )

    def test_a_reproduction_lists_the_software_of_each_cell(self):
        request = Request(framework="mxnet", version="1.9.1", model="resnet50", workers=(1,))
        where = {"framework": "tensorflow", "model": "resnet50", "gpus": 1}
        cell = Cell(id="c", block="block", where=where, request=request, pick=Pick(devices=1))
        image = ImageUsed(reference="pytorch 2.11.0+cu130 (the machine's own)", id=None, digest=None, lock_sha256=None)
        one, two = run(), run(run_id="run-2", repeat=2, status="degraded", said={"framework_version": "2.15.0"})
        one = one.model_copy(update={"image": image})
        runs = (one, two, run(run_id="run-3", repeat=3, status="invalid"))
        made = judge(
            STUDY,
            published=SOURCE,
            runs=[CellRun(cell=cell, runs=runs)],
            machine=studied.machine(),
            scale="small",
            made_at=studied.NOW,
        )
        (outcome,) = made.cells
        assert outcome.software == ("pytorch 2.11.0+cu130", "pytorch 2.15.0")
        assert outcome.images == (image.reference, two.image.reference)
        assert (outcome.measured, outcome.passes, outcome.degraded) == (2, 0, 1)
        rate = next(one for one in made.observations if one.metric == "throughput")
        assert (rate.repeats, rate.degraded) == (2, 1)


# Differences found by an independent reading of the five sources, in addition to those in records.
@pytest.mark.parametrize(
    ("study", "block", "model", "fields"),
    [
        (
            "dell-p100",
            "caffe",
            "googlenet",
            {"initial weights", "biases"},
        ),
        ("dell-p100", "mxnet-googlenet", "googlenet", {"batch", "training time"}),
        ("dell-p100", "tensorflow", "inception-v3", {"normalization", "weights"}),
        ("dell-p100", "caffe-cpu", "googlenet", {"build", "throughput"}),
        ("cern-wgan", "batch", "wgan", {"networks", "batch", "FP32 utilisation"}),
        ("tbd-analysis", "sensitivity-wgan", "wgan", {"data", "batch", "image_size"}),
        (
            "tbd-analysis",
            "sensitivity-deepspeech2",
            "deepspeech2",
            {"normalization", "output", "padding", "clipping", "data"},
        ),
        ("tbd-analysis", "one-machine", "resnet50", {"residual blocks", "batch", "image_size", "iterations"}),
        ("uw-hardware", "concurrent-dense", "mlp-512-reuters", {"optimizer", "data", "layers"}),
        ("uw-hardware", "infer", "resnet50", {"stem", "inference time", "weights"}),
        ("uw-hardware", "quantised", "resnet50", {"quantization", "batch", "fit"}),
        ("nyu-profiling", "backward", "vgg16", {"profiled part", "gpus", "profile_iterations"}),
        ("nyu-profiling", "broadcast", "vgg16", {"gpus", "profiler"}),
    ],
)
def test_the_studies_declare_their_differences(study, block, model, fields):
    found, _ = load_study(study)
    assert fields <= {one.field for one in found.declared(found.block(block), model)}


def test_a_former_stand_in_keeps_its_differences():
    """Records of Arjovsky's WGAN would have counted as the source's network once the study used that."""
    study, _ = load_study("cern-wgan")
    block = study.block("batch")
    differs = {one.field for one in study.declared(block, "wgan", ran="wgan")}
    assert differs - {one.field for one in study.declared(block, "wgan")} == {"algorithm", "optimizer"}


@pytest.mark.parametrize("name", study_names())
def test_no_study_declares_what_records_contain_and_every_cell_has_a_difference(name):
    study, own = load_study(name)
    declared = [one for block in study.blocks for model in block.models for one in study.declared(block, model)]
    assert not {one.field for one in declared} & {"framework", "version", "gpu", "cpu", "network", "CUDA", "cuDNN"}
    made = studied.reproduced(name, studied.machine(device="gpu", devices=(8,), device_name="NVIDIA H200"), repeats=1)
    assert all(cell.altered for cell in made.cells if cell.status == "ran")
    assert table(made.cells).rows
    assert not [one for one in made.comparisons if one.verdict in {"reproduced", "differs"}]
    assert own == published.load(published.DIRECTORY / f"{study.source}.yaml")
