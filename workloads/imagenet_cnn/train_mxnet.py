"""Trains a convolutional network with MXNet Gluon, on one device, several, or several processes, and reports by events.

    python3 train_mxnet.py --model=resnet18 --image-size=32 --num-classes=1000 --batch=32 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --strategy=single --data=synthetic --learning-rate=0.1 \
        --momentum=0.9 --weight-decay=0.0001 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=1
    horovodrun --gloo -np 2 python3 train_mxnet.py ... --strategy=horovod --compression=none
    python3 train_mxnet.py ... --profile=kernels --profile-iterations=5

With --strategy=kvstore, `local`, `device` and `nccl` join the --devices of this process; `dist_sync`, `dist_async` and
`dist_sync_device` join processes that a launcher started with ps-lite's variables (DMLC_ROLE=worker, ...). fp16 casts the network
and keeps a copy of the weights in fp32 for the update; the loss is computed in fp32.
"""

import ctypes
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
from with_mxnet.profiler import UNBULKED


def check(args):
    """Refuse what this program can't do; before MXNet is imported, as nothing here needs it."""
    if args.strategy not in {"single", "kvstore", "horovod"}:
        refuse(f"--strategy={args.strategy} is not MXNet's; it has single, kvstore and horovod")
    if (args.strategy == "kvstore") != (args.kvstore is not None):
        refuse("--strategy=kvstore and --kvstore=NAME go together; give both or neither")
    if (args.strategy == "horovod") != (args.compression is not None):
        refuse("--strategy=horovod and --compression=none|fp16 go together; give both or neither")
    if args.devices > 1 and args.strategy != "kvstore":
        refuse(f"--devices={args.devices} needs --strategy=kvstore")
    if args.precision == "fp16" and args.device == "cpu":
        refuse("--precision=fp16 needs a GPU; on the CPU ask for fp32")
    if args.precision in {"tf32", "bf16"}:
        refuse(f"--precision={args.precision} is not offered with MXNet; ask for fp32, or on a GPU for fp16")
    if args.data != "synthetic":
        parts = [Path(args.data).with_suffix(suffix) for suffix in (".rec", ".idx", ".json")]
        if Path(args.data).suffix != ".rec" or not all(part.is_file() for part in parts):
            refuse(
                f"--data={args.data} is not a RecordIO file with .idx and .json beside it; make one with pack_recordio.py"
            )


def check_data(args, index, world_size):
    """Refuse a data set that does not fit the model or the batch."""
    if len(index["classes"]) > args.num_classes:
        refuse(f"{args.data} has {len(index['classes'])} classes, --num-classes={args.num_classes} is less")
    if index["images"] // world_size < args.batch * args.devices:
        refuse(
            f"{args.data} holds {index['images']} images, too few for {world_size} batches of {args.batch * args.devices}"
        )


def library_number(library, function):
    """Ask a CUDA library for its version as it numbers it; None where it is absent."""
    try:
        call = getattr(ctypes.CDLL(library), function)
    except (OSError, AttributeError):
        return None
    number = ctypes.c_int()
    call(ctypes.byref(number))
    return number.value


def cuda_versions():
    """Versions of the CUDA libraries that this MXNet was built for, written as PyTorch writes its own."""
    cuda = library_number("libcudart.so.11.0", "cudaRuntimeGetVersion")  # 11020 is 11.2
    nccl = library_number("libnccl.so.2", "ncclGetVersion")  # 22005 is 2.20.5
    try:
        cudnn = str(ctypes.CDLL("libcudnn.so.8").cudnnGetVersion())
    except OSError:
        cudnn = None
    return {
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        "cudnn": cudnn,
        "nccl": f"{nccl // 10000}.{nccl % 10000 // 100}.{nccl % 100}" if nccl else None,
    }


def gpu_name(index):
    """Name of a GPU: the first member, 256 characters, of CUDA 11's cudaDeviceProp."""
    properties = ctypes.create_string_buffer(4096)
    ctypes.CDLL("libcudart.so.11.0").cudaGetDeviceProperties(properties, index)
    return properties.value.decode()


