"""Trains Deep Speech 2 with PyTorch, on one device, with DistributedDataParallel or Horovod, and reports by events.

    python3 train_pytorch.py --model=deepspeech2-small --batch=4 --iterations=16 --warmup=4 --window=4 --precision=fp32 --device=cpu \
        --devices=1 --strategy=single --data=synthetic --learning-rate=0.001 --momentum=0.9 --weight-decay=0 --longest=3 \
        --clip-norm=400 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=1
    torchrun --standalone --nproc-per-node=2 train_pytorch.py ... --strategy=ddp
    horovodrun --gloo -np 2 python3 train_pytorch.py ... --strategy=horovod --compression=none
    python3 train_pytorch.py ... --profile=kernels --profile-iterations=5

Utterances differ in length, so throughput counts seconds of audio, without what pads a batch; operations are those of a second of it. The
loss is CTC's, in fp32 at every precision, the mean over the utterances of a batch. Gradients are clipped to a norm, as in the paper.

The loop is `workloads/loop.py`, the step `workloads/with_pytorch/training.py`; here are the network, its loss and its utterances.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flags import check, parser
from flop import per_sample
from with_pytorch.training import Supervised, run


class Recognizer(Supervised):
    """The network, and this rank's utterances, whose lengths no step has twice."""

    offered = frozenset({"fused-optimizer", "one-message", "bf16-gradients"})

    @property
    def clip_norm(self):
        return self.args.clip_norm

    def network(self):
        from models_torch import build

        return build(self.args.model)

    def open(self):
        from data_torch import Synthetic, Wavs

        synthetic = self.args.data == "synthetic"
        # cuDNN tries its algorithms for every new shape; those of a folder's batches are new for a whole epoch.
        self.torch.backends.cudnn.benchmark = synthetic
        return (Synthetic if synthetic else Wavs)(self.args, self.ranks, self.device)

    def shared_batch(self):
        import speech
        from data_torch import placed

        args = self.args
        return placed(speech.shared_batch(args.seed, batch=args.batch, longest_s=args.longest), self.device)

    def loss(self, model, batch):
        told, steps = model(batch.spectrograms, batch.frames)
        losses = {"reduction": "sum", "zero_infinity": False}  # a text that is too long must not go unseen
        lost = self.torch.nn.functional.ctc_loss(told, batch.texts, steps, batch.characters, **losses)
        return lost / len(batch.frames)

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
