"""What every training program of MXNet has: its checks, what is set before MXNet is imported, `Training` for the loop, and `run`.

A program derives from `Training` and, in its own `__init__` after that of the base, calls `take` with its network and sets

    batches     `loop.Batches` of tuples; each part of a batch is a list with an array a context, whose first dimension is the sample.
                A source of anything but synthetic samples also counts what it `decoded` and names what it `skipped`

It has these methods besides:

    step(), window(n)           what is measured: `loop.py`
    losses(*batch)              the loss of every sample, (batch,) on each context, as a list
    shared_batch(count, contexts)  the first `count` samples of the batch on which all ranks compute a loss, divided among `contexts`
    flop_per_sample()           {"forward", "backward"}, as `flop.per_sample` counts them, or None
"""

import ctypes
import math
import os
import time

import loop
import process
from arguments import check_epochs, check_strategy, refuse
from events import Events, process_start
from process import local_rank, pin
from with_mxnet import techniques
from with_mxnet.profiler import UNBULKED, Regions, Storage


def check(args, *, offered=()):
    """Refuse what no MXNet program can do, and techniques that are not `offered`; before MXNet is imported, as nothing here needs it."""
    check_strategy(args, "MXNet", ("single", "kvstore", "horovod"))
    if (args.strategy == "kvstore") != (args.kvstore is not None):
        refuse("--strategy=kvstore and --kvstore=NAME go together; give both or neither")
    if args.devices > 1 and args.strategy != "kvstore":
        refuse(f"--devices={args.devices} needs --strategy=kvstore")
    check_precision(args, bf16=args.device == "cpu")
    techniques.check(args, offered=offered)
    check_epochs(args)


def check_precision(args, *, bf16=False):
    """Refuse a precision that MXNet does not have on this kind of device; `bf16`: whether this program has it there."""
    if args.precision == "fp16" and args.device == "cpu":
        refuse("--precision=fp16 needs a GPU; on the CPU ask for fp32")
    if args.precision == "tf32" or (args.precision == "bf16" and not bf16):
        refuse(f"--precision={args.precision} is not offered here with MXNet; ask for fp32, or on a GPU for fp16")


def set_up(args, *, unbulked=False):
    """Pin this process, set what MXNet reads when it is imported, import it, and look for the devices. Gives MXNet.

    unbulked: let the engine start each operator by itself, so that its profiler names them one by one.
    """
    pin(args.cpus_per_worker * args.devices)
    # cuDNN would otherwise use TF32 for fp32 convolutions on its own accord.
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    if unbulked:
        os.environ.update(UNBULKED)

    from with_mxnet.shim import mx

    if args.device == "gpu" and mx.context.num_gpus() < local_rank() + args.devices:
        refuse(f"--device=gpu --devices={args.devices}, MXNet sees {mx.context.num_gpus()} GPUs")
    return mx


def contexts(args, mx):
    kind, first = (mx.gpu, local_rank()) if args.device == "gpu" else (mx.cpu, 0)
    return [kind(first + number) for number in range(args.devices)]


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
    told = {"framework": "mxnet", "framework_version": mx.__version__, "device_names": []}
    if args.device == "gpu":
        told.update(cuda_versions(), device_names=[gpu_name(i) for i in range(args.devices)])
    return process.environment(args, **told)


