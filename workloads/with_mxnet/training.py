"""Common part of all MXNet training programs: checks, what is set before MXNet's import, `Training` for the loop, and `run`.

A program subclasses `Training`; its `__init__` calls the base's, then `take` with its network, and sets

    batches     `loop.Batches` of tuples; each part of a batch is a list with one array per context, samples along the first dimension.
                Unless its samples are synthetic, the source counts what it `decoded` and names what it `skipped`

It also has these methods:

    step(), window(n)           what is measured: `loop.py`
    losses(*batch)              the loss of every sample, (batch,) on each context, as a list
    shared_batch(count, contexts)  the first `count` samples of the batch on which all ranks compute a loss, divided among `contexts`
    flop_per_sample()           {"forward", "backward"} as in `flop.per_sample`, or None
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
    """Refuse what no MXNet program supports, and techniques that are not `offered`; runs before MXNet's import and does not need it."""
    check_strategy(args, "MXNet", ("single", "kvstore", "horovod"))
    if (args.strategy == "kvstore") != (args.kvstore is not None):
        refuse("--strategy=kvstore and --kvstore=NAME go together; give both or neither")
    if args.devices > 1 and args.strategy != "kvstore":
        refuse(f"--devices={args.devices} needs --strategy=kvstore")
    check_precision(args, bf16=args.device == "cpu")
    techniques.check(args, offered=offered)
    check_epochs(args)


def check_precision(args, *, bf16=False):
    """Refuse a precision that MXNet lacks on this kind of device; `bf16`: whether this program has it there."""
    if args.precision == "fp16" and args.device == "cpu":
        refuse("--precision=fp16 needs a GPU; on the CPU ask for fp32")
    if args.precision == "tf32" or (args.precision == "bf16" and not bf16):
        refuse(f"--precision={args.precision} is not offered here with MXNet; ask for fp32, or on a GPU for fp16")


def set_up(args, *, unbulked=False):
    """Pin this process, set what MXNet reads at import, import it, and check the devices. Returns MXNet.

    unbulked: have the engine start each operator separately, so that its profiler records each.
    """
    pin(args.cpus_per_worker * args.devices)
    # By default cuDNN uses TF32 for fp32 convolutions.
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    if unbulked:
        os.environ.update(UNBULKED)

    from with_mxnet.shim import mx

    if args.device == "gpu" and mx.context.num_gpus() < local_rank() + args.devices:
        refuse(f"--devices={args.devices} from local rank {local_rank()} on: MXNet sees {mx.context.num_gpus()} GPUs")
    return mx


def contexts(args, mx):
    kind, first = (mx.gpu, local_rank()) if args.device == "gpu" else (mx.cpu, 0)
    return [kind(first + number) for number in range(args.devices)]


def library_number(library, function):
    """Version number of a CUDA library in its own encoding; None if the library is absent."""
    try:
        call = getattr(ctypes.CDLL(library), function)
    except (OSError, AttributeError):
        return None
    number = ctypes.c_int()
    call(ctypes.byref(number))
    return number.value


def cuda_versions():
    """Versions of the CUDA libraries that this MXNet was built for, formatted as PyTorch formats them."""
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
    fields = {"framework": "mxnet", "framework_version": mx.__version__, "device_names": []}
    if args.device == "gpu":
        fields.update(cuda_versions(), device_names=[gpu_name(i) for i in range(args.devices)])
    return process.environment(args, **fields)


class Training(loop.Training):
    """Network, trainer and data of one process; `workloads/loop.py` describes its methods."""

    framework = "with_mxnet"

    def __init__(self, args, mx):
        from with_mxnet.ranks import join

        self.args, self.mx, self.ranks = args, mx, join(args)
        self.regions = Regions()
        self.storage = Storage(mx) if args.profile == "memory" and args.device == "gpu" else None
        self.samples = args.batch * args.devices  # per iteration of this process
        self.contexts = contexts(args, mx)
        amp_dtype = techniques.by_lists(args)
        if amp_dtype:
            from mxnet.contrib import amp

            amp.init(target_dtype=amp_dtype)  # affects the whole process, from here on
        self.dtype = "float16" if args.precision == "fp16" and not amp_dtype else "float32"  # the network's
        self.scales = amp_dtype == "float16"
        mx.random.seed(args.seed)  # the same in all processes, so that they start from the same weights

    def take(self, net, rates, *, in_process=False):
        """Train `net`, whose weights are on all contexts, by SGD with `rates`, the keyword arguments of `mx.optimizer.SGD`.

        in_process: the program applies the summed gradients itself, rather than a key-value store. Techniques of the update imply it.
        """
        self.net = net
        self.net.cast(self.dtype)
        self.mx.nd.waitall()
        self.reseed()
        rates = {**rates, "multi_precision": self.dtype == "float16"}
        aggregated = "aggregated-updates" in self.args.techniques
        in_process = in_process or self.scales or aggregated
        self.trainer = self.ranks.trainer(self.net.collect_params(), rates, in_process=in_process)
        self.updates = techniques.counted(self.trainer.optimizer) if aggregated else []
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
        """`effects` for `loop.measure`, of a graph with these nodes and of the updates so far; stops recording updates."""
        vars(self.trainer.optimizer).pop("update_multi_precision", None)
        return techniques.effects(self.args, nodes, self.updates)

    def reseed(self):
        """Seed each process differently from here on (dropout)."""
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
        options = {"num_hidden": size, "no_bias": True}

        def run():
            for factor in factors:
                self.mx.nd.FullyConnected(factor, factor, **options)

        return run, len(factors), "FullyConnected"

    def synchronize(self):
        self.mx.nd.waitall()

    def read(self, losses):
        return [math.fsum(float(part.asscalar()) for part in parts) / len(parts) for parts in losses]

    def gpus(self):
        """Index in the job of each GPU of this process, by MXNet's own index."""
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
    """Run the requested training with `make(args, mx)`, a `Training`, and emit its events, from the first to `run_stop`."""
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
