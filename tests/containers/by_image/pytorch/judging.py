"""Inside the image: validation after epochs and inference count correct answers, on one rank and on two, in every precision of a CPU.

Prevents validation images that are trained on, counted twice or skipped by the ranks; validation with dropout or with each
rank's own statistics; an accuracy with labels shifted against images; an int8 network that computes in fp32; validation that changes the
training.
"""

import math

import judged
import torch
from colours import CLASSES, NORMALIZED
from infer_pytorch import Predictor
from infer_pytorch import command_line as infer_command_line
from probed import losses, run_for_events
from programs import torchrun
from train_pytorch import Cnn, command_line
from with_pytorch.ranks import Alone

LENGTHS = ("--batch=4", "--iterations=20", "--window=2")
CPU = torch.device("cpu")


class Colours(torch.nn.Module):
    """Scores blue, green and red by the mean of their channels; active dropout or normalization would change the scores."""

    def __init__(self):
        super().__init__()
        self.dropout, self.norm = torch.nn.Dropout(0.9), torch.nn.BatchNorm2d(3, affine=False, eps=0)

    def forward(self, images):
        return self.dropout(self.norm(images)).mean((2, 3)).flip(1)


def validation_is_counted_as_by_hand(data):
    args = command_line().parse_args(
        [*judged.COMMON, *judged.TRAIN, *LENGTHS, "--epoch-iterations=10", f"--data={data}"]
    )
    training = Cnn(args, torch, CPU, Alone())
    training.net = Colours()
    training.net.train()
    state = torch.get_rng_state()
    for _ in range(2):
        found = training.validate()
        assert (found["samples"], found["correct"]) == (judged.SAMPLES, judged.RIGHT), found
        # Scores (blue, green, red) of each colour; cross entropy is ln(sum(exp)) - own score.
        blue, green, red = (NORMALIZED[name][::-1] for name in CLASSES)
        costs = [
            math.log(sum(map(math.exp, scores))) - scores[label] for label, scores in enumerate((blue, green, red))
        ]
        wrong = math.log(sum(map(math.exp, red))) - red[1]  # red among the green
        expected = 4 * costs[0] + 3 * costs[1] + wrong + 3 * costs[2]
        assert abs(found["loss_sum"] - expected) < 0.05, (found, expected)
    assert training.net.training, "the network is left as it is validated"
    assert training.net.norm.num_batches_tracked == 0, "validation moved the statistics"
    assert torch.equal(state, torch.get_rng_state()), "validation drew random numbers"
    trained = {name for name, _ in training.batches.source.batches.loader.dataset.images}
    assert len(trained) == 48
    assert not trained & {name for name, _ in training.held_out.loader.dataset.images}


def validation_uses_rank_0s_statistics(data):
    class Second(Alone):
        """A rank that receives rank 0's statistics."""

        def share(self, tensors):
            for tensor in tensors:
                tensor.fill_(7)

    args = command_line().parse_args(
        [*judged.COMMON, *judged.TRAIN, *LENGTHS, "--epoch-iterations=10", f"--data={data}", "--model=resnet18"]
    )
    training = Cnn(args, torch, CPU, Second())
    training.validate()
    assert all((buffer == 7).all() for buffer in training.net.buffers())


def validation_does_not_change_training(data):
    """Train on the same images with and without validation."""
    linked = judged.folder()
    for name in ("blue", "green", "red"):
        for number in (4, 9, 14, 19):
            (linked / name / f"{number:02}.jpg").unlink()
    program = str(judged.WORKLOADS / "imagenet_cnn/train_pytorch.py")
    words = (*judged.COMMON, *judged.TRAIN, *LENGTHS)
    plain = run_for_events(program, *words, f"--data={linked}")
    watched = run_for_events(program, *words, f"--data={data}", "--epoch-iterations=10")
    assert losses(plain) == losses(watched)


def each_precision_has_its_dtype():
    words = [*judged.COMMON, "--batch=3", "--iterations=5", "--window=2", "--data=synthetic"]
    for precision, kind in (("bf16", torch.bfloat16), ("int8", torch.qint8)):
        args = infer_command_line().parse_args([*words, f"--precision={precision}"])
        predictor = Predictor(args, torch, CPU)
        predictor.convert()
        modules = [m for m in predictor.net.modules() if hasattr(m, "weight")]
        assert len(modules) == 4
        weights = [m.weight() if callable(m.weight) else m.weight for m in modules]
        assert {weight.dtype for weight in weights} == {kind}, precision
        samples, labels = predictor.library(5)
        assert labels is None
        assert predictor.predict(samples).shape == (5,)
        assert predictor.norm > 0


if __name__ == "__main__":
    folder = judged.folder()
    validation_is_counted_as_by_hand(folder)
    validation_uses_rank_0s_statistics(folder)
    validation_does_not_change_training(folder)
    each_precision_has_its_dtype()
    judged.converge("pytorch", folder)
    judged.converge("pytorch", folder, "--strategy=ddp", "--batch=2", ranks=torchrun(2), processes=2)
    for name in ("fp32", "bf16", "int8"):
        judged.infer("pytorch", folder, name)
    judged.infer_for_a_time("pytorch")
