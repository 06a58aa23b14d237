"""Checks of all frameworks' programs that evaluate a network on images: epochs with validation, and inference. A library, not a script.

There are three classes of one colour each with 20 JPEGs a class, of which the 5th, 10th, 15th and 20th are for validation. One of these is
truncated and does not count, one has the colour of another class, so a network that tells colours apart is right for 10 of 11.
"""

import io
import tempfile
from pathlib import Path

from colours import COLOURS
from probed import WORKLOADS, named, run_for_events

SAMPLES, RIGHT = 11, 10
CUT = ["green/00.jpg", "red/04.jpg"]  # one from training, one from validation
EACH = 20
COMMON = (
    *("--model=lenet", "--image-size=32", "--num-classes=3", "--device=cpu", "--devices=1", "--seed=1", "--threads=1"),
    *("--cpus-per-worker=0", "--loader-workers=1", "--warmup=1"),
)
TRAIN = ("--strategy=single", "--learning-rate=0.003", "--momentum=0.9", "--weight-decay=0", "--precision=fp32")


def drawn(colour, number):
    """Encode a JPEG of one colour with Pillow; sizes vary."""
    from PIL import Image

    jpeg = io.BytesIO()
    Image.new("RGB", (40 + number, 36), COLOURS[colour]).save(jpeg, "JPEG", quality=95)
    return jpeg.getvalue()


def folder(jpeg=drawn):
    """Create the class folders; `jpeg(colour, number)` returns the bytes of an image."""
    root = Path(tempfile.mkdtemp())
    for name in COLOURS:
        (root / name).mkdir()
        for number in range(EACH):
            (root / name / f"{number:02}.jpg").write_bytes(jpeg(name, number))
    (root / "green/09.jpg").write_bytes(jpeg("red", 4))
    for name in CUT:
        whole = (root / name).read_bytes()
        (root / name).write_bytes(whole[: len(whole) * 2 // 3])
    return root


def converge(framework, data, *more, launcher=(), ranks=({},), processes=1):
    """Train for three epochs; validation must cover each image of the set once, over all ranks."""
    program = str(WORKLOADS / f"imagenet_cnn/train_{framework}.py")
    lengths = ("--batch=4", "--iterations=60", "--epoch-iterations=20", "--window=8", f"--data={data}")
    events = run_for_events(*launcher, program, *COMMON, *TRAIN, *lengths, *more, ranks=ranks)
    epochs = named(events, "epoch")
    for number in (1, 2, 3):
        found = [event for event in epochs if event["epoch"] == number]
        assert len(found) == processes, epochs
        assert sum(event["validation"]["samples"] for event in found) == SAMPLES, found
        assert {event["iterations"] for event in found} == {20}
    correct = [sum(e["validation"]["correct"] for e in epochs if e["epoch"] == number) for number in (1, 2, 3)]
    assert correct[-1] == RIGHT, correct
    loss = sum(e["validation"]["loss_sum"] for e in epochs if e["epoch"] == 3) / SAMPLES
    assert loss > 0, "the image of another colour costs nothing"
    assert epochs[-1]["train_loss"] < epochs[0]["train_loss"], epochs
    windows = named(events, "window")
    assert [event["iterations"] for event in windows if event["rank"] == 0] == [8, 8, 4] * 3
    skipped = {name for event in named(events, "data") for name in event["skipped"]}
    assert skipped <= set(CUT), skipped
    assert CUT[1] in skipped, "the validation image that does not decode is not named"
    assert len({event["parameter_norm"] for event in named(events, "run_stop")}) == 1, "the ranks' weights differ"
    return events


def infer(framework, data, precision):
    """Train briefly, and compare predictions at a precision with labels and with fp32's."""
    program = str(WORKLOADS / f"imagenet_cnn/infer_{framework}.py")
    lengths = ("--batch=3", "--iterations=5", "--window=2", "--fit=60", f"--data={data}", f"--precision={precision}")
    events = run_for_events(program, *COMMON, *lengths)
    (accuracy,), (batch,), (stop,) = named(events, "accuracy"), named(events, "batch"), named(events, "run_stop")
    assert (accuracy["precision"], accuracy["reference"], accuracy["fit_iterations"]) == (precision, "fp32", 60)
    assert accuracy["samples"] == SAMPLES
    assert accuracy["reference_correct"] == RIGHT, accuracy
    assert accuracy["correct"] == RIGHT, accuracy
    assert accuracy["agree"] == SAMPLES, accuracy
    assert (batch["asked"], batch["used"], batch["reason"]) == (3, 3, None)
    assert (stop["iterations"], stop["samples"]) == (5, 15)
    assert [(event["iterations"], event["samples"]) for event in named(events, "window")] == [(2, 6), (2, 6), (1, 3)]
    for event in named(events, "window"):
        assert len(event["step_seconds"]) == event["iterations"]
        assert sum(event["step_seconds"]) <= event["seconds"]
    assert not named(events, "loss") + named(events, "eval")
    (latency,) = named(events, "latency")
    assert (latency["in_flight"], latency["batch"], latency["without_transfer"]) == (1, 3, None)
    assert latency["with_transfer"] == [
        seconds for event in named(events, "window") for seconds in event["step_seconds"]
    ]


def infer_for_a_time(framework):
    """Infer for a given time instead of a number of batches."""
    lengths = ("--batch=3", "--iterations=0", "--measure-seconds=0.5", "--window=0")
    program = str(WORKLOADS / f"imagenet_cnn/infer_{framework}.py")
    paced = run_for_events(program, *COMMON, *lengths, "--data=synthetic", "--precision=fp32")
    (pace,), (stop,), windows = named(paced, "pace"), named(paced, "run_stop"), named(paced, "window")
    assert stop["iterations"] == pace["iterations"] == sum(event["iterations"] for event in windows)
    assert {event["iterations"] for event in windows} == {pace["window"]}


def check_order_of_answers(predictor, samples, expected):
    """A GPU program's answers to batches of several lengths in flight must equal those to each sample on its own."""
    import inference

    laid_out, first, parts = predictor.lay_out(samples), 0, []
    for length in (1, 3, 2) * 3:
        parts.append(laid_out[first : first + length])
        first += length
    found = [int(one) for classes, *_ in inference.pipelined(predictor, parts) for one in classes]
    assert found == expected[:first], (found, expected)
    assert len(set(found)) > 1, "answers that are all alike have no order"
    predictor.run(predictor.place(laid_out[:3]))
