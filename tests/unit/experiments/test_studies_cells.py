"""Requests of a study for a machine.

Prevents: a run of a source that is silently missing from the plan; a curve whose devices differ between scales; a batch per node taken for one
per device; a short run that varies less than the full one; an undeclared difference from the source; a reason that does not say what the
machine has; a request that `bench` itself would refuse.
"""

from collections import Counter
from pathlib import Path

import examples
import pytest
from studied import cpu_machine, gpu_machine

from runner.core.container_spec import Mount
from runner.core.contradictions import refuse_contradictions
from runner.core.request import Request
from runner.core.wire import Link
from runner.core.yamlfile import load as read
from runner.experiments.studies.cells import cells
from runner.experiments.studies.model import NOTHING, Altered, Pick, Usable
from runner.experiments.studies.study import DIRECTORY as OWN
from runner.experiments.studies.study import Block, Point, Same, Shorter, Study, study_names
from runner.experiments.studies.tables import differences
from runner.images.catalog import load_images
from runner.results.published.load import DIRECTORY
from runner.results.published.load import load as load_source

PASS = {"kind": "kernels", "after": None, "iterations": 5, "region": None}
STUDIES = {name: read(OWN / f"{name}.yaml", Study) for name in study_names()}
MACHINES = {
    "2 cores": cpu_machine(),
    "64 cores": cpu_machine(64),
    "4 GPUs": gpu_machine(4),
    "hosts": gpu_machine(4, 4, 4, 4),
}


def planned_cells(study, machine, scale="full", asked=NOTHING):
    source = load_source(DIRECTORY / f"{study.source}.yaml")
    return {cell.id: cell for cell in cells(study, source=source, machine=machine, scale=scale, user_request=asked)}


def made_up(**changes):
    """A study of one block with the wires and the GPU of dell-p100's source."""
    block = {
        "id": "own",
        "says": "made up",
        "where": {"framework": "mxnet", "version": "0.7.0"},
        "models": {"googlenet": "googlenet"},
        "batches": (64,),
        "image_size": 224,
        "iterations": 100,
    }
    return Study(
        id="made-up",
        source="dell-emc-2016-p100",
        title="Made up",
        networks=STUDIES["dell-p100"].networks,
        same=Same(why="made up"),
        tolerances=(),
        blocks=(Block.model_validate(block | changes),),
    )


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("scale", ["full", "small"])
@pytest.mark.parametrize("name", STUDIES)
def test_every_cell_has_a_request_that_bench_accepts_or_a_reason(name, scale, machine):
    found = planned_cells(STUDIES[name], machine, scale)
    assert found
    for cell in found.values():
        assert (cell.request is None) == (cell.why is not None)
        assert (cell.request is None) == (cell.pick is None)
        if cell.request:
            refuse_contradictions(cell.request)


