"""Prevents misreading a log by the user's pattern: counting steps that were not timed, one device's rate as that of all, a line that hangs
the runner, a run that passes without figures because its pattern never matches. Lines are from public logs, with their sources.
"""

import time
from pathlib import Path

import pytest
from dialect_logs import facts, of, text

from runner.analysis.grading import measure
from runner.core import parsing
from runner.core.errors import RequestError
from runner.core.log_pattern import GROUPS, LogPattern
from runner.run.dialects.base import DialectError
from runner.run.dialects.pattern import PatternReader

DOCS = Path(__file__).parents[3] / "docs" / "external-programs.md"

# A program's output, the patterns, the facts from the command, and each line's samples and rate in samples/s, computed by hand.
LOGS = {
    # github.com/karpathy/nanoGPT issue 110: a line a step, 8 GPUs; a step has 12 x 5 x 8 sequences.
    "nanogpt": (
        [f"iter {n}: loss 3.9, time {ms}ms" for n, ms in enumerate((561.94, 563.15, 562.11, 562.80, 561.50), 1631)],
        [r"iter (?P<step>\d+): loss (?P<loss>[\d.]+), time (?P<ms>[\d.]+)ms"],
        {"batch_per_device": 60, "devices": 8},
        [(480, 480_000 / ms) for ms in (561.94, 563.15, 562.11, 562.80, 561.50)],
    ),
    # github.com/huggingface/transformers, `speed_metrics` of src/transformers/trainer_utils.py: one line at the end.
    "transformers": (
        [
            "{'loss': 0.3063, 'grad_norm': 43.39, 'learning_rate': 1.37e-05, 'epoch': 2.18}",
            "{'train_runtime': 437.8544, 'train_samples_per_second': 25.132, 'train_steps_per_second': 3.145, 'train_loss': 0.4564}",
        ],
        [
            r"'train_runtime': (?P<total_s>[\d.]+), 'train_samples_per_second': (?P<rate>[\d.]+)",
            r"'train_steps_per_second': (?P<steps_per_s>[\d.]+)",
            r"'loss': (?P<loss>[\d.]+)",
        ],
        {},
        [(11004, 25.132)],  # 437.8544 x 25.132
    ),
    # github.com/Lightning-AI/pytorch-lightning issue 4225: each step is drawn twice.
    "lightning": (
        [
            "Epoch 0:   0%|          | 0/18 [00:00<?, ?it/s] ",
            "Epoch 0:  17%|█▋        | 3/18 [00:14<01:13,  4.87s/it, loss=10.047, v_num=193315]",
            "Epoch 0:  22%|██▏       | 4/18 [00:17<01:02,  4.47s/it, loss=10.047, v_num=193315]",
            "Epoch 0:  22%|██▏       | 4/18 [00:17<01:02,  4.47s/it, loss=9.926, v_num=193315]",
            "Epoch 1:   6%|▌         | 1/18 [00:01<00:12,  1.25it/s, loss=9.8, v_num=193315]",
        ],
        [r"^Epoch (?P<epoch>\d+):.* (?P<step>\d+)/\d+ \[[^\]]*?(?:(?P<s>[\d.]+)s/it|(?P<steps_per_s>[\d.]+)it/s)"],
        {"batch_per_device": 8},
        [(8, 8 / 4.87), (8, 8 / 4.47), (8, 8 * 1.25)],
    ),
    # github.com/pytorch/torchtitan pull request 1287: tokens a second of each GPU, every ten steps.
    "torchtitan": (
        [
            f"[rank0]:[titan] 2025-06-16 22:31:04,970 - root - INFO - step: {step}  loss:  6.0388  memory: 49.66GiB(52.28%)  "
            f"tps: {tps}  tflops: 323.92  mfu: 32.75%"
            for step, tps in ((200, "5,856"), (210, "5,593"), (220, "5,868"), (230, "5,869"))
        ],
        [r"step: +(?P<step>\d+) +loss: +(?P<loss>[\d.]+) .*tps: (?P<device_rate>[\d,]+)"],
        {"batch_per_device": 8192, "devices": 4},
        [(10 * 4 * 8192, 4 * tps) for tps in (5593, 5868, 5869)],  # the first line may be of any number of steps
    ),
    # github.com/epfLLM/Megatron-LLM issue 11; the last rank writes it.
    "megatron": (
        [
            f"[default7]: iteration      {step}/  250000 | consumed samples:       124928 | elapsed time per iteration (ms): {ms} | "
            "learning rate: 9.150E-06 | global batch size:  1024 | lm loss: 2.504220E+00 | loss scale: 1.0 |"
            for step, ms in ((122, 86545.2), (123, 87871.6), (124, 89474.8))
        ],
        [
            r"iteration +(?P<step>\d+)/.*per iteration \(ms\): (?P<mean_ms>[\d.]+).*global batch size: +(?P<samples>\d+)",
            r"lm loss: (?P<loss>\S+)",
        ],
        {"devices": 8},
        [(1024, 1024_000 / 87871.6), (1024, 1024_000 / 89474.8)],
    ),
    # word_language_model/main.py of github.com/pytorch/examples at 77f55b9, run for these tests: means of ten steps, from 10 on in each epoch.
    "word_language_model": (
        [
            f"| epoch   {epoch} | {step:5d}/   83 batches | lr 20.00 | ms/batch {ms} | loss  6.05 | ppl   425.70"
            for epoch, step, ms in ((1, 10, 13.92), (1, 20, 2.75), (1, 30, 4.62), (2, 10, 3.62), (2, 20, 10.62))
        ],
        [r"epoch +(?P<epoch>\d+) \| +(?P<step>\d+)/.* ms/batch +(?P<mean_ms>[\d.]+) \| loss +(?P<loss>[\d.]+)"],
        {"batch_per_device": 4},
        [(40, 4000 / ms) for ms in (13.92, 2.75, 4.62, 3.62, 10.62)],
    ),
    # examples/demo_functional.py of github.com/keras-team/keras at 3422977 with Keras 3 on TensorFlow 2.21, run for these tests: in colours.
    "keras": (
        [
            f"\x1b[1m {step}/1250\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m━━━━━━━━━━━━━━━━━━\x1b[0m \x1b[1m{left}\x1b[0m {ms}ms/step - acc: 0.0630 - "
            "loss: 0.0931 - mse: 0.0931"
            for step, left, ms in ((173, "1:31", 85), (176, "1:29", 83))
        ],
        [r"(?P<step>\d+)/1250 ━+ \S+ (?P<ms>\d+)ms/step .* loss: (?P<loss>[\d.]+)"],
        {"batch_per_device": 32},
        [(32, 32_000 / 85), (32, 32_000 / 83)],
    ),
    # github.com/apache/mxnet pull request 12502: example/image-classification/benchmark_score.py, a line a batch size.
    "benchmark_score": (
        ["INFO:root:network: alexnet", "INFO:root:batch size 32, dtype float32, images/sec: 690.425029"],
        [r"batch size +(?P<batch>\d+), dtype \w+, images/sec: (?P<rate>[\d.]+)"],
        {},
        [(32, 690.425029)],
    ),
}

