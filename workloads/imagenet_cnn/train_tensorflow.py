"""Trains a convolutional network with TensorFlow, on one device, several, or several processes, and reports by events.

    python3 train_tensorflow.py --model=resnet18 --image-size=32 --num-classes=1000 --batch=32 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --strategy=single --data=synthetic --learning-rate=0.02 \
        --momentum=0.9 --weight-decay=0.0001 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=1
    python3 train_tensorflow.py ... --devices=2 --strategy=mirrored
    python3 ../tf_workers.py --cluster=127.0.0.1:20001,127.0.0.1:20002 --first=0 --count=2 \
        python3 train_tensorflow.py ... --strategy=multiworker
    horovodrun --gloo -np 2 python3 train_tensorflow.py ... --strategy=horovod --compression=none
    python3 train_tensorflow.py ... --profile=kernels --profile-iterations=5

A Keras model in a loop of its own: `model.fit` of Keras 3 does not work under MultiWorkerMirroredStrategy, and its optimizers do not
average under Horovod. Images are NHWC. fp32 is IEEE single precision everywhere; tf32 lets matrix products and convolutions
round their inputs to TF32; fp16 and bf16 are Keras' mixed precision with weights in fp32. --xla compiles forward and backward pass;
what joins the replicas stays outside of it.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arguments import refuse
from events import Events, finite, process_start
from flags import parser
from loop import train
from placement import pin
from with_tensorflow.training import Classifier, check, environment, set_up


def check_data(args):
    """Refuse what holds no images for this program; before TensorFlow is imported, as nothing here needs it."""
    data = Path(args.data)
    packed = data.suffix == ".tfrecord" and data.is_file() and data.with_suffix(".json").is_file()
    if args.data != "synthetic" and not data.is_dir() and not packed:
        refuse(f"--data={args.data} is neither a folder of class folders with JPEGs nor a file of pack_tfrecord.py")


def open_data(args, ranks):
    """Open the source of batches: each process draws its own."""
    from class_folders import class_folders
    from data_tensorflow import Folders, Records, Synthetic, read_index

    if args.data == "synthetic":
        return Synthetic(args, ranks)
    packed = not Path(args.data).is_dir()
    index = read_index(args.data) if packed else None
    classes, images = (index["classes"], range(index["images"])) if packed else class_folders(args.data)
    if len(classes) > args.num_classes:
        refuse(f"{args.data} has {len(classes)} classes, --num-classes={args.num_classes} is less")
    if len(images) // ranks.world_size < args.batch:
        refuse(f"{args.data} holds {len(images)} JPEGs, too few for {ranks.world_size} batches of {args.batch}")
    return Records(args, ranks) if packed else Folders(args, ranks, images=images)


class Training(Classifier):
    """Model, update and data of one process; `with_tensorflow/training.py` and `workloads/loop.py` say what its methods are for."""

    def network(self):
        from models_tensorflow import build

        return build(self.args.model, self.args.image_size, self.args.num_classes)

    def prepared(self, images):
        from data_tensorflow import normalized

        return normalized(images)

    def source(self):
        return open_data(self.args, self.ranks)

    def shared(self):
        from data_tensorflow import SHARED, Synthetic

        return next(Synthetic(self.args, self.ranks, shared=SHARED))


def main():
    args = parser(__doc__.splitlines()[0]).parse_args()
    pin(args.cpus_per_worker * args.devices)
    check(args)
    check_data(args)

    from with_tensorflow.ranks import join
    from with_tensorflow.shim import tf

    gpus = set_up(args, tf)
    imported = time.monotonic()
    ranks = join(args)
    events = Events(rank=ranks.rank)
    events.emit("phase", name="import", seconds=imported - process_start())
    events.emit("env", **environment(args, tf, gpus))
    training = Training(args, tf, ranks)
    events.phase("model", imported)
    events.emit(
        "run_start",
        world_size=ranks.world_size,
        batch_per_device=args.batch,
        global_batch=args.batch * ranks.world_size,
        iterations=args.iterations,
        warmup=args.warmup,
        image_shape=[3, args.image_size, args.image_size],
        num_classes=args.num_classes,
        parameters=training.parameter_count(),
        seed=args.seed,
        gradient_bytes=training.gradient_bytes(),
        flop_per_sample=training.flop_per_sample(),
    )
    samples = args.batch * args.devices
    iterations = train(training, events, args, samples=samples)
    if args.data != "synthetic":
        events.emit("data", decoded=training.batches.source.decoded, skipped=training.batches.source.skipped)
    events.nccl()
    norm = finite(training.parameter_norm())
    events.emit("run_stop", iterations=iterations, samples=iterations * samples, parameter_norm=norm)
    ranks.leave()


if __name__ == "__main__":
    main()
