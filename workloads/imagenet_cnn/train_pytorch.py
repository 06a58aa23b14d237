"""Trains a convolutional network with PyTorch, on one device, with DistributedDataParallel, DataParallel or Horovod, and reports events.

    python3 train_pytorch.py --model=resnet18 --image-size=32 --num-classes=1000 --batch=32 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --strategy=single --data=synthetic --learning-rate=0.1 \
        --momentum=0.9 --weight-decay=0.0001 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=1
    torchrun --standalone --nproc-per-node=2 train_pytorch.py ... --strategy=ddp
    python3 train_pytorch.py ... --device=gpu --devices=2 --strategy=dp
    horovodrun --gloo -np 2 python3 train_pytorch.py ... --strategy=horovod --compression=none
    python3 train_pytorch.py ... --profile=kernels --profile-iterations=5
    python3 train_pytorch.py ... --epoch-iterations=10 --data=FOLDER
    python3 train_pytorch.py ... --device=gpu --data=FOLDER --decode=gpu

This file has the data, the network, the step and the timed window. `workloads/loop.py`, shared by all programs, runs the windows and
everything before and after them, and emits their events; `with_pytorch/training.py` has everything that is not measured.
"""

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arguments import refuse
from class_folders import check_fit
from flags import parser
from flop import per_sample
from loop import Batches
from networks import AUXILIARY, AVERAGING, EPSILON, RHO, RMSPROP, SMOOTHING, TRANSFORMERS
from with_pytorch.training import Training, run


class Cnn(Training):
    lacks = frozenset()

    def __init__(self, args, torch, device, ranks):
        from models_torch import build

        super().__init__(args, torch, device, ranks)
        self.criterion = torch.nn.CrossEntropyLoss(label_smoothing=SMOOTHING.get(args.model, 0.0))
        self.take(build(args.model, args.image_size, args.num_classes))
        if args.data == "synthetic":  # each rank has its own stretch of the global batch
            first, count = ranks.rank * args.batch, args.batch * args.devices
            self.batches = Batches(itertools.repeat(self.synthetic(first=first, count=count)))
        else:
            self.batches = Batches(self.images())

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
        return self.enqueue(batch)  # `learn`, or its replay with --techniques=cuda-graphs

    def learn(self, batch):
        with self.regions("optimizer"):
            self.optimizer.zero_grad()
        with self.regions("forward"), self.autocast:
            loss = self.loss(self.model, batch)
        with self.regions("update"):
            with self.regions("backward"):
                self.scaler.scale(loss).backward()
            with self.regions("optimizer"):
                self.ranks.update(self.optimizer, self.scaler)
        return loss.detach()  # stays on the device: reading it here would stall every step

    def loss(self, model, batch):
        images, labels = batch
        outputs = model(images)
        scores, *heads = outputs if isinstance(outputs, tuple) else (outputs,)
        loss = self.criterion(scores, labels)
        for head in heads:
            loss = loss + AUXILIARY[self.args.model] * self.criterion(head, labels)
        return loss

    def update_rule(self):
        if self.args.model in TRANSFORMERS:
            return self.ranks.optimizer(self.adamw(), self.net)
        if self.args.model not in RMSPROP:
            return super().update_rule()
        from with_pytorch.optimizers import RmsProp

        own = RmsProp(self.parameters, **self.rates, constants=(RHO, EPSILON, AVERAGING))
        return self.ranks.optimizer(own, self.net)

    def synthetic(self, *, first, count):
        """`count` samples of the synthetic data set from number `first`, which stay on the device."""
        from synthetic import samples

        args = self.args
        shape = {"image_size": args.image_size, "num_classes": args.num_classes}
        drawn = samples(args.seed, first=first, count=count, **shape)
        images, labels = map(self.torch.from_numpy, drawn)
        return images.to(self.device, memory_format=self.layout), labels.to(self.device)

    def images(self):
        from data_torch import ClassFolders, Images, Validation
        from torch.utils.data import DistributedSampler
        from with_pytorch.loading import open_folder

        args, ranks = self.args, self.ranks
        reader, source = ClassFolders, Images
        if args.decode == "gpu":
            from decode_dali import Decoded, Encoded, check_dali

            check_dali()
            reader, source = Encoded, Decoded
        dataset = open_folder(args, reader, part=0 if args.epoch_iterations else None)
        check_fit(args, classes=len(dataset.classes), images=len(dataset), devices=ranks.world_size * args.devices)
        loader = {
            "batch": args.batch * args.devices,
            "workers": args.loader_workers,
            "device": self.device,
            "layout": self.layout,
        }
        ranked = {"rank": ranks.rank, "world_size": ranks.world_size}
        if args.epoch_iterations:
            # Validation always decodes with Pillow, so that accuracies are comparable.
            held_out = open_folder(args, reader, part=1).images
            self.held_out = Validation(args.data, held_out, image_size=args.image_size, **ranked, **loader)
        sampler = DistributedSampler(
            dataset, ranks.world_size, ranks.rank, shuffle=True, seed=args.seed, drop_last=True
        )
        return source(dataset, sampler, **loader)

    def validation(self):
        yield from self.held_out
        self.batches.source.skipped |= self.held_out.skipped

    def shared_batch(self):
        from synthetic import SHARED

        return self.synthetic(first=SHARED, count=self.args.batch)

    def flop_per_sample(self):
        from with_pytorch.operations import layers

        return per_sample(layers(self.net, self.args.image_size))


def command_line():
    argparser = parser(__doc__.splitlines()[0])
    argparser.add_argument(
        "--decode", choices=("cpu", "gpu"), default="cpu", help="where the JPEGs of --data are decoded"
    )
    return argparser


def main():
    args = command_line().parse_args()
    if args.epoch_iterations and args.data == "synthetic":
        refuse("--epoch-iterations validates on real images; give a folder of class folders as --data")
    if args.decode == "gpu" and (args.device == "cpu" or args.data == "synthetic"):
        refuse("--decode=gpu decodes JPEGs on the GPU that trains; give --device=gpu and a folder as --data")
    if args.model in RMSPROP and "fused-optimizer" in args.techniques:
        refuse(f"--techniques=fused-optimizer is SGD's, and --model={args.model} has RMSprop; leave it out")
    run(Cnn, args)


if __name__ == "__main__":
    main()
