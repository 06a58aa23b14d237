"""Prevents trials that cannot be compared: a baseline that differs in more than scale, unequal cores, samples that do not add up."""

import examples
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned import CATALOG, WORKLOAD, dataset, resources, workload_of

from runner.core.errors import RequestError
from runner.core.request import Request
from runner.plan.engine import EngineChoice
from runner.plan.plan import plan

ON_GPUS = {"framework": "pytorch", "device": "gpu"}
OLD = next(image for image in CATALOG.images if image.version == "1.15.5-nvidia")
ONE_DEVICE = {"framework": "tensorflow", "device": "gpu", "image": OLD}


LLAMA, LANGUAGE = {"model": "llama-1b", "gpus": (4,)}, ON_GPUS | {"workload": workload_of("llama-1b")}


def test_settings_of_a_model_are_in_the_trial_and_in_the_key():
    longer = Request(**LLAMA, settings=(("sequence-length", "4096"),), strategy="fsdp", repeat=1)
    one, four = plan(longer, resources(**LANGUAGE))
    assert (one.strategy, four.strategy, four.processes) == ("single", "fsdp", 4)
    assert four.settings["sequence-length"] == 4096
    assert one.key == four.key != plan(Request(**LLAMA, repeat=1), resources(**LANGUAGE))[0].key


def test_tuned_leaves_out_techniques_that_fail_with_sharded_layers():
    (one, four) = plan(Request(**LLAMA, preset="tuned", strategy="tp", repeat=1), resources(**LANGUAGE))
    assert one.techniques == ("fused-optimizer", "cudnn-attention", "loss-kernel", "compile")
    assert (four.techniques, four.precision) == (("fused-optimizer", "cudnn-attention"), "bf16")
    (one, _) = plan(Request(**LLAMA, preset="tuned", precision="tf32", repeat=1), resources(**LANGUAGE))
    assert one.techniques == ("fused-optimizer", "loss-kernel", "compile")


