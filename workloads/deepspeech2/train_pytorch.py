"""Trains Deep Speech 2 with PyTorch, on one device, with DistributedDataParallel or Horovod, and reports events.

    python3 train_pytorch.py --model=deepspeech2-small --batch=4 --iterations=16 --warmup=4 --window=4 --precision=fp32 --device=cpu \
        --devices=1 --strategy=single --data=synthetic --learning-rate=0.001 --momentum=0.9 --weight-decay=0 --longest=3 \
        --clip-norm=400 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=1
    torchrun --standalone --nproc-per-node=2 train_pytorch.py ... --strategy=ddp
    horovodrun --gloo -np 2 python3 train_pytorch.py ... --strategy=horovod --compression=none
    python3 train_pytorch.py ... --profile=kernels --profile-iterations=5

Utterances differ in length, so throughput counts seconds of audio, without padding; FLOPs are per second of audio. The
loss is CTC's, in fp32 at every precision, averaged over the utterances of a batch. The norm of gradients is clipped, as in the paper.

This file has the data, the network, the step and the timed window. `workloads/loop.py`, shared by all programs, runs the windows and
everything before and after them, and emits their events; `with_pytorch/training.py` has everything that is not measured.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flags import SIZES, check, parser
from flop import per_sample
from loop import Batches
from with_pytorch.training import Training, run


class Recognizer(Training):
    """One rank's network and utterances, whose lengths change from step to step."""

    offered = frozenset({"fused-optimizer", "one-message", "bf16-gradients"})

    def __init__(self, args, torch, device, ranks):
        from data_torch import Synthetic, Wavs
        from models_torch import build

        super().__init__(args, torch, device, ranks)
        self.take(build(args.model))
        synthetic = args.data == "synthetic"
        # cuDNN benchmarks its algorithms for every new shape; a folder's batches have new shapes for a whole epoch.
        torch.backends.cudnn.benchmark = synthetic
        self.batches = Batches((Synthetic if synthetic else Wavs)(args, ranks, device))

    def window(self, iterations):
        """Enqueue the steps of a timed window. Nothing here waits for a GPU: the clock records an event at each mark."""
        marks, losses = [self.clock.mark()], []
        for _ in range(iterations):
            losses.append(self.step())
            marks.append(self.clock.mark())
        return self.clock.edge(marks, losses)

    def step(self):
        with self.regions("input"):
            batch = next(self.batches)
        with self.regions("optimizer"):
            self.optimizer.zero_grad()
        with self.regions("forward"), self.autocast:
            loss = self.loss(self.model, batch)
        with self.regions("backward"):
            self.scaler.scale(loss).backward()
        with self.regions("optimizer"):
            self.ranks.update(self.optimizer, self.scaler, clip_norm=self.args.clip_norm)
        return loss.detach()  # stays on the device: reading it here would stall every step

    def shared_batch(self):
        import speech
        from data_torch import copy_to_device

        args = self.args
        how = {"longest_s": args.longest, "pairs": SIZES[args.model].suite}
        return copy_to_device(speech.shared_batch(args.seed, batch=args.batch, **how), self.device)

    def loss(self, model, batch):
        log_probabilities, steps = model(batch.spectrograms, batch.frames)
        losses = {"reduction": "sum", "zero_infinity": False}  # a text that is too long must not go unnoticed
        # As numbers: while PyTorch counts FLOP, it takes lengths in tensors to be on the GPU, like everything else.
        lengths = steps.tolist(), batch.characters.tolist()
        loss = self.torch.nn.functional.ctc_loss(log_probabilities, batch.texts, *lengths, **losses)
        return loss / len(batch.frames)

    def flop_per_sample(self):
        import speech

        return per_sample(self.net.multiplied(speech.frames_per_second()))

    def flop_counts(self):
        from with_pytorch.operations import count_cudnn_recurrence
        from with_pytorch.profiler import flop_counts

        count_cudnn_recurrence()
        return flop_counts(self.shared_loss(), self.parameters, samples=self.shared_batch().seconds)


if __name__ == "__main__":
    args = parser(__doc__.splitlines()[0]).parse_args()
    check(args)
    run(Recognizer, args)
