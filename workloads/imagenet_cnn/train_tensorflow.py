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

A step is one graph, whose operators run when their inputs are there: those of the update between those of the backward pass. Its
parts are the input and the rest, called `step`; there is no forward, backward or optimizer region to look at.
"""

import math
import os
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arguments import refuse
from events import Events, finite, process_start
from flags import parser
from flop import per_sample
from loop import Batches, train
from placement import local_rank, pin
from profiling import Regions

# Variables of Horovod's own launcher and of Open MPI's.
HOROVOD_RANKS = {"HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"}
STRATEGIES = ("single", "mirrored", "multiworker", "horovod")
ON_GPUS = {"fp32": (0, 0), "tf32": (8, 0), "fp16": (5, 3), "bf16": (8, 0)}


def check(args):
    """Refuse what this program can't do; before TensorFlow is imported, as nothing here needs it."""
    if args.strategy not in STRATEGIES:
        refuse(f"--strategy={args.strategy} is not TensorFlow's; it has {', '.join(STRATEGIES)}")
    if args.devices > 1 and args.strategy != "mirrored":
        refuse(f"--devices={args.devices} needs --strategy=mirrored; others drive one device a process")
    if (args.strategy == "horovod") != (args.compression is not None):
        refuse("--strategy=horovod and --compression=none|fp16 go together; give both or neither")
    if args.strategy == "horovod" and not HOROVOD_RANKS & set(os.environ):
        refuse("--strategy=horovod needs the ranks that horovodrun starts; run this program with horovodrun")
    if args.strategy == "multiworker" and "TF_CONFIG" not in os.environ:
        refuse("--strategy=multiworker needs TF_CONFIG; run this program with tf_workers.py")
    if args.strategy != "multiworker" and "TF_CONFIG" in os.environ:
        refuse(f"--strategy={args.strategy} under TF_CONFIG would train many models; ask for multiworker")
    if args.device == "cpu" and args.precision in {"tf32", "fp16"}:
        refuse(f"--precision={args.precision} needs a GPU; on the CPU ask for fp32 or bf16")
    if args.profile_region not in {None, "input"}:
        refuse(
            f"--profile-region={args.profile_region}: TensorFlow runs forward and backward pass and update as one graph, in the order in "
            "which their inputs are there; ask for input, or leave it out and look at the operators' names"
        )
    data = Path(args.data)
    packed = data.suffix == ".tfrecord" and data.is_file() and data.with_suffix(".json").is_file()
    if args.data != "synthetic" and not data.is_dir() and not packed:
        refuse(f"--data={args.data} is neither a folder of class folders with JPEGs nor a file of pack_tfrecord.py")


def set_up(args, tf):
    """Choose devices, threads and arithmetic; before TensorFlow looks at a device. Gives the GPUs of this process."""
    from with_tensorflow import shim

    if shim.V1 and (args.strategy not in {"single", "horovod"} or args.precision == "bf16"):
        refuse(f"TensorFlow {tf.__version__} is offered with single and horovod, in fp32, tf32 and fp16")
    if shim.V1 and args.profile:
        refuse(f"--profile={args.profile} needs TensorFlow 2, this is {tf.__version__}; leave it out, or ask for 2.21")
    shim.set_precision(args.precision)
    tf.config.threading.set_intra_op_parallelism_threads(args.threads * args.devices)
    if args.device == "cpu":
        # Replicas wait for each other inside operators: one thread for each, and one that carries their gradients.
        tf.config.threading.set_inter_op_parallelism_threads(args.devices + 1)
        tf.config.experimental.set_visible_devices([], "GPU")
        if args.devices > 1:
            (cpu,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * args.devices)
        return []
    seen = tf.config.experimental.list_physical_devices("GPU")
    used = seen[local_rank() : local_rank() + args.devices]
    if len(used) < args.devices:
        refuse(f"--device=gpu --devices={args.devices} for local rank {local_rank()}, TensorFlow sees {len(seen)} GPUs")
    for gpu in used:
        name, capability = shim.gpu_details(gpu)
        needed = ON_GPUS[args.precision]
        if capability and tuple(capability) < needed:
            has, needs = ".".join(map(str, capability)), ".".join(map(str, needed))
            refuse(f"--precision={args.precision} needs compute capability {needs}, the {name} has {has}; ask for fp32")
        tf.config.experimental.set_memory_growth(gpu, True)  # noqa: FBT003 - takes no keyword in 1.15
    tf.config.experimental.set_visible_devices(used, "GPU")
    return used


def environment(args, tf, gpus):
    """Software and devices as TensorFlow names them."""
    from with_tensorflow import shim

    built = shim.build_info() if gpus else {}
    return {
        "python": platform.python_version(),
        "framework": "tensorflow",
        "framework_version": tf.__version__,
        "device": args.device,
        "device_names": [shim.gpu_details(gpu)[0] for gpu in gpus],
        "threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "cuda": built.get("cuda_version"),
        "cudnn": built.get("cudnn_version"),
        "nccl": None,  # TensorFlow does not tell; where NCCL is used its own log does
    }


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


