"""Trains a convolutional network with PyTorch, on one device or with DistributedDataParallel, and reports by events.

    python3 train_pytorch.py --model=resnet18 --image-size=32 --num-classes=1000 --batch=32 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --strategy=single --data=synthetic --learning-rate=0.1 \
        --momentum=0.9 --weight-decay=0.0001 --seed=1 --threads=2 --loader-workers=1
    torchrun --standalone --nproc-per-node=2 train_pytorch.py ... --strategy=ddp

fp32 is IEEE single precision everywhere; tf32 lets matrix products and convolutions round their inputs to TF32; fp16 and bf16 are
torch.autocast with weights in fp32. On a GPU all but fp32 lay images out channels-last, which tensor cores want.
"""

import contextlib
import itertools
import math
import os
import platform
import sys
import time
from pathlib import Path

from arguments import refuse, training_parser

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from events import Events, finite, process_start
from loop import measure

AUTOCAST = {"fp16": "float16", "bf16": "bfloat16"}


def check(args, torch):
    """Refuse what this program or this device can't do."""
    if args.devices != 1:
        refuse(
            f"--devices={args.devices}: a PyTorch process drives one device; start one process a device with torchrun"
        )
    if args.strategy == "kvstore":
        refuse("--strategy=kvstore is MXNet's; PyTorch has single and ddp")
    launched, world_size = "RANK" in os.environ, os.environ.get("WORLD_SIZE", "1")
    if args.strategy == "ddp" and not launched:
        refuse("--strategy=ddp needs the ranks that torchrun starts; run this program with torchrun")
    if args.strategy == "single" and world_size != "1":
        refuse(f"--strategy=single in {world_size} processes would train {world_size} models; ask for ddp")
    if args.device == "cpu":
        if args.precision in {"tf32", "fp16"}:
            refuse(f"--precision={args.precision} needs a GPU; on the CPU ask for fp32 or bf16")
        return
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.device_count() <= local_rank:
        refuse(f"--device=gpu for local rank {local_rank}, PyTorch sees {torch.cuda.device_count()} GPUs")
    capability = torch.cuda.get_device_capability(local_rank)
    needed = {"tf32": (8, 0), "bf16": (8, 0), "fp16": (5, 3), "fp32": (0, 0)}[args.precision]
    if capability < needed:
        has, needs = ".".join(map(str, capability)), ".".join(map(str, needed))
        name = torch.cuda.get_device_name(local_rank)
        refuse(f"--precision={args.precision} needs compute capability {needs}, the {name} has {has}; ask for fp32")


def open_data(args, *, rank, world_size, device, layout):
    """Open the source of batches: each rank draws its own."""
    from data_torch import ClassFolders, Images, Synthetic
    from torch.utils.data import DistributedSampler

    if args.data == "synthetic":
        shape, classes, seed = (args.batch, 3, args.image_size, args.image_size), args.num_classes, args.seed + rank
        return Synthetic(shape, num_classes=classes, seed=seed, device=device, layout=layout)
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

    def __init__(self, args, torch, device, *, rank, world_size):
        from models_torch import build

        self.torch, self.device, self.distributed = torch, device, args.strategy == "ddp"
        self.on_gpu = device.type == "cuda"
        self.marks = []
        torch.manual_seed(args.seed)  # the same on all ranks: they start from the same weights
        channels_last = self.on_gpu and args.precision != "fp32"
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.model = build(args.model, args.image_size, args.num_classes).to(device, memory_format=layout)
        self.parameters = list(self.model.parameters())
        if self.distributed:
            ddp = torch.nn.parallel.DistributedDataParallel
            self.model = ddp(self.model, static_graph=True, gradient_as_bucket_view=True)
        torch.manual_seed(args.seed + rank)  # from here on (dropout, augmentation) each rank draws its own numbers
        # The fused update is one kernel, and the only one that takes a GradScaler's verdict without stopping the device.
        self.optimizer = torch.optim.SGD(
            self.parameters, lr=args.learning_rate, momentum=args.momentum, weight_decay=args.weight_decay, fused=True
        )
        # Zeros from the start give the same first update. Left to itself, the fused kernel allocates the momentum at the first
        # step and leaves it unset when the GradScaler skips that step, as it does until it has found its scale.
        for parameter in self.parameters:
            self.optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self.loss = torch.nn.CrossEntropyLoss()
        self.scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "fp16")
        self.autocast = contextlib.nullcontext()
        if args.precision in AUTOCAST:
            self.autocast = torch.autocast(device.type, dtype=getattr(torch, AUTOCAST[args.precision]))
        self.batches = open_data(args, rank=rank, world_size=world_size, device=device, layout=layout)

    def step(self):
        images, labels = next(self.batches)
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast:
            loss = self.loss(self.model(images), labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()  # stays on the device: reading it here would stop it every step

    def synchronize(self):
        if self.on_gpu:
            self.torch.cuda.synchronize(self.device)

    def barrier(self):
        if self.distributed:
            self.torch.distributed.barrier()
            self.synchronize()

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

    def parameter_norm(self):
        squares = [p.detach().double().square().sum() for p in self.parameters]
        return math.sqrt(self.torch.stack(squares).sum().item())


def set_up(args, torch):
    """Choose the device and its arithmetic, and join the other ranks."""
    torch.set_num_threads(args.threads)
    torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    device = torch.device("cpu")
    if args.device == "gpu":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if args.strategy == "ddp":
        on_gpu = args.device == "gpu"
        torch.distributed.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    return device


def main():
    args = training_parser(__doc__.splitlines()[0]).parse_args()
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    events = Events(rank=rank)

    import torch

    check(args, torch)
    events.phase("import", process_start())
    created = time.monotonic()
    device = set_up(args, torch)
    events.emit("env", **environment(args, torch, device))
    training = Training(args, torch, device, rank=rank, world_size=world_size)
    events.phase("model", created)
    events.emit(
        "run_start",
        world_size=world_size,
        batch_per_device=args.batch,
        global_batch=args.batch * world_size,
        iterations=args.iterations,
        warmup=args.warmup,
        image_shape=[3, args.image_size, args.image_size],
        num_classes=args.num_classes,
        parameters=sum(p.numel() for p in training.parameters),
        seed=args.seed,
    )
    lengths = {"iterations": args.iterations, "warmup": args.warmup, "window": args.window}
    measure(training, events, **lengths, samples=args.batch)
    if args.data != "synthetic":
        events.emit("data", decoded=training.batches.decoded, skipped=sorted(training.batches.skipped))
    events.nccl()
    norm = finite(training.parameter_norm())
    events.emit("run_stop", iterations=args.iterations, samples=args.iterations * args.batch, parameter_norm=norm)
    if args.strategy == "ddp":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
