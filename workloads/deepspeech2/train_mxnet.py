"""Trains Deep Speech 2 with MXNet Gluon, on one device, several devices or several processes, and reports events.

    python3 train_mxnet.py --model=deepspeech2-small --batch=4 --iterations=16 --warmup=4 --window=4 --precision=fp32 --device=cpu \
        --devices=1 --strategy=single --data=synthetic --learning-rate=0.001 --momentum=0.9 --weight-decay=0 --longest=3 \
        --clip-norm=400 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=1
    horovodrun --gloo -np 2 python3 train_mxnet.py ... --strategy=horovod --compression=none
    python3 train_mxnet.py ... --profile=kernels --profile-iterations=5

Throughput counts seconds of audio, and FLOPs are per second of audio, as in `train_pytorch.py`. The norm of gradients is clipped
after they were summed over all devices, so the workers apply the updates and a key-value store only sums.

This file has the data, the network, the step and the timed window. `workloads/loop.py`, shared by all programs, runs the windows and
everything before and after them, and emits their events; `with_mxnet/training.py` has everything that is not measured.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import flags
from arguments import refuse
from flop import per_sample
from loop import Batches
from with_mxnet.training import Training, check, run


class Recognizer(Training):
    """One process' network and utterances."""

    def __init__(self, args, mx):
        super().__init__(args, mx)
        from data_mxnet import Synthetic, Wavs
        from models_mxnet import build

        net = build(args.model, self.contexts)
        net.hybridize()  # no static memory: the batches have many shapes
        rates = {"learning_rate": args.learning_rate, "momentum": args.momentum, "wd": args.weight_decay}
        self.take(net, rates, in_process=True)
        source = Synthetic if args.data == "synthetic" else Wavs
        self.batches = Batches(source(args, self.ranks, self.contexts))

    def window(self, iterations):
        """Run one timed window: whole steps, until the devices have finished them all."""
        losses = [self.step() for _ in range(iterations)]
        self.mx.nd.waitall()
        # Operators run as soon as their inputs are ready, so that steps have no boundaries.
        done = time.monotonic(), self.read(losses), None
        return lambda: done

    def step(self):
        with self.regions("input"):
            batch = next(self.batches)
        with self.regions("forward"), self.mx.autograd.record():
            losses = self.losses(*batch)
        with self.regions("backward"):
            self.mx.autograd.backward(losses)
        with self.regions("optimizer"):
            self.update()
        return [loss.mean() for loss in losses]

    def update(self):
        self.trainer.allreduce_grads()
        most = self.args.clip_norm * self.samples * self.ranks.processes
        for context in self.contexts:
            gradients = [p.grad(context) for p in self.parameters()]
            # Checking for finite gradients would wait for the device.
            self.mx.gluon.utils.clip_global_norm(gradients, most, check_isfinite=False)
        self.trainer.update(self.ranks.step_size(self.samples))

    def losses(self, *parts: list):
        """CTC loss of each utterance. Gluon's own loss expects the blank last; its underlying operator accepts it first, as in PyTorch."""
        lengths = {"use_data_lengths": True, "use_label_lengths": True, "blank_label": "first"}
        return [
            self.mx.nd.CTCLoss(self.net(spectrograms, steps, rows, places), texts, steps, characters, **lengths)
            for spectrograms, steps, rows, places, texts, characters in zip(*parts, strict=True)
        ]

    def shared_batch(self, count, contexts):
        import speech
        from data_mxnet import copy_to_devices

        share = count // len(contexts)
        how = {"longest_s": self.args.longest, "pairs": flags.SIZES[self.args.model].suite}
        batch = speech.shared_batch(self.args.seed, batch=share, **how)
        return copy_to_devices([batch] * len(contexts), contexts)

    def flop_per_sample(self):
        import speech

        return per_sample(self.net.multiplied(speech.frames_per_second()))


if __name__ == "__main__":
    args = flags.parser(__doc__.splitlines()[0]).parse_args()
    check(args)
    flags.check(args)
    if args.precision != "fp32":
        refuse(f"--precision={args.precision} is not offered by Deep Speech 2 in MXNet; ask for fp32")
    if args.kvstore == "dist_async":
        refuse("--kvstore=dist_async: its servers update without the norm of all gradients; ask for dist_sync")
    run(Recognizer, args)