def environment(args, mx):
    """Software and devices as MXNet's libraries name them."""
    gpu = args.device == "gpu"
    return {
        "python": platform.python_version(),
        "framework": "mxnet",
        "framework_version": mx.__version__,
        "device": args.device,
        "device_names": [gpu_name(i) for i in range(args.devices)] if gpu else [],
        "threads": args.threads,
        "cpus": sorted(os.sched_getaffinity(0)),
        **(cuda_versions() if gpu else {"cuda": None, "cudnn": None, "nccl": None}),
    }


class Training:
    """Network, trainer and data of one process; `workloads/loop.py` says what its methods are for."""

    def __init__(self, args, mx):
        from data_mxnet import Records, Synthetic, read_index
        from models_mxnet import build
        from with_mxnet.profiler import Regions, Storage
        from with_mxnet.ranks import join

        self.args, self.mx, self.ranks = args, mx, join(args)
        self.regions = Regions()
        self.storage = Storage(mx) if args.profile == "memory" and args.device == "gpu" else None
        self.local_batch = args.batch * args.devices
        kind = mx.gpu if args.device == "gpu" else mx.cpu
        first_gpu = local_rank() if args.device == "gpu" else 0
        self.contexts = [kind(first_gpu + number) for number in range(args.devices)]
        self.dtype = "float16" if args.precision == "fp16" else "float32"

        mx.random.seed(args.seed)  # the same in all processes: they start from the same weights
        self.net = build(args.model, args.image_size, args.num_classes, self.contexts)
        self.net.cast(self.dtype)
        self.net.hybridize(static_alloc=True, static_shape=True)
        self.loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
        self.loss.hybridize(static_alloc=True, static_shape=True)
        mx.nd.waitall()
        self.reseed()
        rates = {"learning_rate": args.learning_rate, "momentum": args.momentum, "wd": args.weight_decay}
        rates["multi_precision"] = args.precision == "fp16"
        self.trainer = self.ranks.trainer(self.net.collect_params(), rates)

        rank, processes = self.ranks.rank, self.ranks.processes
        place = {"contexts": self.contexts, "dtype": self.dtype}
        if args.data == "synthetic":
            source = Synthetic(args, first=rank * self.local_batch, count=self.local_batch, **place)
        else:
            check_data(args, read_index(args.data), processes)
            shape = (self.local_batch, 3, args.image_size, args.image_size)
            part = {"rank": rank, "world_size": processes, "workers": args.loader_workers}
            source = Records(args.data, shape, seed=args.seed, **place, **part)
        self.batches = Batches(source)

    def reseed(self):
        """From here on (dropout) each process draws its own numbers."""
        self.mx.random.seed(self.args.seed + self.ranks.rank)

    def step(self):
        with self.regions("input"):
            images, labels = next(self.batches)
        with self.regions("forward"), self.mx.autograd.record():
            losses = self.losses(images, labels)
        with self.regions("backward"):
            self.mx.autograd.backward(losses)
        with self.regions("optimizer"):
            self.trainer.step(self.ranks.step_size(self.local_batch))  # turns the sum of gradients into their mean
        return [loss.mean() for loss in losses]

    def losses(self, images, labels):
        """Loss of every sample, (batch,) on each device."""
        return [self.loss(self.net(x).astype("float32", copy=False), y) for x, y in zip(images, labels, strict=True)]

    def evaluate(self):
        from data_mxnet import SHARED, Synthetic

        found = []
        for context in self.contexts:
            self.mx.random.seed(self.args.seed, ctx=context)  # the same dropout on all devices
            images, labels = next(
                Synthetic(self.args, first=SHARED, count=self.args.batch, contexts=[context], dtype=self.dtype)
            )
            with self.mx.autograd.train_mode():
                (losses,) = self.losses(images, labels)
            found.append(float(losses.mean().asscalar()))
        self.reseed()
        return found

    def exchange(self, elements):
        return self.ranks.exchange(elements, self.contexts)

    def alone(self):
        from data_mxnet import SHARED, Synthetic

        place = {"contexts": self.contexts, "dtype": self.dtype}
        images, labels = next(Synthetic(self.args, first=SHARED, count=self.local_batch, **place))

        def run():
            with self.mx.autograd.record():
                losses = self.losses(images, labels)
            self.mx.autograd.backward(losses)  # the next step overwrites these gradients

        return run

    def synchronize(self):
        self.mx.nd.waitall()

    def barrier(self):
        self.ranks.barrier()

    def read(self, losses):
        return [math.fsum(float(part.asscalar()) for part in parts) / len(parts) for parts in losses]

    def mark(self):
        """Do nothing: MXNet's engine runs operators when their inputs are ready, steps have no edges of their own."""

    def step_seconds(self):
        return None

    def gpus(self):
        """Number in the job of each GPU of this process, by MXNet's own number."""
        first = self.ranks.rank * self.args.devices
        return {context.device_id: first + number for number, context in enumerate(self.contexts)}

    def profiler(self, kind, _region):
        from with_mxnet.profiler import profiler

        return profiler(self, kind)

    def memory(self):
        from with_mxnet.profiler import memory

        return memory(self)

    def flop_counts(self):
        return []  # MXNet has no counter

    def slowest(self, seconds):
        return self.ranks.slowest(seconds)

    def parameters(self):
        return [p for p in self.net.collect_params().values() if p.grad_req != "null"]

    def gradient_bytes(self):
        half = self.dtype == "float16" or self.args.compression == "fp16"
        return (2 if half else 4) * sum(math.prod(p.shape) for p in self.parameters())

    def flop_per_sample(self):
        from with_mxnet.operations import layers

        return per_sample(layers(self.net, self.args.image_size))

    def parameter_norm(self):
        arrays = [p.list_data()[0].asnumpy().astype("float64") for p in self.parameters()]
        return math.sqrt(math.fsum(float((array**2).sum()) for array in arrays))


