"""Trains a convolutional network with PyTorch, on one device, with DistributedDataParallel or Horovod, and reports by events.

    python3 train_pytorch.py --model=resnet18 --image-size=32 --num-classes=1000 --batch=32 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --strategy=single --data=synthetic --learning-rate=0.1 \
        --momentum=0.9 --weight-decay=0.0001 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=1
    torchrun --standalone --nproc-per-node=2 train_pytorch.py ... --strategy=ddp
    horovodrun --gloo -np 2 python3 train_pytorch.py ... --strategy=horovod --compression=none
    python3 train_pytorch.py ... --profile=kernels --profile-iterations=5

fp32 is IEEE single precision everywhere; tf32 lets matrix products and convolutions round their inputs to TF32; fp16 and bf16 are
torch.autocast with weights in fp32. On a GPU all but fp32 lay images out channels-last, which tensor cores want, and weights too,
except for Horovod.
"""

import contextlib
import itertools
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

AUTOCAST = {"fp16": "float16", "bf16": "bfloat16"}


def check(args, torch, *, launched):
    """Refuse what this program or this device can't do."""
    if args.devices != 1:
        refuse(
            f"--devices={args.devices}: a PyTorch process drives one device; start one process a device with torchrun"
        )
    if args.strategy not in {"single", "ddp", "horovod"}:
        refuse(f"--strategy={args.strategy} is not PyTorch's; it has single, ddp and horovod")
    if args.strategy != "single" and not launched:
        launcher = "torchrun" if args.strategy == "ddp" else "horovodrun"
        refuse(f"--strategy={args.strategy} needs the ranks that {launcher} starts; run this program with {launcher}")
    if args.strategy == "single" and launched:
        refuse("--strategy=single under a launcher would train one model a process; ask for ddp or horovod")
    if (args.strategy == "horovod") != (args.compression is not None):
        refuse("--strategy=horovod and --compression=none|fp16 go together; give both or neither")
    if args.device == "cpu":
        if args.precision in {"tf32", "fp16"}:
            refuse(f"--precision={args.precision} needs a GPU; on the CPU ask for fp32 or bf16")
        return
    if torch.cuda.device_count() <= local_rank():
        refuse(f"--device=gpu for local rank {local_rank()}, PyTorch sees {torch.cuda.device_count()} GPUs")
    capability = torch.cuda.get_device_capability(local_rank())
    needed = {"tf32": (8, 0), "bf16": (8, 0), "fp16": (5, 3), "fp32": (0, 0)}[args.precision]
    if capability < needed:
        has, needs = ".".join(map(str, capability)), ".".join(map(str, needed))
        name = torch.cuda.get_device_name(local_rank())
        refuse(f"--precision={args.precision} needs compute capability {needs}, the {name} has {has}; ask for fp32")


def open_data(args, *, rank, world_size, device, layout):
    """Open the source of batches: each rank draws its own."""
    from data_torch import ClassFolders, Images, Synthetic
    from torch.utils.data import DistributedSampler

    if args.data == "synthetic":
        return Synthetic(args, first=rank * args.batch, device=device, layout=layout)
    if not Path(args.data).is_dir():
        refuse(f"--data={args.data} is not a folder; PyTorch reads a folder of class folders with JPEGs")
    dataset = ClassFolders(args.data, image_size=args.image_size)
    if len(dataset.classes) > args.num_classes:
        refuse(f"{args.data} has {len(dataset.classes)} classes, --num-classes={args.num_classes} is less")
    if len(dataset) // world_size < args.batch:
        refuse(
            f"{args.data} holds {len(dataset)} JPEGs, too few for {world_size} batches of {args.batch}; ask for less"
        )
    sampler = DistributedSampler(dataset, world_size, rank, shuffle=True, seed=args.seed, drop_last=True)
    workers = args.loader_workers
    return Images(dataset, sampler, batch=args.batch, workers=workers, device=device, layout=layout)