# Whole logs (tests/golden/dialects/SOURCES.md): the patterns, the facts from the command, and the figure computed by hand.
WHOLE = {
    # 41 steps of the 512 tokens that the log tells, in 4814.63 ms.
    "nanogpt.log": (
        [r"tokens per iteration will be: (?P<samples>[\d,]+)", r"iter (?P<step>\d+): .* time (?P<ms>[\d.]+)ms"],
        {},
        4360.04,
    ),
    # What benchmark.py says itself: its other lines are means since the start, and would make 6.08 of it.
    "timm-1.0.9-benchmark.log": ([r"done\. (?P<rate>[\d.]+) samples/sec"], {"batch_per_device": 4}, 5.06),
    # What train.py says itself in its last line, the mean of all thirty steps.
    "timm-1.0.9-train.log": (
        [r"Train: (?P<epoch>\d+) \[ *(?P<step>\d+)/.* Time: (?P<s>[\d.]+)s"],
        {"batch_per_device": 4},
        2.89,
    ),
    # Since its version 5 numbers are texts.
    "transformers-5.24.log": (
        [
            r"'train_runtime': '?(?P<total_s>[\d.]+)'?, 'train_samples_per_second': '?(?P<rate>[\d.]+)",
            r"'train_steps_per_second': '?(?P<steps_per_s>[\d.]+)",
        ],
        {},
        26.4,
    ),
    # Five steps, from the second line on, at 145.09, 157.81, 155.10, 155.01 and 155.14 samples/s; their 0.212 s a step by the
    # lines' own clock make 151.2 of it.
    "deepspeed-0.7.7.log": (
        [r"\] (?P<epoch>\d+)/(?P<step>\d+), .* CurrSamplesPerSec=(?P<rate>[\d.]+)"],
        {"batch_per_device": 32},
        153.50,
    ),
}