@pytest.mark.parametrize("name", STUDIES)
def test_a_small_study_varies_the_same_conditions_as_the_full_one(name):
    whole, short = (planned_cells(STUDIES[name], MACHINES["4 GPUs"], scale) for scale in ("full", "small"))
    assert set(whole) <= set(short)
    for id_, cell in whole.items():
        assert short[id_].where == cell.where
        assert (short[id_].request is None) == (cell.request is None)
    # The same number of different batches, in the same order.
    for block in STUDIES[name].blocks:
        own = [max(1, batch // block.small.batch_divisor) for batch in block.batches]
        assert own == sorted(set(own))


@pytest.mark.parametrize("name", STUDIES)
def test_ids_are_unique_and_a_full_study_has_the_sources_runs_only(name):
    study = STUDIES[name]
    source = load_source(DIRECTORY / f"{study.source}.yaml")
    for scale in ("full", "small"):
        every = cells(study, source=source, machine=cpu_machine(), scale=scale)
        assert Counter(cell.id for cell in every).most_common(1)[0][1] == 1
        assert scale == "small" or not any(cell.extra for cell in every)


def test_figure_3_of_the_p100_paper_is_strong_scaling_on_one_node_and_144_per_node_beyond():
    """Table 2 has 144 for 1 to 16 GPUs; in MXNet that is per node, so that a GPU has 144, 72, 36, 36, 36, 36."""
    found = planned_cells(STUDIES["dell-p100"], gpu_machine(4, 4, 4, 4, hosts="h.yaml"))
    one = found["mxnet-googlenet.1gpus"].request
    assert one == found["mxnet-googlenet.2gpus"].request == found["mxnet-googlenet.4gpus"].request
    assert (one.gpus, one.batch, one.scaling, one.epochs, one.image_size) == ((1, 2, 4), 144, "strong", 1, 256)
    for gpus, nodes in ((8, 2), (12, 3), (16, 4)):
        cell = found[f"mxnet-googlenet.{gpus}gpus.{nodes}nodes.ib"]
        assert (cell.request.gpus, cell.request.nodes, cell.request.batch) == ((gpus,), nodes, 36)
        assert cell.request.scaling == "weak"
        assert cell.request.interconnect == ("infiniband",)
        assert cell.pick == Pick(devices=gpus, nodes=nodes, interconnect="infiniband")
        other = found[f"mxnet-googlenet.{gpus}gpus.{nodes}nodes.eth"]
        assert other.request == cell.request.model_copy(update={"interconnect": ("ethernet",)})
        assert other.pick.interconnect == "ethernet"
        assert (cell.where.network, other.where.network) == ("ib", "eth")
        assert (cell.where.gpus, cell.where.batch, cell.where.epochs) == (gpus, 144, 1)


def test_batches_and_iterations_of_table_2():
    """Inception-BN has 64, 128, 256, 256, 256, 256 per node of 1, 2, 4, 4, 4, 4 GPUs; NV-Caffe 128 × 4,000 = 256 × 2,000 = 512 × 1,000."""
    found = planned_cells(STUDIES["dell-p100"], gpu_machine(4, 4, 4, 4, hosts="h.yaml"))
    own = [cell for id_, cell in found.items() if id_.startswith("mxnet-inception-bn.")]
    assert {(cell.request.batch, cell.request.scaling) for cell in own} == {(64, "weak")}
    request = planned_cells(STUDIES["dell-p100"], gpu_machine(4))["caffe.4gpus"].request
    assert (request.framework, request.version, request.gpus) == ("caffe", "0.17.3-nvidia", (1, 2, 4))
    assert (request.batch, request.iterations, request.scaling) == (128, 4000, "weak")


NEWEST = examples.newest("tensorflow", "gpu")
NO_CODE = "mxnet 1.9.1-cu112 has no code for compute capability 9.0"


@pytest.mark.parametrize(
    ("study", "machine", "cell", "why"),
    [
        ("dell-p100", cpu_machine(), "tensorflow.4gpus", "4 GPUs, here are 2 CPU cores"),
        ("dell-p100", cpu_machine(), "caffe.2gpus", "2 GPUs, and caffe 1.0 trains on one device"),
        (
            "tbd-analysis",
            cpu_machine(may_emulate=False),
            "machines.2gpus.2nodes.batch16.eth1g",
            "no engine answers here",
        ),
        (
            "dell-p100",
            gpu_machine(
                4,
                misfits={image.version: "not built here" for image in load_images(examples.ROOT).of("mxnet")}
                | {"1.9.1-cu112": NO_CODE},
            ),
            "mxnet-googlenet.1gpus",
            NO_CODE,
        ),
        ("nyu-profiling", cpu_machine(), "broadcast.alexnet.2gpus.batch4", "Gloo"),
        ("nyu-profiling", gpu_machine(2), "broadcast.alexnet.2gpus.batch4", None),
    ],
)
def test_a_cell_that_cannot_run_says_why(study, machine, cell, why):
    found = planned_cells(STUDIES[study], machine, "small")[cell].why
    assert found is None if why is None else why in found


def test_a_batch_that_devices_cannot_share_equally_is_not_run():
    study = made_up(batches=(), points=(Point(gpus=3, batch=64),), batch_of="all")
    assert planned_cells(study, cpu_machine(8))["own.3gpus"].why == "a batch of 64 is not shared equally by 3 devices"


def test_without_gpus_workers_replace_them():
    found = planned_cells(STUDIES["dell-p100"], cpu_machine(), "small")
    request = found["tensorflow.2gpus"].request
    assert (request.device, request.workers, request.gpus, request.batch) == ("cpu", (1, 2), None, 4)
    assert (found["caffe-cpu.cpu"].where.gpus, found["caffe-cpu.cpu"].where.device) == (0, "cpu")
    assert found["caffe.1gpus"].where.device is None


def test_a_paper_about_cpus_uses_all_cores_as_one_device_even_with_gpus():
    cell = planned_cells(STUDIES["dell-p100"], gpu_machine(4))["caffe-cpu.cpu"]
    assert (cell.request.device, cell.request.workers, cell.request.version) == ("cpu", (1,), "1.0")
    assert cell.where.gpu is None


def test_networks_become_rates_of_emulated_links():
    found = planned_cells(STUDIES["tbd-analysis"], cpu_machine(), "small")
    slow = found["machines.2gpus.2nodes.batch16.eth1g"]
    fast = found["machines.2gpus.2nodes.batch16.ib100g"]
    assert slow.request == fast.request
    assert slow.request.links == (Link(rate_mbit=1000, emulated=True), None)
    assert slow.request.nodes == 2
    assert slow.pick.link == Link(rate_mbit=1000, emulated=True)
    assert fast.pick.link is None
    assert Altered(field="network", published="Ethernet", here="emulated nodes, 1gbit") in slow.altered


def test_extra_scales_are_run_only_if_the_sources_own_do_not_fit():
    small = planned_cells(STUDIES["dell-p100"], cpu_machine(), "small")
    assert small["mxnet-googlenet.2gpus.2nodes.eth"].extra
    roomy = planned_cells(STUDIES["dell-p100"], cpu_machine(16), "small")
    assert not any(cell.extra for cell in roomy.values() if cell.block == "mxnet-googlenet")


@pytest.mark.parametrize(
    ("study", "machine", "cell", "version"),
    [
        ("cern-wgan", gpu_machine(4, misfits={"1.15.5-nvidia": "not built here"}), "batch.1gpus.batch16", NEWEST),
        ("cern-wgan", gpu_machine(1), "batch.1gpus.batch16", "1.15.5-nvidia"),
        # Four GPUs are required, but NVIDIA's TensorFlow 1.15 trains on one.
        ("dell-p100", gpu_machine(4), "tensorflow.4gpus", NEWEST),
    ],
)
def test_the_next_version_is_used_if_the_first_does_not_run_or_is_limited_to_one_device(study, machine, cell, version):
    assert planned_cells(STUDIES[study], machine)[cell].request.version == version


def test_the_gpu_has_the_sources_name():
    found = planned_cells(STUDIES["uw-hardware"], gpu_machine(1, gpu="v100"))
    assert found["infer.vgg16.1gpus.batch1"].where.gpu == "v100"
    assert planned_cells(STUDIES["uw-hardware"], gpu_machine(1))["infer.vgg16.1gpus.batch1"].where.gpu is None


def test_ten_thousand_images_are_inferred_in_one_batch_or_one_by_one():
    """Of one batch of all there are several passes: one window does not tell whether the rate had settled, and a GPU's utilisation is read ten
    times a second. A short run has as many of a batch of all, since a fast GPU takes them in seconds."""
    for machine, scale, single, passes in (
        (gpu_machine(1), "full", 10000, 20),
        (gpu_machine(1), "short", 1000, 20),
        (cpu_machine(), "full", 10000, 4),
    ):
        found = planned_cells(STUDIES["uw-hardware"], machine, scale)
        one, all_ = (found[f"infer.vgg16.1gpus.batch{batch}"].request for batch in (1, 10000))
        assert (one.batch, one.iterations, all_.batch, all_.iterations) == (1, single, 10000, passes)
        assert (one.warmup, all_.warmup) == (None, 4)  # 20 of all would take longer than what is measured
    short = planned_cells(STUDIES["uw-hardware"], cpu_machine(), "small")["infer.vgg16.1gpus.batch10000"]
    assert short.where.batch == 10000
    assert short.request.batch * short.request.iterations < 10000
    assert {altered.field for altered in short.altered} >= {"batch", "iterations"}


def test_a_scale_may_leave_out_batches_and_says_so():
    found = planned_cells(STUDIES["nyu-profiling"], gpu_machine(1), "short")
    kept = {id_: cell for id_, cell in found.items() if id_.startswith("steps.vgg16") and cell.request}
    assert [cell.where.batch for cell in kept.values()] == [4, 16, 64]
    left_out = found["steps.vgg16.1gpus.batch8"]
    assert left_out.request is None
    assert left_out.why == "SCALE=short leaves out some batches, SCALE=full runs all"
    assert all(cell.why != left_out.why for cell in planned_cells(STUDIES["nyu-profiling"], gpu_machine(1)).values())


def test_the_three_cases_of_two_trainings_are_one_request():
    found = planned_cells(STUDIES["uw-hardware"], gpu_machine(4))
    own = {id_: cell for id_, cell in found.items() if id_.startswith("concurrent-vgg16.4gpus.")}
    assert {cell.pick.case for cell in own.values()} == {"one", "sequential", "together"}
    assert len({cell.request for cell in own.values()}) == 1
    assert own["concurrent-vgg16.4gpus.together"].case == "two models at once"
    assert own["concurrent-vgg16.4gpus.together"].request.concurrent == 2
    # So many that the time is not mostly what lies between the two starts.
    short = planned_cells(STUDIES["uw-hardware"], gpu_machine(4), "short")["concurrent-vgg16.4gpus.one"].request
    assert short.iterations * short.batch >= 300_000


def test_cells_that_need_real_images_get_the_sample_and_others_only_the_users():
    found = planned_cells(STUDIES["uw-hardware"], cpu_machine(), "small")
    assert found["train.vgg16.1gpus.batch64"].request.data.name == "photographs-88-32px"
    assert found["quantised.cpu.int8"].request.data.name == "photographs-88-32px"
    assert found["infer.vgg16.1gpus.batch1"].request.data is None
    assert found["concurrent-dense.2gpus.one"].request.data is None
    # Images of 96 to 160 pixels took longer to decode than a step at 32 pixels: the rate was the decoder's.
    full = planned_cells(STUDIES["uw-hardware"], gpu_machine(1))
    # A fast GPU takes 1,600 of them in a fraction of a second: power and utilisation were those of the pauses between epochs.
    assert full["train.vgg16.1gpus.batch64"].request.data.name == "photographs-20000-32px"
    assert full["quantised.cpu.int8"].request.data.name == "photographs-2000-32px"
    profiled = {
        scale: planned_cells(STUDIES["nyu-profiling"], cpu_machine(), scale)["steps.vgg16.1gpus.batch4"].request
        for scale in ("full", "small")
    }
    assert [(one.image_size, one.data.name) for one in profiled.values()] == [
        (224, "photographs-500"),
        (32, "photographs-88-32px"),
    ]
    given = planned_cells(STUDIES["uw-hardware"], cpu_machine(), "small", asked=Request(data=Path("/own")))
    assert given["infer.vgg16.1gpus.batch1"].request.data == Path("/own")
    assert given["concurrent-dense.2gpus.one"].request.data is None


def test_counters_are_not_requested_without_a_gpu():
    request = planned_cells(STUDIES["cern-wgan"], cpu_machine())["batch.1gpus.batch16"].request
    assert request.profile == ("kernels",)
    assert (request.profile_after, request.profile_iterations) == (300, 5)
    assert planned_cells(STUDIES["cern-wgan"], gpu_machine(1))["batch.1gpus.batch16"].request.profile == (
        "kernels",
        "metrics",
    )


def test_calls_of_a_whole_program_are_recorded_only_in_the_sources_framework():
    for machine, framework, kinds in (
        (gpu_machine(1), None, ("kernels", "metrics", "calls")),
        (gpu_machine(1), "mxnet", ("kernels", "metrics")),
        (cpu_machine(), None, ("kernels",)),
    ):
        found = planned_cells(STUDIES["nyu-profiling"], machine, asked=Request(framework=framework))
        assert found["steps.alexnet.1gpus.batch64"].request.profile == kinds


SLOW = Link(rate_mbit=1000, emulated=True)
TWO = {"world_size": 2, "nodes": 2, "processes": 2}
TOGETHER = {"trainings": 2, "case": "together", "number": 2}
ON_TWO, OF_CASE = Pick(devices=2, nodes=2, link=SLOW), Pick(devices=4, case="together")


@pytest.mark.parametrize(
    ("pick", "trial", "takes", "wants"),
    [
        (ON_TWO, TWO | {"link": SLOW}, True, True),
        (ON_TWO, TWO | {"link": SLOW, "profile": PASS}, True, True),
        (ON_TWO, TWO, False, False),
        (ON_TWO, {"world_size": 2, "processes": 2}, False, False),
        (ON_TWO, {}, False, True),
        (ON_TWO, {"profile": PASS}, False, False),
        (Pick(devices=1, measured=False), {}, False, False),
        (Pick(devices=1, measured=False), {"profile": PASS}, True, True),
        (OF_CASE, {"world_size": 2, "concurrent": TOGETHER}, True, True),
        (OF_CASE, {"world_size": 2, "concurrent": TOGETHER | {"case": "sequential"}}, False, False),
        (OF_CASE, {}, False, False),
    ],
)
def test_a_cell_takes_runs_of_its_scale_wire_and_case_and_needs_its_baseline(pick, trial, takes, wants):
    made = examples.trial(**trial)
    assert (pick.takes(made), pick.wants(made)) == (takes, wants)


def test_another_framework_can_stand_in():
    found = [*planned_cells(STUDIES["cern-wgan"], gpu_machine(1), asked=Request(framework="pytorch")).values()]
    assert {(cell.request.framework, cell.request.version) for cell in found} == {
        ("pytorch", examples.newest("pytorch", "gpu"))
    }
    assert {cell.where.framework for cell in found} == {"tensorflow"}
    assert Altered(field="framework", published="tensorflow", here="pytorch") in found[0].altered


def test_differences_of_a_stand_in_framework_are_declared_for_it_only():
    """TensorFlow allocates all GPU memory, and its parameter servers update asynchronously; no other framework does either."""
    own = {"gpu memory", "updates"}
    for framework, expected in ((None, set()), ("tensorflow", set()), ("pytorch", own)):
        found = planned_cells(STUDIES["uw-hardware"], gpu_machine(4), asked=Request(framework=framework))
        assert {one.field.replace("_", " ") for one in found["gpus.2gpus"].altered} & own == expected
        rows = differences([cell for cell in found.values() if cell.block == "gpus"]).rows
        assert {row[0] for row in rows} & own == expected


def test_options_of_bench_apply_to_every_run():
    """A user's image and installed software have no VERSION; with another framework, the source's strategy is dropped."""
    given = Usable(framework="pytorch", version="own:1", device="gpu", given=True)
    machine = gpu_machine(2).model_copy(update={"images": (given,)})
    asked = Request(framework="pytorch", image="own:1", mounts=(Mount(source="/opt", target="/opt"),))
    found = planned_cells(STUDIES["nyu-profiling"], machine, asked=asked)
    request = found["broadcast.alexnet.2gpus.batch4"].request
    assert (request.image, request.mounts, request.version) == ("own:1", asked.mounts, None)
    assert request.strategy == "dp"
    host = planned_cells(STUDIES["tbd-analysis"], machine, asked=Request(framework="pytorch", engine="host"))
    request = host["one-machine.2gpus.batch16"].request
    assert (request.engine, request.framework, request.version, request.strategy) == ("host", "pytorch", None, None)
    refuse_contradictions(request)


def test_a_version_that_no_study_names_is_used_and_a_requested_one_exclusively():
    newer = Usable(framework="tensorflow", version="2.99.0", device="gpu")
    machine = gpu_machine(1, misfits={"1.15.5-nvidia": "not built here"})
    machine = machine.model_copy(update={"images": (*machine.images, newer)})
    assert planned_cells(STUDIES["cern-wgan"], machine)["batch.1gpus.batch16"].request.version == "2.99.0"
    old = planned_cells(STUDIES["dell-p100"], gpu_machine(4), asked=Request(version="1.15"))
    assert "tensorflow 1.15.5-nvidia trains on one device" in old["tensorflow.4gpus"].why
    assert old["tensorflow.1gpus"].request.version == "1.15.5-nvidia"
    assert old["caffe.1gpus"].why == "there is no image of caffe 1.15 for a GPU"


def own_program(study, path, machine, **more):
    given = Usable(framework="", version="mxnet:0.7", device=machine.device, given=True)
    asked = Request(image="mxnet:0.7", command=(path,), data=Path("/imagenet"), **more)
    return planned_cells(STUDIES[study], machine.model_copy(update={"images": (given,)}), asked=asked)


@pytest.mark.parametrize(
    ("study", "cell", "path", "flags", "batch"),
    [
        # 144 per node, shared by two GPUs.
        (
            "dell-p100",
            "mxnet-googlenet.2gpus",
            "/mxnet/train_imagenet.py",
            "--network=googlenet --batch-size=144 --data-shape=256 --data-dir=/dlscale/data --num-epochs=1 --gpus=0,1",
            72,
        ),
        # 256 samples on all four, 1,000 iterations each; a program built by Bazel has no file extension.
        (
            "dell-p100",
            "tensorflow.4gpus",
            "/inception/bazel-bin/imagenet_train",
            "--num_gpus=4 --batch_size=256 --max_steps=1000 --data_dir=/dlscale/data --train_dir=/tmp/imagenet_train",
            64,
        ),
        (
            "tbd-analysis",
            "sensitivity-inception.1gpus",
            "/tbd/train_imagenet.py",
            (
                "--network=inception-v3 --image-shape=3,299,299 --batch-size=32 --data-train=/dlscale/data/imagenet1k_train_240.rec "
                "--num-epochs=1 --gpus=0"
            ),
            32,
        ),
    ],
)
def test_the_sources_own_program_gets_the_sources_flags(study, cell, path, flags, batch):
    request = own_program(study, path, gpu_machine(4))[cell].request
    assert request.command == ("python", path, *flags.split())
    assert (request.image, request.batch, request.repeat, request.profile) == ("mxnet:0.7", batch, 3, ())
    refuse_contradictions(request)


def test_a_program_runs_only_its_own_blocks_on_one_node():
    found = own_program("dell-p100", "/mxnet/train_imagenet.py", gpu_machine(4))
    assert {cell.block for cell in found.values() if cell.request} == {"mxnet-googlenet", "mxnet-inception-bn"}
    assert found["caffe.1gpus"].why == "the source ran another program than /mxnet/train_imagenet.py"
    assert found["mxnet-googlenet.8gpus.2nodes.ib"].why == "a program that is not the suite's runs on one node"
    assert [one.field for one in found["mxnet-googlenet.1gpus"].altered] == ["data"]
    bare = own_program("dell-p100", "/mxnet/train_imagenet.py", gpu_machine(2))
    assert bare["mxnet-googlenet.4gpus"].why == "4 GPUs, here are 2 GPUs"


def test_on_hosts_and_on_slurm_all_runs_but_concurrent_trainings_use_them():
    for name, study in STUDIES.items():
        for cell in planned_cells(study, gpu_machine(4, 4, hosts="slurm")).values():
            assert (cell.request or Request(hosts="slurm")).hosts == "slurm", (name, cell.id)
    found = planned_cells(STUDIES["uw-hardware"], gpu_machine(4, 4, hosts="slurm"))
    assert "one machine" in found["concurrent-vgg16.4gpus.one"].why


def test_every_difference_from_the_source_is_listed():
    study = made_up(
        where={"framework": "mxnet", "version": "0.7.0", "data": "real", "dataset": "ILSVRC2012"},
        epochs=1,
        iterations=None,
        short=Shorter(iterations=500),
        small=Shorter(iterations=4, image_size=32),
    )
    cell = planned_cells(study, cpu_machine(), "small")["own.1gpus"]
    assert set(cell.altered) == {
        Altered(field="version", published="0.7.0", here=examples.newest("mxnet", "cpu")),
        Altered(field="data", published="ILSVRC2012", here="synthetic images"),
        Altered(field="iterations", published="1 epoch", here="4 iterations"),
        Altered(field="image_size", published="224", here="32"),
    }
    assert planned_cells(study, cpu_machine())["own.1gpus"].altered == cell.altered[:2]
    short = planned_cells(study, cpu_machine(), "short")["own.1gpus"]
    fewer = Altered(field="iterations", published="1 epoch", here="500 iterations")
    assert short.altered == (*cell.altered[:2], fewer)
    assert (short.request.iterations, short.request.epochs, short.request.repeat) == (500, None, study.repeat)


def test_declared_differences_are_in_every_cell_and_a_small_study_names_unstated_settings():
    study = made_up(
        differs=(
            {"field": "loss", "published": "smoothed", "here": "plain"},
            {"field": "image_size", "published": "not stated", "here": "224"},
        ),
        small=Shorter(image_size=32),
    )
    whole, small = (planned_cells(study, cpu_machine(), scale)["own.1gpus"].altered for scale in ("full", "small"))
    loss = Altered(field="loss", published="smoothed", here="plain", declared=True)
    version = Altered(field="version", published="0.7.0", here=examples.newest("mxnet", "cpu"))
    chosen = Altered(field="image_size", published="not stated", here="224", declared=True)
    assert set(whole) == {loss, version, chosen}
    assert set(small) == {loss, version, Altered(field="image_size", published="not stated", here="32")}