class Training(loop.Training):
    """Network, trainer and data of one process; `workloads/loop.py` says what its methods are for."""

    framework = "with_mxnet"

    def __init__(self, args, mx):
        from with_mxnet.ranks import join

        self.args, self.mx, self.ranks = args, mx, join(args)
        self.regions = Regions()
        self.storage = Storage(mx) if args.profile == "memory" and args.device == "gpu" else None
        self.samples = args.batch * args.devices  # what one iteration of this process trains on
        self.contexts = contexts(args, mx)
        lists = techniques.by_lists(args)
        if lists:
            from mxnet.contrib import amp

            amp.init(target_dtype=lists)  # of the whole process, for all that is built from here on
        self.dtype = "float16" if args.precision == "fp16" and not lists else "float32"  # of the network
        self.scales = lists == "float16"
        mx.random.seed(args.seed)  # the same in all processes: they start from the same weights

    def take(self, net, rates, *, here=False):
        """Train `net`, whose weights are on all contexts, by SGD with `rates`, the words of `mx.optimizer.SGD`.

        here: a program steps by itself with gradients that were added up, rather than a key-value store for it. So do techniques of the update.
        """
        self.net = net
        self.net.cast(self.dtype)
        self.mx.nd.waitall()
        self.reseed()
        rates = {**rates, "multi_precision": self.dtype == "float16"}
        together = "aggregated-updates" in self.args.techniques
        here = here or self.scales or together
        self.trainer = self.ranks.trainer(self.net.collect_params(), rates, here=here)
        self.updates = techniques.counted(self.trainer.optimizer) if together else []
        if self.scales:
            from mxnet.contrib import amp

            amp.init_trainer(self.trainer)

    def differentiate(self, losses):
        if not self.scales:
            self.mx.autograd.backward(losses)
            return
        from mxnet.contrib import amp

        with self.mx.autograd.record(), amp.scale_loss(losses, self.trainer) as scaled:
            self.mx.autograd.backward(scaled)

    def effects_of(self, nodes):
        """What `loop.measure` asks for once, of a network whose graph has these nodes, and of the updates so far; later ones are not noted."""
        vars(self.trainer.optimizer).pop("update_multi_precision", None)
        return techniques.effects(self.args, nodes, self.updates)

    def reseed(self):
        """From here on (dropout) each process draws its own numbers."""
        self.mx.random.seed(self.args.seed + self.ranks.rank)

    def evaluate(self):
        found = []
        for context in self.contexts:
            self.mx.random.seed(self.args.seed, ctx=context)  # the same dropout on all devices
            with self.mx.autograd.train_mode():
                (losses,) = self.losses(*self.shared_batch(self.args.batch, [context]))
            found.append(float(losses.mean().asscalar()))
        self.reseed()
        return found

    def exchange(self, elements):
        return self.ranks.exchange(elements, self.contexts)

    def collectives(self):
        return self.ranks.collectives(self.contexts)

    def alone(self):
        batch = self.shared_batch(self.samples, self.contexts)

        def run():
            with self.mx.autograd.record():
                losses = self.losses(*batch)
            self.mx.autograd.backward(losses)  # the next step overwrites these gradients

        return run

    def product(self, size, _precision):
        factors = [self.mx.nd.full((size, size), 0.5, ctx=context) for context in self.contexts]
        words = {"num_hidden": size, "no_bias": True}

        def run():
            for factor in factors:
                self.mx.nd.FullyConnected(factor, factor, **words)

        return run, len(factors), "FullyConnected"

    def synchronize(self):
        self.mx.nd.waitall()

    def read(self, losses):
        return [math.fsum(float(part.asscalar()) for part in parts) / len(parts) for parts in losses]

    def gpus(self):
        """Number in the job of each GPU of this process, by MXNet's own number."""
        first = self.ranks.rank * self.args.devices
        return {context.device_id: first + number for number, context in enumerate(self.contexts)}

    def parameters(self):
        return [p for p in self.net.collect_params().values() if p.grad_req != "null"]

    def parameter_count(self):
        return sum(math.prod(p.shape) for p in self.parameters())

    def gradient_bytes(self):
        return 2 * self.parameter_count() if self.dtype == "float16" else super().gradient_bytes()

    def parameter_norm(self):
        return loop.norm(p.list_data()[0].asnumpy() for p in self.parameters())


def run(make, args):
    """Do what the command line asks for with `make(args, mx)`, a `Training`, and report by events, from the first to `run_stop`."""
    techniques.set_up(args)
    mx = set_up(args, unbulked=args.profile == "kernels")
    imported = time.monotonic()
    training = make(args, mx)
    events = Events(rank=training.ranks.rank)
    events.emit("phase", name="import", seconds=imported - process_start())
    events.emit("env", **environment(args, mx))
    events.phase("model", imported)
    loop.report(training, events, args, world_size=args.devices * training.ranks.processes)
    training.ranks.leave()
