"""What every training program needs with TensorFlow: what it refuses, its devices, its environment, and the loop's methods (`loop.py`).

A program derives from `Training`, or from `Classifier` where one network learns labels by SGD, and says what its networks, their
batches and their update are. A step is one graph, whose operators run when their inputs are there: those of the update between those of
the backward pass. Its parts are the input and the rest, called `step`; there is no forward, backward or optimizer region to look at.

Whatever draws random numbers in a replica seeds them with a pair (stream, step) in int32 and with a number of its own: no two replicas
have the same stream, no two iterations the same step.
"""

import math
import os
import platform
import time

from arguments import refuse
from flop import per_sample
from loop import Batches
from placement import local_rank
from profiling import Regions

# Variables of Horovod's own launcher and of Open MPI's.
HOROVOD_RANKS = {"HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"}
STRATEGIES = ("single", "mirrored", "multiworker", "horovod")
ON_GPUS = {"fp32": (0, 0), "tf32": (8, 0), "fp16": (5, 3), "bf16": (8, 0)}


def check(args):
    """Refuse what no program with TensorFlow can do; before TensorFlow is imported, as nothing here needs it."""
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
    if args.profile_region not in {None, "input"}:
        refuse(
            f"--profile-region={args.profile_region}: TensorFlow runs forward and backward pass and update as one graph, in the order in "
            "which their inputs are there; ask for input, or leave it out and look at the operators' names"
        )
    check_precision(args)


def check_precision(args):
    """Refuse a precision that TensorFlow does not have on this kind of device."""
    if args.device == "cpu" and args.precision in {"tf32", "fp16"}:
        refuse(f"--precision={args.precision} needs a GPU; on the CPU ask for fp32 or bf16")


def set_up(args, tf):
    """Choose devices, threads and arithmetic of a training; before TensorFlow looks at a device. Gives the GPUs of this process."""
    from with_tensorflow import shim

    if shim.V1 and (args.strategy not in {"single", "horovod"} or args.precision == "bf16"):
        refuse(f"TensorFlow {tf.__version__} is offered with single and horovod, in fp32, tf32 and fp16")
    if shim.V1 and args.profile:
        refuse(f"--profile={args.profile} needs TensorFlow 2, this is {tf.__version__}; leave it out, or ask for 2.21")
    shim.set_precision(args.precision)
    return set_up_devices(args, tf)


def set_up_devices(args, tf):
    """Choose devices and threads. Gives the GPUs of this process."""
    from with_tensorflow import shim

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


class Training:
    """Networks, update and data of one process; `workloads/loop.py` says what its methods are for.

    A program's own class has

        build()                       make the networks and what updates them, in the scope of the strategy: sets `variables`, all that is
                                      trained, and `net`, the Keras model of which operations are counted
        train_one(*batch, iteration)  one replica's share of an iteration: its loss
        loss(*batch, seed)            one replica's loss, with no update
        pass_one(*batch, seed)        one replica's forward and backward pass: all that has to be computed, or TensorFlow would leave it out
        source()                      where batches come from: an iterator over what stands for `*batch` above
        shared()                      the batch on which all replicas compute one loss
    """

    def __init__(self, args, tf, ranks):
        from with_tensorflow import shim

        self.args, self.tf, self.shim, self.ranks = args, tf, shim, ranks
        self.on_gpu = args.device == "gpu"
        self.iteration, self.marks, self.regions = 0, [], Regions()
        with ranks.strategy.scope():
            shim.set_seed(args.seed)  # the same in all processes: they start from the same weights
            self.build()
        ranks.broadcast(self.variables)
        self.train = self.on_all(self.train_one)
        self.test = self.on_all(self.loss)
        self.batches = Batches(self.source())

    def on_all(self, function):
        """Make one graph of a function that runs once a replica; gives what it returned on each device of this process."""

        def run(*inputs: object):
            results = self.shim.run(self.ranks.strategy, function, inputs)
            return self.tf.nest.map_structure(self.ranks.strategy.experimental_local_results, results)

        return self.tf.function(run, autograph=False)

    def own_seed(self, iteration):
        """The seed of the replica that asks, in an iteration."""
        replica = self.tf.distribute.get_replica_context().replica_id_in_sync_group
        return self.tf.stack([self.args.seed + self.ranks.offset + replica, iteration])

    def common_seed(self):
        """A seed that all replicas share, of no iteration."""
        return self.tf.constant([self.args.seed, -1])

    def step(self):
        with self.regions("input"):
            batch = next(self.batches)
        self.iteration += 1
        with self.regions("step"):
            return self.train(*batch, self.tf.constant(self.iteration))

    def synchronize(self):
        if self.on_gpu:  # on CPUs a call returns when its work is done
            self.shim.synchronize()

    def barrier(self):
        self.ranks.barrier()

    def evaluate(self):
        return [float(loss) for loss in self.test(*self.shared(), self.common_seed())]

    def exchange(self, elements):
        return self.ranks.exchange(elements)

    def alone(self):
        batch, run = self.shared(), self.on_all(self.pass_one)
        return lambda: run(*batch, self.common_seed())

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

    def parameter_count(self):
        return sum(math.prod(variable.shape) for variable in self.variables)

    def gradient_bytes(self):
        # Variables and their gradients are in fp32 at every precision.
        return (2 if self.args.compression == "fp16" else 4) * self.parameter_count()

    def flop_per_sample(self):
        from with_tensorflow.operations import layers

        return per_sample(layers(self.net))

    def parameter_norm(self):
        arrays = [variable.numpy().astype("float64") for variable in self.variables]
        return math.sqrt(math.fsum(float((array**2).sum()) for array in arrays))


class Classifier(Training):
    """One network of (inputs, seed) that learns labels by SGD; a batch is (inputs, labels). `network()` makes it."""

    def build(self):
        from with_tensorflow.sgd import Sgd

        args = self.args
        self.net = self.network()
        self.variables = self.shim.trained(self.net)
        rates = {"learning_rate": args.learning_rate, "momentum": args.momentum, "weight_decay": args.weight_decay}
        self.sgd = Sgd(self.variables, **rates, scaled=args.precision == "fp16")
        self.differentiate = self.shim.compiled(self.loss_and_gradients, xla=args.xla)

    def prepared(self, inputs):
        """What the network takes, of what a batch has."""
        return inputs

    def losses(self, inputs, labels, seed, **mode: object):
        """The loss of each sample, and the network's outputs."""
        logits = self.tf.cast(self.net([self.prepared(inputs), seed], **mode), self.tf.float32)
        return self.tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits), logits

    def loss(self, inputs, labels, seed):
        return self.tf.reduce_mean(self.losses(inputs, labels, seed)[0])

    def loss_and_gradients(self, inputs, labels, seed):
        with self.tf.GradientTape() as tape:
            loss = self.loss(inputs, labels, seed)
            scaled = self.sgd.scaled(loss)
        return loss, tape.gradient(scaled, self.variables)

    def train_one(self, inputs, labels, iteration):
        loss, gradients = self.differentiate(inputs, labels, self.own_seed(iteration))
        self.sgd.apply(self.ranks.average(gradients))
        return loss

    def pass_one(self, inputs, labels, seed):
        return self.differentiate(inputs, labels, seed)  # TensorFlow does only what is returned
