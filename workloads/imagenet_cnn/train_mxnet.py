"""Trains a convolutional network with MXNet Gluon, on one device, several devices or several processes, and reports events.

    python3 train_mxnet.py --model=resnet18 --image-size=32 --num-classes=1000 --batch=32 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --strategy=single --data=synthetic --learning-rate=0.1 \
        --momentum=0.9 --weight-decay=0.0001 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=1
    horovodrun --gloo -np 2 python3 train_mxnet.py ... --strategy=horovod --compression=none
    python3 train_mxnet.py ... --profile=kernels --profile-iterations=5
    python3 train_mxnet.py ... --epoch-iterations=10 --data=FOLDER

With --strategy=kvstore, `local`, `device` and `nccl` join the --devices of this process; `dist_sync`, `dist_async` and
`dist_sync_device` join processes that a launcher started with ps-lite's variables (DMLC_ROLE=worker, ...). fp16 casts the network
and keeps an fp32 copy of the weights for the update. bf16 (on CPUs only), and fp16 with --techniques=amp, keep weights in fp32 and cast the
inputs of matrix products and convolutions. The loss is computed in fp32.

This file has the data, the network, the step and the timed window. `workloads/loop.py`, shared by all programs, runs the windows and
everything before and after them, and emits their events; `with_mxnet/training.py` has everything that is not measured.
"""

import itertools
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arguments import check_model, refuse
from class_folders import check_fit, read_index
from flags import parser
from flop import per_sample
from loop import Batches
from networks import AUXILIARY, MXNET
from with_mxnet.techniques import TECHNIQUES, channels_last
from with_mxnet.training import Training, check, run


def check_file(args):
    """Refuse paths that are no data set of this program; contents are checked later."""
    if args.epoch_iterations:
        if not Path(args.data).is_dir():
            refuse(
                f"--data={args.data} is not a folder; with --epoch-iterations give one that holds one folder of JPEGs a class"
            )
        if args.kvstore == "dist_async":
            refuse(
                "--kvstore=dist_async: each worker has its own weights, so that no epoch ends with a single network to validate; ask for "
                "dist_sync"
            )
    elif args.data != "synthetic":
        parts = [Path(args.data).with_suffix(suffix) for suffix in (".rec", ".idx", ".json")]
        if Path(args.data).suffix != ".rec" or not all(part.is_file() for part in parts):
            refuse(
                f"--data={args.data} is not a RecordIO file with .idx and .json next to it; make one with pack_recordio.py"
            )


class Classifier(Training):
    def __init__(self, args, mx):
        super().__init__(args, mx)
        from models_mxnet import ChannelsLast, build

        net = build(args.model, args.image_size, args.num_classes, self.contexts)
        if "channels-last" in args.techniques:
            net = channels_last(net, mx, ChannelsLast())
        net.hybridize(static_alloc=True, static_shape=True)
        self.loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
        self.loss.hybridize(static_alloc=True, static_shape=True)
        self.take(net, {"learning_rate": args.learning_rate, "momentum": args.momentum, "wd": args.weight_decay})
        self.batches = Batches(self.open_data())

    def open_data(self):
        from data_mxnet import Records

        args, rank, processes = self.args, self.ranks.rank, self.ranks.processes
        if args.data == "synthetic":
            return itertools.repeat(self.synthetic(rank * self.samples, self.samples, self.contexts))
        if args.epoch_iterations:
            return self.folders()
        index = read_index(args.data)
        check_fit(args, classes=len(index["classes"]), images=index["images"], devices=processes * args.devices)
        shape = (self.samples, 3, args.image_size, args.image_size)
        part = {"rank": rank, "world_size": processes, "workers": args.loader_workers}
        return Records(args.data, shape, seed=args.seed, contexts=self.contexts, dtype=self.dtype, **part)

    def synthetic(self, first, count, contexts):
        """Samples of the synthetic data set, a batch split across the devices, on which it stays."""
        from data_mxnet import split
        from synthetic import samples

        args, array = self.args, self.mx.nd.array
        shape = {"image_size": args.image_size, "num_classes": args.num_classes}
        images, labels = samples(args.seed, first=first, count=count, **shape)
        return split(array(images), contexts, self.dtype), split(array(labels), contexts)

    def folders(self):
        from folders_mxnet import Central, Folders, TrainingBatches

        args, processes = self.args, self.ranks.processes
        part = {"rank": self.ranks.rank, "world_size": processes, "workers": args.loader_workers}
        folders = Folders(args.data, size=args.image_size, seed=args.seed, **part)
        images, devices = len(folders.training), processes * args.devices
        check_fit(args, classes=len(folders.classes), images=images, devices=devices)
        self.validation = Central(folders, folders.share(folders.validation), batch=args.batch)
        return TrainingBatches(folders, batch=self.samples, contexts=self.contexts, dtype=self.dtype)

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
            self.differentiate(losses)
        with self.regions("optimizer"):
            # Gradients are sums over all devices; the step divides them into means.
            self.trainer.step(self.ranks.step_size(self.samples))
        return [loss.mean() for loss in losses]

    def losses(self, images, labels):
        return [self.losses_on_device(x, y) for x, y in zip(images, labels, strict=True)]

    def losses_on_device(self, images, labels):
        scores, *heads = self.all_scores(images)
        loss = self.loss(scores, labels)
        for head in heads:
            loss = loss + AUXILIARY[self.args.model] * self.loss(head, labels)
        return loss

    def all_scores(self, images):
        """The scores of the network and its auxiliary classifiers, in fp32."""
        outputs = self.net(images)  # with several outputs, a list once hybridized
        return [
            scores.astype("float32", copy=False)
            for scores in (outputs if isinstance(outputs, tuple | list) else (outputs,))
        ]

    def validate(self):
        from folders_mxnet import normalized

        self.ranks.share([p for p in self.net.collect_params().values() if p.grad_req == "null"])
        samples, loss_sum, correct = 0, 0.0, 0
        for number, (pixels, labels) in enumerate(self.validation):
            context = self.contexts[number % len(self.contexts)]
            with self.mx.autograd.predict_mode():
                scores, *_ = self.all_scores(normalized(pixels, context).astype(self.dtype, copy=False))
                losses = self.loss(scores, self.mx.nd.array(labels, ctx=context))
            samples += len(labels)
            loss_sum += float(losses.sum().asscalar())
            correct += int((scores.argmax(axis=1).asnumpy() == labels).sum())
        return {"samples": samples, "loss_sum": loss_sum, "correct": correct}

    def shared_batch(self, count, contexts):
        from synthetic import SHARED

        return self.synthetic(SHARED, count, contexts)

    def effects(self):
        from models_mxnet import graph_of, nodes_of

        return self.effects_of(nodes_of(graph_of(self.net), casts=True))

    def flop_per_sample(self):
        from models_mxnet import multiplied

        return per_sample(multiplied(self.net, self.args.image_size))


def main():
    args = parser(__doc__.splitlines()[0]).parse_args()
    check_model(args, "MXNet", MXNET)
    check(args, offered=TECHNIQUES)
    check_file(args)
    run(Classifier, args)


if __name__ == "__main__":
    main()