def read(lines, patterns, unit="samples", **told):
    reader = PatternReader(facts(**told), LogPattern(lines=tuple(patterns), unit=unit))
    events = [event for n, line in enumerate(lines) for event in reader.feed(line, received=float(n))]
    return [*events, *reader.close(received=float(len(lines)))]


@pytest.mark.parametrize("name", LOGS)
def test_throughput_is_the_harmonic_mean_of_the_programs_rates(name):
    lines, patterns, told, expected = LOGS[name]
    events = read(lines, patterns, **told)
    windows = of("window", events)
    assert [(w.samples, pytest.approx(w.samples / w.seconds, rel=1e-4)) for w in windows] == expected
    found = measure.measure(events, started=0.0, unit="samples/s").throughput.value
    mean = sum(samples for samples, _ in expected) / sum(samples / rate for samples, rate in expected)
    assert found == pytest.approx(mean, rel=0.02)


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_log_yields_its_programs_own_figure(name):
    patterns, told, expected = WHOLE[name]
    events = read(text(name).splitlines(), patterns, **told)
    assert measure.measure(events, started=0.0, unit="samples/s").throughput.value == pytest.approx(expected, rel=0.001)


def test_losses_are_kept_with_their_steps():
    lines, patterns, told, _ = LOGS["nanogpt"]
    any_loss = patterns[0].replace(r"[\d.]+", r"\S+", 1)
    found = of("loss", read([*lines, "iter 1640: loss nan, time 562.0ms"], [any_loss], **told))
    assert [(loss.first_iteration, loss.values) for loss in found][-2:] == [(1634, (3.9,)), (1639, (None,))]
    assert [loss.values for loss in of("loss", read(LOGS["transformers"][0], LOGS["transformers"][1]))] == [(0.3063,)]


def test_warm_up_is_excluded_by_step_number():
    lines = [f"iter {n}: time {ms}ms" for n, ms in ((0, 9000.0), (10, 50.0), (20, 40.0), (30, 40.0))]
    events = read(lines, [r"iter (?P<step>\d+): time (?P<ms>[\d.]+)ms"], batch_per_device=1, warmup=11)
    assert [(w.iterations, w.seconds) for w in of("window", events)] == [(1, 0.04), (1, 0.04)]