def test_defaults_on_two_cores_are_one_and_two_workers_three_times_interleaved():
    trials = plan(Request(), resources())
    assert [(t.world_size, t.repeat) for t in trials] == [(1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (2, 3)]
    assert {t.model for t in trials} == {"resnet18"}


def test_without_iterations_every_scale_is_measured_for_the_same_time():
    """Default runs once took a second: 71 images/s in one, 1,432 in a later run of the same training."""
    assert {(t.iterations, t.window, t.measure_s) for t in plan(Request(), resources("pytorch"))} == {(0, 0, 12.0)}
    assert {(t.iterations, t.measure_s) for t in plan(Request(gpus=(1, 4)), resources("pytorch", "gpu"))} == {(0, 30.0)}
    # A step of two devices that share a batch may take half as long, so the measurement takes two times twelve seconds.
    assert {t.measure_s for t in plan(Request(scaling="strong", batch=16), resources())} == {24.0}


def test_ranks_that_cannot_agree_on_a_length_get_the_workloads():
    one, two = plan(Request(strategy="kvstore", kvstore="dist_sync", repeat=1), resources())
    assert (one.iterations, one.measure_s) == (0, 12.0)
    assert (two.iterations, two.measure_s) == (WORKLOAD.defaults["cpu"].iterations, 12.0)
    (caffe,) = plan(Request(workers=(1,), repeat=1), resources("caffe"))
    assert (caffe.iterations, caffe.measure_s) == (WORKLOAD.defaults["cpu"].iterations, None)


def test_a_window_has_the_same_iterations_at_every_scale():
    """Windows once had 3 iterations on four GPUs and 12 on one, so that the cost of ending a window was in the efficiency."""
    trials = plan(Request(gpus=(1, 2, 4), iterations=200, repeat=1), resources("pytorch", "gpu"))
    assert [(t.world_size, t.iterations, t.window) for t in trials] == [(1, 200, 5), (2, 100, 5), (4, 50, 5)]


def test_weak_scaling_keeps_the_batch_per_device_and_strong_scaling_the_global_batch():
    one, two = plan(Request(batch=16, iterations=40, repeat=1), resources())
    assert (one.batch_per_device, two.batch_per_device, two.global_batch) == (16, 16, 32)
    assert one.iterations * one.global_batch == two.iterations * two.global_batch == 640
    one, two = plan(Request(batch=64, iterations=10, scaling="strong", repeat=1), resources())
    assert (one.batch_per_device, two.batch_per_device) == (64, 32)
    assert one.iterations == two.iterations == 10


def test_a_cpu_worker_is_the_same_device_at_every_scale():
    one, two = plan(Request(workers=(1, 2), repeat=1), resources(node=examples.node(cores=tuple(range(8)))))
    assert (one.cpus_per_worker, two.cpus_per_worker) == (4, 4)
    assert (one.threads, two.threads) == (4, 4)


def test_a_baseline_is_always_planned_and_gpus_default_to_powers_of_two_and_all():
    assert [t.world_size for t in plan(Request(workers=(2,), repeat=1), resources())] == [1, 2]
    trials = plan(Request(repeat=1), resources("pytorch", "gpu", node=examples.gpu_node(6)))
    assert [t.world_size for t in trials] == [1, 2, 4, 6]


def test_mxnet_drives_all_gpus_from_one_process_and_cpu_workers_as_its_store_needs():
    on_gpus = plan(Request(gpus=(4,), repeat=1), resources("mxnet", "gpu"))[-1]
    assert (on_gpus.processes, on_gpus.kvstore) == (1, "device")
    for kvstore, processes in (("device", 1), ("dist_sync", 2), ("dist_sync_device", 2), ("dist_async", 2)):
        trial = plan(Request(workers=(2,), repeat=1, kvstore=kvstore), resources())[-1]
        assert (trial.kvstore, trial.processes, trial.world_size) == (kvstore, processes, 2)
    assert plan(Request(workers=(2,), repeat=1), resources())[-1].kvstore == "dist_sync"


def test_horovod_uses_gloo_by_default():
    one, two = plan(Request(strategy="horovod", repeat=1), resources())
    assert one.horovod is None
    assert (two.horovod.controller, two.horovod.operations, two.horovod.compression) == ("gloo", "gloo", "none")
    mpi = plan(Request(strategy="horovod", controller="mpi", repeat=1), resources())[-1]
    assert mpi.horovod.operations == "mpi"


def test_caffe_trains_on_one_cpu_worker_or_several_gpus_and_images_may_offer_less():
    assert [t.world_size for t in plan(Request(repeat=1), resources("caffe"))] == [1]
    last = plan(Request(repeat=1), resources("caffe", "gpu"))[-1]
    assert (last.world_size, last.processes, last.strategy, last.dialect) == (4, 1, "caffe", "caffe")
    assert [t.world_size for t in plan(Request(repeat=1), resources(**ONE_DEVICE))] == [1]


def test_more_workers_than_cores_run_only_on_request_and_are_recorded():
    one, three = plan(Request(workers=(3,), oversubscribe=True, repeat=1), resources())
    assert (one.oversubscribed, three.oversubscribed) == (False, True)
    assert three.cpus_per_worker == 1
    assert not plan(Request(workers=(2,), oversubscribe=True, repeat=1), resources())[-1].oversubscribed


def test_a_process_has_a_thread_per_core_or_as_many_as_requested():
    usual, one = (plan(Request(workers=(1,), repeat=1, threads=threads), resources())[0] for threads in (None, 1))
    assert (usual.threads, usual.cpus_per_worker) == (2, 2)
    assert (one.threads, one.cpus_per_worker) == (1, 2)
    assert usual.key != one.key


def test_scale_repeat_strategy_and_wires_do_not_change_the_key():
    on = resources("pytorch", "gpu")
    trials = plan(Request(gpus=(1, 2, 4), repeat=2), on) + plan(Request(gpus=(2,), interconnect=("shm",)), on)
    trials += plan(Request(gpus=(2,), strategy="dp"), on)
    assert len({t.key for t in trials}) == 1


def test_all_else_changes_the_key():
    # The last one has one worker with both cores.
    changed = ({"model": "vgg16"}, {"batch": 8}, {"seed": 2}, {"iterations": 7}, {"image_size": 64}, {"workers": (1,)})
    requests = [Request(**change) for change in ({}, {"scaling": "strong"}, *changed)]
    keys = [plan(request, resources())[0].key for request in requests]
    others = ({"workloads_sha256": "1" * 64}, {"engine": EngineChoice("venv", None)}, {"dataset": dataset()})
    keys += [plan(Request(), resources(**change))[0].key for change in others]
    assert len(set(keys)) == len(keys)


def test_non_default_decoders_and_loader_workers_change_the_key():
    """Records that are older than these options stay baselines of runs without them."""
    on = resources("pytorch", "gpu", dataset=dataset())
    usual, decoding, workers = (
        plan(Request(repeat=1, gpus=(1,), **asked), on)[0] for asked in ({}, {"decode": "gpu"}, {"loader_workers": 3})
    )
    assert (usual.decode, decoding.decode) == ("cpu", "gpu")
    assert (usual.loader_workers, workers.loader_workers) == (8, 3)
    assert len({usual.key, decoding.key, workers.key}) == 3
    assert plan(Request(repeat=1, gpus=(1,), decode="cpu"), on)[0].key == usual.key


def test_using_all_gpu_memory_changes_the_key():
    on = resources("tensorflow", "gpu")
    usual, all_of_it = (plan(Request(repeat=1, gpus=(1,), **asked), on)[0] for asked in ({}, {"gpu_memory": "all"}))
    assert (usual.gpu_memory, all_of_it.gpu_memory) == ("as-needed", "all")
    assert usual.key != all_of_it.key


def test_the_default_key_has_the_same_facts_as_ever(monkeypatch):
    monkeypatch.setattr("runner.plan.plan.comparison_key", lambda facts: " ".join(sorted(facts)))
    assert plan(Request(), resources(dataset=dataset()))[0].key == (
        "batch cpus_per_worker data device device_name engine framework image_size iterations lock_sha256 machine mode model num_classes "
        "precision scaling seed version warmup workload workloads_sha256 xla"
    )


def test_epochs_become_iterations_and_back():
    trial = plan(Request(epochs=2, batch=50, workers=(1,)), resources(dataset=dataset(images=1000, classes=12)))[0]
    assert (trial.iterations, trial.epochs, trial.num_classes) == (40, 2.0, 12)
    synthetic = plan(Request(iterations=100, batch=64, workers=(1,)), resources())[0]
    assert synthetic.epochs == pytest.approx(6400 / 1281167)


DECODES = {"decode": "gpu"}
TF_ON_GPUS = ON_GPUS | {"framework": "tensorflow"}
WITH_DATA = ON_GPUS | {"dataset": dataset()}


@pytest.mark.parametrize(
    ("fields", "on", "sentence"),
    [
        ({"workers": (3,)}, {}, "WORKERS=3 asked, here offers 2 cores; ask for WORKERS=2 or fewer or add"),
        ({"gpus": (8,)}, ON_GPUS, "GPUS=8 asked, here offers 4 GPUs"),
        ({"gpus": (1,)}, ON_GPUS | {"node": examples.node()}, "GPUS=1 asked, here offers none (no NVIDIA GPU"),
        ({"model": "resnet51"}, {}, "unknown MODEL 'resnet51'; did you mean resnet50?"),
        ({"strategy": "ddp"}, {}, "STRATEGY=ddp is not offered by FRAMEWORK=mxnet"),
        ({"strategy": "single", "workers": (2,)}, {}, "STRATEGY=single drives one device, 2 asked"),
        ({"kvstore": "nccl"}, {}, "KVSTORE=nccl connects GPUs, DEVICE=cpu asked"),
        ({"kvstore": "device", "strategy": "horovod"}, {}, "KVSTORE=device is a setting of STRATEGY=kvstore"),
        ({"compression": "fp16"}, {}, "COMPRESSION is a setting of STRATEGY=horovod, not of kvstore"),
        ({"strategy": "horovod", "operations": "mpi"}, {}, "OPERATIONS=mpi does not go with CONTROLLER=gloo"),
        ({"xla": True}, {}, "XLA compiles TensorFlow's step"),
        ({"profile": ("calls",)}, {"framework": "pytorch"}, "PROFILE=calls is of GPUs"),
        ({"gpu_memory": "all"}, {}, "GPU_MEMORY=all is an option of TensorFlow, not of FRAMEWORK=mxnet"),
        ({"gpu_memory": "all"}, {"framework": "tensorflow"}, "GPU_MEMORY=all applies to GPUs, and this runs on"),
        (
            {"strategy": "ps", "precision": "fp16"},
            TF_ON_GPUS,
            "STRATEGY=ps updates weights in servers without the loss scale",
        ),
        (LLAMA | {"strategy": "tp", "precision": "fp8"}, LANGUAGE, "PRECISION=fp8 needs whole layers"),
        ({"precision": "tf32"}, {}, "PRECISION=tf32 is not offered by FRAMEWORK=mxnet on DEVICE=cpu"),
        ({"batch": 600}, {"dataset": dataset(images=1000)}, "DATA=/data holds 1000 images, one step takes 1200"),
        ({"batch": 33, "scaling": "strong"}, {}, "BATCH=33 is the total of all devices"),
        ({"strategy": "fsdp"}, {"framework": "pytorch"}, "STRATEGY=fsdp is not offered by imagenet_cnn"),
        (LLAMA | {"strategy": "horovod"}, LANGUAGE, "STRATEGY=horovod is not offered by language_model; ask for"),
        (LLAMA | {"model": "gpt2-1.5b", "strategy": "tp"}, LANGUAGE, "STRATEGY=tp splits each layer among 4 devices,"),
        (
            LLAMA | {"strategy": "fsdp+tp", "settings": (("tensor-parallel", "8"),)},
            LANGUAGE,
            "STRATEGY=fsdp+tp splits each layer among 8 devices of a node, 4 per node asked",
        ),
        (
            LLAMA | {"strategy": "fsdp", "settings": (("weights", "bf16"),)},
            LANGUAGE,
            "SETTINGS=weights=bf16 needs PRECISION=bf16 or fp8, not fp32",
        ),
        (LLAMA | {"settings": (("gradient-accumulation", "3"),)}, LANGUAGE, "gradient-accumulation=3 does not divide"),
        (
            {"model": "bert-tiny", "settings": (("checkpointing", "block"),)},
            LANGUAGE | {"framework": "tensorflow"},
            "SETTINGS=checkpointing=block is not offered by FRAMEWORK=tensorflow; leave it out",
        ),
        ({"image_size": 8}, {}, "IMAGE_SIZE=8 is too small for MODEL=resnet18"),
        ({"workers": (1,), "threads": 3}, {}, "THREADS=3 asked, but each rank has 2 cores"),
        ({"workers": (2,), "threads": 3}, {}, "THREADS=3 asked, but each rank has 1 core;"),
        ({"loader_workers": 17, "gpus": (1,)}, WITH_DATA, "LOADER_WORKERS=17 asked, but each rank has 16 cores"),
        ({"loader_workers": 5, "gpus": (4,)}, WITH_DATA, "LOADER_WORKERS=5 asked, but each rank has 4 cores"),
        (DECODES, WITH_DATA | {"framework": "mxnet"}, "DECODE=gpu of imagenet_cnn is not offered by FRAMEWORK=mxnet"),
        (DECODES, {"framework": "pytorch", "dataset": dataset()}, "DECODE=gpu needs a GPU that trains"),
        (
            DECODES | {"model": "deepspeech2-small"},
            WITH_DATA | {"workload": workload_of("deepspeech2-small")},
            "DECODE=gpu of deepspeech2 is not offered",
        ),
        ({"mode": "infer", "workers": (1, 2)}, {}, "MODE=infer measures one device, 2 asked"),
        ({"mode": "infer", "fit": 10}, {}, "FIT trains before inference"),
        ({"mode": "converge"}, {}, "MODE=converge validates on real data"),
        ({"mode": "converge"}, {"dataset": dataset()}, "MODE=converge splits a folder of JPEGs"),
        ({"workers": (2,)}, {"framework": "caffe"}, "WORKERS=2 asked, caffe 1.0 trains on one device"),
        ({"strategy": "dp"}, {"framework": "pytorch"}, "STRATEGY=dp is not offered by pytorch 2.13.0-cpu on"),
        ({"strategy": "mirrored", "gpus": (1,)}, ONE_DEVICE, "STRATEGY=mirrored is not offered by tensorflow 1.15.5"),
        ({"profile": ("metrics",)}, {"framework": "caffe"}, "PROFILE=metrics is not offered by FRAMEWORK=caffe"),
        (
            {"model": "gpt-tiny"},
            {"workload": workload_of("gpt-tiny")},
            "MODEL=gpt-tiny with MODE=train has no program for",
        ),
        ({"profile": ("kernels", "metrics", "calls")}, {"framework": "pytorch"}, "PROFILE=metrics,calls is of GPUs"),
        ({"workers": (2,), "interconnect": ("shm",)}, {"framework": "pytorch"}, "INTERCONNECT=shm asked, but the"),
        (
            {"workers": (2,), "strategy": "horovod", "techniques": ("fused-optimizer", "one-message")},
            {"framework": "pytorch"},
            "TECHNIQUES=one-message has no effect with STRATEGY=horovod",
        ),
    ],
)
def test_an_impossible_request_is_refused_in_one_sentence(fields, on, sentence):
    with pytest.raises(RequestError) as caught:
        plan(Request(**fields), resources(**on))
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model", ["wgan", "mlp-512-reuters", "deepspeech2", "gpt2-124m"])
def test_data_parallel_of_another_program_than_the_image_classifiers_is_refused(model):
    on = resources("pytorch", "gpu", workload=workload_of(model))
    with pytest.raises(RequestError, match="STRATEGY=dp is not offered by"):
        plan(Request(model=model, strategy="dp", gpus=(2,)), on)


@given(st.integers(1, 64), st.integers(1, 500), st.integers(1, 16))
def test_every_scale_processes_the_samples_of_one_device_or_slightly_more(batch, iterations, cores):
    trials = plan(
        Request(batch=batch, iterations=iterations, repeat=1, workers=(cores,)),
        resources(node=examples.node(cores=tuple(range(16)))),
    )
    total = iterations * batch
    for trial in trials:
        assert total <= trial.iterations * trial.global_batch < total + trial.global_batch
        assert trial.processes * trial.cpus_per_worker <= 16


def test_inference_defaults_to_one_device_and_may_train_first():
    (trial,) = plan(Request(mode="infer", repeat=1), resources(workload=workload_of("resnet50")))
    assert (trial.world_size, trial.mode, trial.strategy) == (1, "infer", "single")
    assert trial.program == "imagenet_cnn/infer_mxnet.py"
    assert (trial.probe_bytes, trial.packed_at, trial.fit) == ((), None, 0)
    (trial,) = plan(Request(mode="infer", fit=10, repeat=1), resources(dataset=dataset()))
    assert trial.fit == 10


def test_a_convergence_run_trains_whole_epochs_without_the_validation_samples():
    data = dataset(images=500, validation_images=100)
    one, two = plan(Request(mode="converge", epochs=3, batch=16, repeat=1), resources(dataset=data))
    assert (one.epoch_iterations, one.iterations) == (400 // 16, 3 * 25)
    assert (two.epoch_iterations, two.iterations) == (400 // 32, 3 * 12)
    assert one.epochs == pytest.approx(3)
    assert one.packed_at is None
    asked = Request(mode="converge", model="mlp-512-reuters", batch=32)  # its own split
    assert plan(asked, resources("pytorch", workload=workload_of("mlp-512-reuters")))[0].epoch_iterations == 8982 // 32


def test_a_models_settings_override_the_workloads_and_are_in_the_key():
    (trial, *_) = plan(
        Request(model="deepspeech2-small"), resources("pytorch", workload=workload_of("deepspeech2-small"))
    )
    assert trial.settings == {"longest": 3, "clip-norm": 400}
    assert (trial.image_shape, trial.num_classes) == (None, None)
    changed = workload_of("deepspeech2-small").model_copy(update={"settings": {"longest": 17, "clip-norm": 1}})
    (other, *_) = plan(Request(model="deepspeech2-small"), resources("pytorch", workload=changed))
    assert trial.key != other.key


def test_epochs_count_all_batches_of_an_iteration():
    workload = workload_of("wgan")
    (trial, *_) = plan(Request(model="wgan", batch=8, iterations=20), resources("pytorch", workload=workload))
    assert trial.epochs == 20 * 8 * 5 / workload.training_samples
    assert trial.settings["n-critic"] == 5


def test_concurrent_trainings_have_no_baseline_and_the_same_samples_each():
    trials = plan(Request(concurrent=2, workers=(2,), batch=8, iterations=40, repeat=1), resources())
    assert [(t.world_size, t.concurrent.label, t.iterations) for t in trials] == [
        (2, "one", 20),
        (2, "sequential-1of2", 20),
        (2, "sequential-2of2", 20),
        (1, "together-1of2", 40),
        (1, "together-2of2", 40),
    ]
    assert {t.cpus_per_worker for t in trials} == {1}
    # Of a set duration, two at once took half the time of one after the other, whatever they did in it.
    unasked = plan(Request(concurrent=2, workers=(2,), repeat=1), resources())
    assert {t.measure_s for t in unasked} == {None}
    assert len({t.iterations * t.global_batch for t in unasked}) == 1
    assert unasked[0].iterations > 0