class Training:
    """Model, update and data of one process; `workloads/loop.py` says what its methods are for."""

    def __init__(self, args, tf, ranks):
        from data_tensorflow import normalized
        from models_tensorflow import build
        from with_tensorflow import shim
        from with_tensorflow.sgd import Sgd

        self.args, self.tf, self.shim, self.ranks, self.normalized = args, tf, shim, ranks, normalized
        self.on_gpu = args.device == "gpu"
        self.iteration, self.marks, self.regions = 0, [], Regions()
        with ranks.strategy.scope():
            shim.set_seed(args.seed)  # the same in all processes: they start from the same weights
            self.net = build(args.model, args.image_size, args.num_classes)
            self.variables = shim.trained(self.net)
            rates = {"learning_rate": args.learning_rate, "momentum": args.momentum, "weight_decay": args.weight_decay}
            self.sgd = Sgd(self.variables, **rates, scaled=args.precision == "fp16")
        ranks.broadcast(self.variables)
        self.differentiate = shim.compiled(self.loss_and_gradients, xla=args.xla)
        self.train = tf.function(self.train_all, autograph=False)
        self.test = tf.function(self.test_all, autograph=False)
        self.batches = Batches(open_data(args, ranks))

    def loss(self, images, labels, seed):
        logits = self.tf.cast(self.net([self.normalized(images), seed]), self.tf.float32)
        return self.tf.reduce_mean(self.tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    def loss_and_gradients(self, images, labels, seed):
        with self.tf.GradientTape() as tape:
            loss = self.loss(images, labels, seed)
            scaled = self.sgd.scaled(loss)
        return loss, tape.gradient(scaled, self.variables)

    def train_one(self, images, labels, iteration):
        """One replica's share of an iteration."""
        replica = self.tf.distribute.get_replica_context().replica_id_in_sync_group
        stream = self.args.seed + self.ranks.offset + replica  # each replica drops its own
        loss, gradients = self.differentiate(images, labels, self.tf.stack([stream, iteration]))
        self.sgd.apply(self.ranks.average(gradients))
        return loss

    def train_all(self, images, labels, iteration):
        """One iteration on all devices of this process: a loss a device."""
        losses = self.shim.run(self.ranks.strategy, self.train_one, (images, labels, iteration))
        return self.ranks.strategy.experimental_local_results(losses)

    def test_all(self, images, labels):
        """The loss on each device of this process, with the same dropout on all ranks and in no iteration."""
        seed = self.tf.constant([self.args.seed, -1])
        losses = self.shim.run(self.ranks.strategy, self.loss, (images, labels, seed))
        return self.ranks.strategy.experimental_local_results(losses)

    def pass_one(self, images, labels):
        """One replica's forward and backward pass; TensorFlow does only what is returned."""
        return self.differentiate(images, labels, self.tf.constant([self.args.seed, -1]))

    def pass_all(self, images, labels):
        """A pass on each device of this process."""
        return self.shim.run(self.ranks.strategy, self.pass_one, (images, labels))

    def step(self):
        with self.regions("input"):
            images, labels = next(self.batches)
        self.iteration += 1
        with self.regions("step"):
            return self.train(images, labels, self.tf.constant(self.iteration))

    def synchronize(self):
        if self.on_gpu:  # on CPUs a call returns when its work is done
            self.shim.synchronize()

    def barrier(self):
        self.ranks.barrier()

    def evaluate(self):
        from data_tensorflow import SHARED, Synthetic

        return [float(loss) for loss in self.test(*next(Synthetic(self.args, self.ranks, shared=SHARED)))]

    def exchange(self, elements):
        return self.ranks.exchange(elements)

    def alone(self):
        from data_tensorflow import SHARED, Synthetic

        batch = next(Synthetic(self.args, self.ranks, shared=SHARED))
        run = self.tf.function(self.pass_all, autograph=False)
        return lambda: run(*batch)

    def read(self, losses):
        return [math.fsum(map(float, parts)) / len(parts) for parts in losses]

    def mark(self):
        if not self.on_gpu:  # there TensorFlow shows no clock of the device
            self.marks.append(time.perf_counter())

    def step_seconds(self):
        marks, self.marks = self.marks, []
        return None if self.on_gpu else [after - before for before, after in zip(marks, marks[1:])]  # noqa: B905, RUF007 - Python 3.8

    def profiler(self, kind, _region):
        from with_tensorflow.profiler import profiler

        return profiler(self, kind)

    def memory(self):
        from with_tensorflow.profiler import memory

        return memory(self)

    def flop_counts(self):
        return []  # TensorFlow has figures registered for some types of operators, and counts nothing as it runs

    def slowest(self, seconds):
        return self.ranks.slowest(seconds)

    def gradient_bytes(self):
        size = (
            2 if self.args.compression == "fp16" else 4
        )  # variables and their gradients are in fp32 at every precision
        return size * sum(math.prod(variable.shape) for variable in self.variables)

    def flop_per_sample(self):
        from with_tensorflow.operations import layers

        return per_sample(layers(self.net))

    def parameter_norm(self):
        arrays = [variable.numpy().astype("float64") for variable in self.variables]
        return math.sqrt(math.fsum(float((array**2).sum()) for array in arrays))


def main():
    args = parser(__doc__.splitlines()[0]).parse_args()
    pin(args.cpus_per_worker * args.devices)
    check(args)

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
        parameters=sum(math.prod(variable.shape) for variable in training.variables),
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