def test_the_first_rank_with_a_time_represents_all():
    lines = ["rank 1 hello", "rank 3: 5 ms", "rank 0: 7 ms", "rank 3: 5 ms"]
    events = read(lines, [r"rank (?P<rank>\d): (?P<ms>\d+) ms"], batch_per_device=2, devices=4)
    assert [(w.samples, w.seconds) for w in of("window", events)] == [(8, 0.005), (8, 0.005)]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["one", "two", "", "three", "four"], "the pattern matched no line; the last of the log: two | three | four"),
        ([], "the pattern matched nothing: the log is empty"),
        (["loss 3.5", "bye"], "the pattern found no time after iteration 0; the last lines of the log: loss 3.5 | bye"),
        (["time 0.00ms"], "the pattern found no time after iteration 0"),
        (["time ..ms"], "group ms of the pattern matched '..', which is not a number"),
        (["time 5ms"], r"give --batch N, the samples a device, or a group `samples`"),
    ],
)
def test_a_missing_value_is_reported_in_one_sentence(lines, says):
    with pytest.raises(DialectError) as error:
        read(
            lines,
            [r"loss (?P<loss>[\d.]+)", r"time (?P<ms>[\d.]+)ms"],
            batch_per_device=None if "5" in says or "give" in says else 1,
        )
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("pattern", [r"(a+)+(?P<ms>b)", r"(a|a)*(?P<ms>b)", r".*.*.*.*(?P<ms>x)", r"(?:.*)*(?P<ms>x)"])
def test_a_pattern_that_would_take_years_is_stopped_after_a_second(pattern):
    before = time.process_time()
    with pytest.raises(DialectError, match="the pattern takes over 1 s for one line"):
        read(["a" * 100_000], [pattern], batch_per_device=1)
    assert time.process_time() - before < 60


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time (", "PATTERN=time (: it is not a valid regular expression: missing ), unterminated subpattern"),
        (r"time \d+ms", r"it has no named group; name one, for example time (?P<ms>[\d.]+)ms"),
        (r"(?P<millis>\d+)", "group 'millis' is unknown; known: "),
        (r"(?P<loss>\d+)", "no group is a time or a rate; name one of ms, s, mean_ms,"),
        ("x" * 1001, "String should have at most 1000 characters"),
    ],
)
def test_an_invalid_or_useless_pattern_is_refused(text, says):
    with pytest.raises(RequestError) as error:
        parsing.pattern("PATTERN", text)
    assert says in str(error.value)


def test_a_file_can_hold_several_patterns_and_the_unit(tmp_path):
    file = tmp_path / "titan.yaml"
    file.write_text("unit: tokens\nlines:\n  - 'step: +(?P<step>\\d+)'\n  - 'tps: (?P<device_rate>[\\d,]+)'\n")
    assert parsing.pattern("PATTERN", str(file)) == LogPattern(
        unit="tokens", lines=(r"step: +(?P<step>\d+)", r"tps: (?P<device_rate>[\d,]+)")
    )
    file.write_text("lines: ['(?P<tps>x)']\n")
    with pytest.raises(RequestError, match=r"titan.yaml:1: lines\[0\] is .*group 'tps' is unknown"):
        parsing.pattern("PATTERN", str(file))


def test_every_group_is_documented():
    text = DOCS.read_text(encoding="utf-8")
    assert not [name for name in GROUPS if f"`{name}`" not in text]


@pytest.mark.parametrize(
    ("words", "batch"),
    [
        *((words, 64) for words in ("--batch-size 64", "-b 64", "--batch_size=64", "train.batch_size=64")),
        *((words, 64) for words in ("--batch-size 64 --batch_size=64", "--per_device_train_batch_size 64 --fp16")),
        *(
            (words, None)
            for words in ("--batch-size 64 --batch_size=32", "--eval-batch-size 64", "--micro-batch-size 64")
        ),
        *((words, None) for words in ("--batch-size auto", "--batch-size 0")),
        # nanoGPT accumulates 40 batches over all devices, Hugging Face's Trainer 4 on each device; a command line does not say which.
        ("--batch_size=64 --gradient_accumulation_steps=40", None),
        ("--per_device_train_batch_size 64 --gradient-accumulation-steps 4", None),
        ("--batch_size=64 --gradient_accumulation_steps=1", 64),
    ],
)
def test_the_batch_is_found_in_a_command(words, batch):
    for command in (["python", "train.py", *words.split(" ")], ["sh", "-c", f"python train.py {words}"]):
        found = parsing.batch_of(command)
        assert (found and found[0]) == batch