def main():
    args = parser(__doc__.splitlines()[0]).parse_args()
    check(args)
    pin(args.cpus_per_worker * args.devices)
    # Read by MXNet when it is imported. cuDNN would otherwise use TF32 for fp32 convolutions on its own accord.
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    if args.profile == "kernels":
        os.environ.update(UNBULKED)

    from with_mxnet.shim import mx

    if args.device == "gpu" and mx.context.num_gpus() < local_rank() + args.devices:
        refuse(f"--device=gpu --devices={args.devices}, MXNet sees {mx.context.num_gpus()} GPUs")
    imported = time.monotonic()
    training = Training(args, mx)
    events = Events(rank=training.ranks.rank)
    processes = training.ranks.processes
    events.emit("phase", name="import", seconds=imported - process_start())
    events.emit("env", **environment(args, mx))
    events.phase("model", imported)
    events.emit(
        "run_start",
        world_size=args.devices * processes,
        batch_per_device=args.batch,
        global_batch=training.local_batch * processes,
        iterations=args.iterations,
        warmup=args.warmup,
        image_shape=[3, args.image_size, args.image_size],
        num_classes=args.num_classes,
        parameters=sum(math.prod(p.shape) for p in training.parameters()),
        seed=args.seed,
        gradient_bytes=training.gradient_bytes(),
        flop_per_sample=training.flop_per_sample(),
    )
    samples = training.local_batch
    iterations = train(training, events, args, samples=samples)
    if args.data != "synthetic":
        events.emit("data", decoded=training.batches.source.decoded, skipped=training.batches.source.skipped)
    events.nccl()
    norm = finite(training.parameter_norm())
    events.emit("run_stop", iterations=iterations, samples=iterations * samples, parameter_norm=norm)
    training.ranks.leave()


if __name__ == "__main__":
    main()
