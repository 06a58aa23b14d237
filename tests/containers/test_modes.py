"""Inference and training to convergence, from the command line to the record, in each framework that offers them.

Prevents: a requested mode that does not run, a mode's figures that do not reach the record, missing samples, accuracy that does not
rise on distinguishable images, packed data without a validation split.
"""

import pytest
from commands import replaced

pytestmark = pytest.mark.usefixtures("nothing_left")
SMALL = ("--model=lenet", "--device=cpu", "--image-size=32", "--repeat=1", "--idle=0")


@pytest.mark.parametrize(
    ("framework", "precision", "more", "effects"),
    [
        ("caffe", "fp32", (), {}),
        ("mxnet", "fp32", (), {}),
        ("pytorch", "bf16", ("--model=resnet18", "--preset=tuned"), {"folded-norm": 20}),
        ("tensorflow", "bf16", (), {}),
    ],
)
def test_inference(dlscale, tmp_path, *, framework, precision, more, effects):
    lengths = ("--batch=4", "--iterations=12", "--warmup=2")
    done = dlscale(
        "bench",
        "--workers=1",
        f"--framework={framework}",
        "--mode=infer",
        f"--precision={precision}",
        *replaced(SMALL, *more),
        *lengths,
        out=tmp_path,
    )
    assert done.code == 0, done.stderr
    (record,) = done.records
    assert record.validity.status in ("valid", "degraded"), record.validity
    assert record.measurement.effects == effects
    assert (record.trial.mode, record.trial.precision) == ("infer", precision)
    found = record.measurement
    assert found.samples == 48
    assert found.throughput.value > 0
    assert found.step_time_s.method == "latency"
    assert 0 < found.step_time_s.p50 <= found.step_time_s.p99
    assert (found.batch.asked, found.batch.used) == (4, 4)
    # On CPUs, the windows' batches have the cores to themselves.
    assert (found.in_flight, found.latency.without_transfer) == (1, None)
    assert (found.latency.with_transfer.p50, found.latency.with_transfer.repeats) == (found.step_time_s.p50, 12)
    assert found.accuracy is None


def test_a_language_model_generates_for_each_batch_size(dlscale, tmp_path):
    words = ("--framework=pytorch", "--model=llama-tiny", "--device=cpu", "--mode=infer", "--repeat=1", "--idle=0")
    lengths = ("--batch=4", "--iterations=6", "--warmup=1", "--settings=sequence-length=48,new-tokens=8")
    done = dlscale("bench", *words, *lengths, "--workers=1", out=tmp_path)
    assert done.code == 0, done.stderr
    (record,) = done.records
    found = record.measurement
    assert record.validity.status in ("valid", "degraded"), record.validity
    assert record.trial.settings == {"sequence-length": 48, "new-tokens": 8}
    # Six batches of four sequences, eight tokens each.
    assert (found.samples, found.throughput.unit) == (24, "tokens/s")
    rates = [6 * 4 * 8 / sum(window.seconds for window in found.windows)]
    assert found.throughput.value == pytest.approx(rates[0], rel=0.5)
    assert [one.batch for one in found.generation] == [1, 2, 4]
    assert {one.prompt_tokens for one in found.generation} == {40}
    assert all(one.step.repeats == 7 * one.first_token.repeats for one in found.generation)
    assert found.cache_difference < 1e-5
    assert "decode (tokens/s)" in done.stdout + "".join(path.read_text() for path in tmp_path.glob("*.md"))
    assert list(tmp_path.glob("*-generation.csv"))

    refused = dlscale("bench", *words, *lengths, "--workers=2", out=tmp_path / "two")
    assert (refused.code, "MODE=infer measures one device, 2 asked" in refused.stderr) == (2, True)


@pytest.mark.parametrize("framework", ["mxnet", "pytorch", "tensorflow"])
def test_accuracy_in_int8_is_compared_with_fp32(dlscale, sample, tmp_path, framework):
    lengths = ("--batch=4", "--iterations=4", "--warmup=1", f"--data={sample}", "--fit=80", "--precision=int8")
    done = dlscale("bench", "--workers=1", f"--framework={framework}", "--mode=infer", *SMALL, *lengths, out=tmp_path)
    assert done.code == 0, done.stderr
    found = done.records[0].measurement.accuracy
    assert (found.precision, found.reference, found.fit_iterations) == ("int8", "fp32", 80)
    # 160 images in 11 classes, and two that do not decode: about 30 are every fifth of their class.
    assert 25 <= found.samples <= 32
    assert found.agree_percent >= 70


@pytest.mark.parametrize(
    ("framework", "way"),
    [
        ("mxnet", (1, "single")),
        ("pytorch", (2, "ddp")),
        ("pytorch", (2, "horovod")),
        ("tensorflow", (1, "single")),
    ],
    ids=str,
)
def test_convergence(dlscale, sample, tmp_path, framework, way):
    workers, strategy = way
    words = (*SMALL, f"--workers={workers}", f"--strategy={strategy}", "--batch=8", "--epochs=4", "--warmup=1")
    words += (f"--data={sample}",)
    done = dlscale("bench", f"--framework={framework}", "--mode=converge", *words, out=tmp_path)
    assert done.code == 0, done.stderr
    assert [record.trial.world_size for record in done.records] == [*range(1, workers + 1)]  # with the baseline
    for record in done.records:
        assert record.validity.status in ("valid", "degraded"), record.validity
        found = record.measurement.epochs
        assert [epoch.epoch for epoch in found] == [1, 2, 3, 4]
        if record.trial.world_size == 1:
            trained = sum(window.seconds for window in record.measurement.windows)
            assert record.measurement.training_time_s == pytest.approx(trained, rel=1e-6)
            assert sum(epoch.seconds for epoch in found) == pytest.approx(trained, rel=1e-6)
        assert found[-1].validation_samples == found[0].validation_samples <= record.trial.dataset.validation_images
        assert found[-1].val_loss < found[0].val_loss
        assert found[-1].accuracy_percent > 2 * 100 / 11, "little better than a guess"


def test_a_packed_file_has_no_validation_images(dlscale, tmp_path):
    tmp_path.chmod(0o755)  # pytest makes it private to root
    packed = tmp_path / "set.rec"
    packed.touch()
    packed.with_suffix(".idx").touch()
    packed.with_suffix(".json").write_text('{"classes": ["ant"], "images": 5, "skipped": []}')
    words = ("--framework=mxnet", "--workers=1", "--mode=converge", *SMALL, f"--data={packed}", "--epochs=1")
    done = dlscale("bench", *words, out=tmp_path / "out")
    assert done.code == 2
    assert "give the folder" in done.stderr
    assert not list((tmp_path / "out").glob("*/record.json"))
