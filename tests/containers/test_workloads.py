"""Workloads beyond image classification, through the whole suite: their unit, settings and ranks reach the record.

Prevents: seconds of audio that include padding or get lost between ranks, a throughput in images without any images, settings that the
record does not name, Horovod averaging only one of two networks, epochs that are not validated on every sample.
"""

import json
import math
import struct
import wave

import pytest

pytestmark = pytest.mark.usefixtures("nothing_left")

# One device with a batch of 4 and two devices with 2 each train on the same samples.
STRONG = (
    *("--framework=pytorch", "--device=cpu", "--scaling=strong", "--batch=4", "--iterations=8", "--workers=2"),
    "--idle=0",
)
INFERS = (
    *("--device=cpu", "--mode=infer", "--batch=4", "--iterations=4", "--warmup=1", "--workers=1", "--repeat=1"),
    "--idle=0",
)
VIT, BERT = ("--model=vit-ti16", "--image-size=32"), ("--model=bert-tiny", "--settings=sequence-length=32")


def windows(ended, scale):
    """The `window` events of all ranks in the run on `scale` workers."""
    (directory,) = (path.parent for path in ended.out.glob(f"*-{scale}cpu*-r1/record.json"))
    found = [json.loads(line) for line in (directory / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    return [event for event in found if event["event"] == "window"]


def units_of(window):
    """What throughput counts in a window: samples, unless the workload has another unit."""
    return window["samples"] if window["units"] is None else window["units"]


def check_scales(ended, *, unit, tolerance):
    """Both scales have the same unit and amount, one model and the same losses."""
    one, two = (ended.record(scale) for scale in (1, 2))
    assert {record.measurement.throughput.unit for record in (one, two)} == {f"{unit}/s"}
    told = [sum(map(units_of, windows(ended, scale))) for scale in (1, 2)]
    assert told[0] == pytest.approx(told[1], rel=1e-9)
    # The range of a rate: all units over all windows, wherever the steady ones start.
    for record, scale in ((one, 1), (two, 2)):
        rates = [units_of(event) / event["seconds"] * record.trial.processes for event in windows(ended, scale)]
        assert min(rates) * 0.99 <= record.measurement.throughput.value <= max(rates) * 1.01
    norms = list(two.measurement.parameter_norms.values())
    assert len(norms) == two.trial.processes
    assert len(set(norms)) == 1
    (alone,) = one.measurement.losses.values()
    together = [sum(step) / len(step) for step in zip(*two.measurement.losses.values(), strict=True)]
    assert len(alone) == len(together) == one.trial.warmup + 8
    assert together == pytest.approx(alone, abs=tolerance * max(map(abs, alone)))
    assert not [record.validity.reasons for record in (one, two) if record.validity.status == "invalid"]
    return one, told[0]


def test_deep_speech_counts_seconds_of_audio(dlscale, tmp_path):
    ended = dlscale("bench", *STRONG, "--model=deepspeech2-small", "--warmup=8", "--strategy=ddp", out=tmp_path)
    assert ended.code == 0, ended.stderr
    record, seconds = check_scales(ended, unit="seconds of audio", tolerance=1e-3)
    assert record.trial.settings == {"longest": 3, "clip-norm": 400}
    # 8 batches of 4 utterances of 1 to 3 seconds, all of the synthetic ones.
    assert 32 < seconds < 96
    assert (record.trial.image_shape, record.trial.num_classes) == (None, None)


def test_ranks_that_shard_a_language_model_learn_like_a_single_one(dlscale, one_baseline, tmp_path):
    for strategy, most in (("fsdp", 0.51), ("tp", 0.52)):
        words = (
            "--model=llama-tiny",
            "--warmup=2",
            f"--strategy={strategy}",
            "--repeat=1",
            "--settings=sequence-length=64",
        )
        with one_baseline("llama", out=tmp_path / strategy):
            ended = dlscale("bench", *STRONG, *words, out=tmp_path / strategy)
            assert ended.code == 0, ended.stderr
        record, tokens = check_scales(ended, unit="tokens", tolerance=1e-3)
        assert (record.trial.settings["sequence-length"], tokens) == (64, 8 * 4 * 64)
        two = ended.record(2)
        assert (two.trial.strategy, two.trial.processes, two.transport.used) == (strategy, 2, "loopback")
        (whole,) = record.measurement.state_bytes.values()
        # Weights and two moments in fp32, plus a step count per tensor.
        assert 12 * 131_392 <= whole < 12 * 131_392 * 1.001
        assert all(whole / 2 <= held < most * whole for held in two.measurement.state_bytes.values())


@pytest.fixture(scope="module")
def utterances(tmp_path_factory):
    """Sixteen utterances of 1 to 2 seconds, a file of another rate, and a truncated one."""
    folder = tmp_path_factory.mktemp("data") / "speech"
    folder.mkdir()
    for number in range(18):
        rate, samples = 8000 if number == 16 else 16000, 16000 + 1000 * (number % 16)
        with wave.open(str(folder / f"{number:02}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            tone = (int(8000 * math.sin(2 * math.pi * (200 + 20 * number) * n / rate)) for n in range(samples))
            file.writeframes(struct.pack(f"<{samples}h", *tone))
        (folder / f"{number:02}.txt").write_text("A TONE", encoding="utf-8")
    cut = folder / "17.wav"
    cut.write_bytes(cut.read_bytes()[:9000])
    folder.chmod(0o755)
    folder.parent.chmod(0o755)  # pytest's own temporary directories are private to root
    return folder


@pytest.mark.parametrize("framework", ["mxnet", "pytorch"])
def test_utterances_of_a_folder_are_read_and_unusable_ones_named(dlscale, tmp_path, utterances, framework):
    words = ("--device=cpu", "--workers=1", "--batch=4", "--iterations=8", "--warmup=2", "--idle=0")
    model = "--model=deepspeech2-small"
    ended = dlscale("bench", f"--framework={framework}", *words, model, f"--data={utterances}", out=tmp_path)
    assert ended.code == 0, ended.stderr
    record = ended.record(1)
    assert record.validity.status != "invalid", record.validity
    assert record.measurement.images_skipped == ("16.wav", "17.wav")
    # Eight batches of four of the sixteen, which have 16,000 to 31,000 samples, are two passes over all of them.
    whole = sum(16000 + 1000 * number for number in range(16)) / 16000
    assert sum(event["units"] for event in windows(ended, 1)) == pytest.approx(2 * whole, rel=0.2)


def test_deep_speech_learns_alike_through_parameter_servers(dlscale, tmp_path):
    words = (*STRONG[1:], "--framework=mxnet", "--model=deepspeech2-small", "--warmup=8")
    ended = dlscale("bench", *words, "--strategy=kvstore", "--kvstore=dist_sync", out=tmp_path)
    assert ended.code == 0, ended.stderr
    record, _ = check_scales(ended, unit="seconds of audio", tolerance=1e-3)
    assert record.trial.framework == "mxnet"


def test_horovod_averages_both_networks_of_a_gan(dlscale, tmp_path):
    words = ("--model=wgan-nobn", "--image-size=16", "--warmup=2", "--strategy=horovod")
    ended = dlscale("bench", *STRONG, *words, out=tmp_path)
    assert ended.code == 0, ended.stderr
    record, images = check_scales(ended, unit="images", tolerance=1e-2)
    assert record.trial.settings == {"n-critic": 5, "clip": 0.01}
    assert images == 8 * 5 * 4


def test_topics_are_learnt_over_epochs(dlscale, tmp_path):
    words = (
        *("--framework=pytorch", "--device=cpu", "--model=mlp-512-reuters", "--mode=converge", "--epochs=2"),
        "--workers=1",
    )
    ended = dlscale("bench", *words, "--batch=128", "--warmup=2", "--idle=0", out=tmp_path)
    assert ended.code == 0, ended.stderr
    first, second = ended.record(1).measurement.epochs
    assert (first.epoch, second.epoch) == (1, 2)
    assert first.iterations == second.iterations == 8_982 // 128
    assert second.val_loss < first.val_loss
    assert second.accuracy_percent > 50
    # Each of the 2,246 documents counts once.
    right = second.accuracy_percent * 2_246 / 100
    assert right == pytest.approx(round(right), abs=1e-6)


# BERT shows how TensorFlow's other strategies average such blocks, and embeddings in addition.
@pytest.mark.parametrize(("framework", "strategy"), [("pytorch", "ddp"), ("tensorflow", "multiworker")])
def test_a_vision_transformer_learns_alike_on_two_workers(dlscale, tmp_path, framework, strategy):
    words = (f"--framework={framework}", *STRONG[1:], *VIT, "--warmup=2", f"--strategy={strategy}")
    ended = dlscale("bench", *words, out=tmp_path)
    assert ended.code == 0, ended.stderr
    check_scales(ended, unit="images", tolerance=1e-3)


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_a_vision_transformer_classifies(dlscale, tmp_path, framework):
    ended = dlscale("bench", f"--framework={framework}", *VIT, *INFERS, out=tmp_path)
    assert ended.code == 0, ended.stderr
    assert ended.records[0].measurement.samples == 16


@pytest.mark.parametrize(
    ("framework", "strategy"),
    [
        *(("pytorch", strategy) for strategy in ("ddp", "fsdp")),
        *(("tensorflow", strategy) for strategy in ("mirrored", "multiworker", "horovod")),
    ],
)
def test_bert_learns_alike_on_two_workers(dlscale, one_baseline, tmp_path, framework, strategy):
    words = (f"--framework={framework}", *STRONG[1:], *BERT, "--warmup=2", f"--strategy={strategy}", "--repeat=1")
    with one_baseline("bert", framework, strategy == "horovod", out=tmp_path):
        ended = dlscale("bench", *words, out=tmp_path)
        assert ended.code == 0, ended.stderr
    record, tokens = check_scales(ended, unit="tokens", tolerance=1e-3)
    assert (record.measurement.parameters, tokens) == (154_176, 8 * 4 * 32)


def test_bert_encodes(dlscale, tmp_path):
    ended = dlscale("bench", "--framework=pytorch", *BERT, *INFERS, out=tmp_path)
    assert ended.code == 0, ended.stderr
    found = ended.records[0].measurement
    assert (found.samples, found.throughput.unit, found.cache_difference) == (16, "tokens/s", None)
    assert [(one.batch, one.prompt_tokens, one.step) for one in found.generation] == [(b, 32, None) for b in (1, 2, 4)]
