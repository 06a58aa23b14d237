"""Trains a convolutional network with PyTorch, on one device, with DistributedDataParallel or Horovod, and reports by events.

    python3 train_pytorch.py --model=resnet18 --image-size=32 --num-classes=1000 --batch=32 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --strategy=single --data=synthetic --learning-rate=0.1 \
        --momentum=0.9 --weight-decay=0.0001 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=1
    torchrun --standalone --nproc-per-node=2 train_pytorch.py ... --strategy=ddp
    horovodrun --gloo -np 2 python3 train_pytorch.py ... --strategy=horovod --compression=none
    python3 train_pytorch.py ... --profile=kernels --profile-iterations=5
    python3 train_pytorch.py ... --epoch-iterations=10 --data=FOLDER
    python3 train_pytorch.py ... --device=gpu --data=FOLDER --decode=gpu

The loop is `workloads/loop.py`, the step `workloads/with_pytorch/training.py`; here are the network and its images.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arguments import refuse
from flags import parser
from flop import per_sample
from with_pytorch.training import Classifier, run


class Cnn(Classifier):
    """A convolutional network, and this rank's images."""

    def network(self):
        from models_torch import build

        return build(self.args.model, self.args.image_size, self.args.num_classes)

    def open(self):
        if self.args.data != "synthetic":
            return self.images()
        if self.args.epoch_iterations:
            refuse("--epoch-iterations validates on real images; give a folder of class folders as --data")
        return self.synthetic(first=self.ranks.rank * self.args.batch)  # each rank its own stretch of the global batch

    def synthetic(self, *, first):
        from data_torch import Synthetic

        return Synthetic(self.args, first=first, device=self.device, layout=self.layout)

    def images(self):
        from data_torch import ClassFolders, Images, Validation, open_folder
        from torch.utils.data import DistributedSampler

        args, ranks = self.args, self.ranks
        reader, source, decoder = ClassFolders, Images, {}
        if args.decode == "gpu":
            from decode_torch import Decoded, Encoded, nvjpeg

            reader, source, decoder = Encoded, Decoded, {"decode": nvjpeg(self.device)}
        dataset = open_folder(args, part=0 if args.epoch_iterations else None, reader=reader)
        if len(dataset) // ranks.world_size < args.batch:
            refuse(
                f"{args.data} holds {len(dataset)} JPEGs, too few for {ranks.world_size} batches of {args.batch}; ask for less"
            )
        loader = {"batch": args.batch, "workers": args.loader_workers, "device": self.device, "layout": self.layout}
        ranked = {"rank": ranks.rank, "world_size": ranks.world_size}
        if args.epoch_iterations:
            # By Pillow whatever trains, so that accuracies can be held together.
            held_out = open_folder(args, part=1).images
            self.held_out = Validation(args.data, held_out, image_size=args.image_size, **ranked, **loader)
        sampler = DistributedSampler(
            dataset, ranks.world_size, ranks.rank, shuffle=True, seed=args.seed, drop_last=True
        )
        return source(dataset, sampler, **loader, **decoder)

    def validation(self):
        yield from self.held_out
        self.batches.source.skipped |= self.held_out.skipped

    def shared_batch(self):
        from data_torch import SHARED

        return next(self.synthetic(first=SHARED))

    def shape(self):
        size = self.args.image_size
        return {"image_shape": [3, size, size], "num_classes": self.args.num_classes}

    def flop_per_sample(self):
        from with_pytorch.operations import layers

        return per_sample(layers(self.net, self.args.image_size))


def command_line():
    """Build the parser of this program."""
    made = parser(__doc__.splitlines()[0])
    made.add_argument("--decode", choices=("cpu", "gpu"), default="cpu", help="where the JPEGs of --data are decoded")
    return made


def main():
    args = command_line().parse_args()
    if args.decode == "gpu" and (args.device == "cpu" or args.data == "synthetic"):
        refuse("--decode=gpu decodes JPEGs on the GPU that trains; give --device=gpu and a folder as --data")
    run(Cnn, args)


if __name__ == "__main__":
    main()