def environment(args, torch, device):
    """Software and device as PyTorch names them."""
    gpu = device.type == "cuda"
    cudnn = torch.backends.cudnn.version() if gpu else None
    return {
        "python": platform.python_version(),
        "framework": "pytorch",
        "framework_version": torch.__version__,
        "device": args.device,
        "device_names": [torch.cuda.get_device_name(device)] if gpu else [],
        "threads": torch.get_num_threads(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "cuda": torch.version.cuda if gpu else None,
        "cudnn": str(cudnn) if cudnn else None,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if gpu else None,
    }


class Training:
    """Model, optimizer and data of one rank; `workloads/loop.py` says what its methods are for."""

    def __init__(self, args, torch, device, ranks):
        from models_torch import build

        self.args, self.torch, self.device, self.ranks = args, torch, device, ranks
        self.on_gpu = device.type == "cuda"
        self.marks, self.regions = [], Regions()
        torch.manual_seed(args.seed)  # the same on all ranks: they start from the same weights
        channels_last = self.on_gpu and args.precision != "fp32"
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        # Horovod takes contiguous tensors only; the gradients of a weight lie as the weight does, cuDNN turns both at little cost.
        weights = torch.contiguous_format if args.strategy == "horovod" else self.layout
        self.net = build(args.model, args.image_size, args.num_classes).to(device, memory_format=weights)
        self.parameters = list(self.net.parameters())
        self.model = ranks.model(self.net)
        self.reseed()
        # The fused update is one kernel, and the only one that takes a GradScaler's verdict without stopping the device.
        rates = {"lr": args.learning_rate, "momentum": args.momentum, "weight_decay": args.weight_decay}
        self.optimizer = ranks.optimizer(torch.optim.SGD(self.parameters, **rates, fused=True), self.net)
        # Zeros from the start give the same first update. Left to itself, the fused kernel allocates the momentum at the first
        # step and leaves it unset when the GradScaler skips that step, as it does until it has found its scale.
        for parameter in self.parameters:
            self.optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self.loss = torch.nn.CrossEntropyLoss()
        self.scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "fp16")
        self.autocast = contextlib.nullcontext()
        if args.precision in AUTOCAST:
            self.autocast = torch.autocast(device.type, dtype=getattr(torch, AUTOCAST[args.precision]))
        share = {"rank": ranks.rank, "world_size": ranks.world_size}
        self.batches = Batches(open_data(args, **share, device=device, layout=self.layout))

    def reseed(self):
        """From here on (dropout, augmentation) each rank draws its own numbers."""
        self.torch.manual_seed(self.args.seed + self.ranks.rank)

    def step(self):
        with self.regions("input"):
            images, labels = next(self.batches)
        with self.regions("optimizer"):
            self.optimizer.zero_grad()
        with self.regions("forward"), self.autocast:
            loss = self.loss(self.model(images), labels)
        with self.regions("backward"):
            self.scaler.scale(loss).backward()
        with self.regions("optimizer"):
            self.ranks.update(self.optimizer, self.scaler)
        return loss.detach()  # stays on the device: reading it here would stop it every step

    def synchronize(self):
        if self.on_gpu:
            self.torch.cuda.synchronize(self.device)

    def barrier(self):
        self.ranks.barrier()
        self.synchronize()

    def shared_loss(self):
        """Make a function that gives the loss on the batch that all ranks share."""
        from data_torch import SHARED, Synthetic

        images, labels = next(Synthetic(self.args, first=SHARED, device=self.device, layout=self.layout))

        def loss():
            with self.autocast:
                return self.loss(self.net(images), labels)

        return loss

    def evaluate(self):
        loss = self.shared_loss()
        self.torch.manual_seed(self.args.seed)  # the same dropout on all ranks
        with self.torch.no_grad():
            value = loss().item()
        self.reseed()
        return [value]

    def exchange(self, elements):
        return self.ranks.exchange(elements, self.device)

    def alone(self):
        loss = self.shared_loss()
        # Gradients that end here: those that reach a parameter would be exchanged by what waits for them there.
        return lambda: self.torch.autograd.grad(loss(), self.parameters)

    def read(self, losses):
        return self.torch.stack(losses).tolist()

    def mark(self):
        if self.on_gpu:
            self.marks.append(self.torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter())

    def step_seconds(self):
        steps, self.marks = list(itertools.pairwise(self.marks)), []
        if self.on_gpu:
            return [before.elapsed_time(after) / 1e3 for before, after in steps]
        return [after - before for before, after in steps]

    def profiler(self, kind, region):
        from with_pytorch.profiler import profiler

        del region  # what can be started at all can be started around each region
        return profiler(self, kind)

    def memory(self):
        from with_pytorch.profiler import memory

        return memory(self)

    def flop_counts(self):
        from with_pytorch.profiler import flop_counts

        return flop_counts(self.shared_loss(), self.parameters, samples=self.args.batch)

    def slowest(self, seconds):
        return self.ranks.slowest(seconds)

    def gradient_bytes(self):
        size = 2 if self.args.compression == "fp16" else 4  # weights and their gradients are in fp32 at every precision
        return size * sum(p.numel() for p in self.parameters)

    def flop_per_sample(self):
        from with_pytorch.operations import layers

        return per_sample(layers(self.net, self.args.image_size))

    def parameter_norm(self):
        squares = [p.detach().double().square().sum() for p in self.parameters]
        return math.sqrt(self.torch.stack(squares).sum().item())


def set_up(args, torch):
    """Choose the device and its arithmetic."""
    torch.set_num_threads(args.threads)
    torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    if args.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", local_rank())
    torch.cuda.set_device(device)
    return device


def main():
    args = parser(__doc__.splitlines()[0]).parse_args()
    pin(args.cpus_per_worker)

    import torch
    from with_pytorch.ranks import join, launched

    check(args, torch, launched=launched())
    imported = time.monotonic()
    device = set_up(args, torch)
    ranks = join(args, device)
    events = Events(rank=ranks.rank)
    events.emit("phase", name="import", seconds=imported - process_start())
    events.emit("env", **environment(args, torch, device))
    training = Training(args, torch, device, ranks)
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
        parameters=sum(p.numel() for p in training.parameters),
        seed=args.seed,
        gradient_bytes=training.gradient_bytes(),
        flop_per_sample=training.flop_per_sample(),
    )
    iterations = train(training, events, args, samples=args.batch)
    if args.data != "synthetic":
        events.emit("data", decoded=training.batches.source.decoded, skipped=sorted(training.batches.source.skipped))
    events.nccl()
    norm = finite(training.parameter_norm())
    events.emit("run_stop", iterations=iterations, samples=iterations * args.batch, parameter_norm=norm)
    ranks.leave()


if __name__ == "__main__":
    main()
