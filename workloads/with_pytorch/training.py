"""Common part of all PyTorch training programs, outside the measurement: `run`, their main, and the base of their class.

    class Cnn(Training):
        def __init__(self, args, torch, device, ranks):
            super().__init__(args, torch, device, ranks)
            self.take(network)                 # move the network to the device, join it with the other ranks, make its optimizer
            self.batches = Batches(source)     # of this rank, on the device, endless

    run(Cnn, parser(...).parse_args())

The program defines what is measured: `step`, one iteration, and `window`, the steps between two edges. In addition, `Training` needs

    loss(model, batch)   the mean loss of a batch, on the device
    shared_batch()       the batch that all ranks share and none trains on, on the device
    validation()         for convergence runs (`loop.py`): batches (inputs, labels) of this rank's share of the validation set, on the
                         device, each sample once
    flop_per_sample()    if counted

A program with several networks sets `parameters` (all that are trained, in a list) instead of calling `take`, and has `shared_loss` and `alone`.

fp16 and bf16 are torch.autocast with fp32 weights; fp8 is bf16 except in `fp8.py`'s layers. `--techniques` adds optimizations (`techniques.py`).
"""

import contextlib
import math
import time

import loop
from arguments import check_epochs, check_strategy, refuse
from events import Events, process_start
from process import leave, pin
from profiling import Regions, recorder
from with_pytorch import techniques
from with_pytorch.device import check as check_device
from with_pytorch.device import environment, set_up

AUTOCAST = {"fp16": "float16", "bf16": "bfloat16", "fp8": "bfloat16"}


def choose(args, program):
    """The class of a strategy; refuse one that the program lacks."""
    from with_pytorch.ranks import STRATEGIES

    offered = {name: strategy for name, strategy in STRATEGIES.items() if name not in program.lacks}
    if program.cuts and args.strategy not in offered:  # the import takes 0.9 s
        from with_pytorch import sharded

        offered |= sharded.STRATEGIES
    check_strategy(args, "this program", offered)
    return offered[args.strategy]


def check(args, strategy, *, launched, offered):
    """Refuse what a strategy does not support, one that does not match how this process was started, and techniques that are not `offered`."""
    if args.devices != 1 and not strategy.several_gpus:
        refuse(
            f"--devices={args.devices} needs --strategy=dp; other strategies drive one device per process of torchrun"
        )
    if strategy.several_gpus and args.device != "gpu":
        refuse(f"--strategy={args.strategy} is for GPUs; on CPUs ask for ddp")
    if strategy.launcher and not launched:
        refuse(f"--strategy={args.strategy} needs several ranks; start this program with {strategy.launcher}")
    if launched and not strategy.launcher:
        refuse(f"--strategy={args.strategy} would train a model per process of the launcher; ask for ddp")
    if args.precision == "fp8" and strategy.splits_layers:
        refuse(f"--precision=fp8 multiplies whole layers, which --strategy={args.strategy} splits; ask for bf16")
    check_epochs(args)
    techniques.check(args, strategy, offered=offered)


class Training(loop.Training):
    """One rank's training; `workloads/loop.py` describes its methods."""

    framework = "with_pytorch"
    offered = frozenset(techniques.OF_IMAGES)
    lacks = frozenset({"dp"})  # of the strategies in `ranks.py`
    cuts = False  # whether its network can be sharded

    def __init__(self, args, torch, device, ranks):
        from with_pytorch.clock import CudaClock, HostClock

        self.args, self.torch, self.device, self.ranks = args, torch, device, ranks
        self.on_gpu = device.type == "cuda"
        self.regions = Regions()
        self.clock = CudaClock() if self.on_gpu else HostClock()
        self.lag, self.start = self.clock.lag, self.clock.start
        torch.manual_seed(args.seed)  # the same on all ranks, so that they start from the same weights
        self.layout = torch.channels_last if "channels-last" in args.techniques else torch.contiguous_format
        self.scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "fp16")
        self.autocast = contextlib.nullcontext()
        if args.precision in AUTOCAST:
            self.autocast = torch.autocast(device.type, dtype=getattr(torch, AUTOCAST[args.precision]))

    def take(self, net):
        """Set up `net`, whose weights are drawn on the CPU, for training by `optimizer`.

        `model` is what a step runs: compiled and joined with the other ranks. A program that offers cuda-graphs has `learn(batch)`,
        the part of a step after its input.
        """
        args, names = self.args, self.args.techniques
        if "cuda-graphs" in names:
            from with_pytorch import captured

            captured.stream()
        self.net = self.computed = self.place(techniques.rebuilt(net, names))
        if "compile" in names:
            techniques.use_cache(args.compiled)
            self.computed = self.ranks.compiled(
                self.net, techniques.search_options() if "kernel-search" in names else None
            )
            self.compiled = techniques.graph_counts
        self.model = self.ranks.model(self.computed)
        self.parameters = list(self.net.parameters())
        self.reseed()
        self.optimizer = self.update_rule()
        if "cuda-graphs" in names:
            self.enqueue = captured.Captured(self.learn, eager_steps=techniques.EAGER_STEPS)

    def enqueue(self, batch):
        """Run the program's `learn`; with cuda-graphs, `take` replaces this method by a `captured.Captured`."""
        return self.learn(batch)

    def place(self, net):
        """Move a network to the device, with its weights in the chosen memory format."""
        # Horovod takes contiguous tensors only, and gradients have their weight's format; cuDNN converts both at little cost.
        layout = self.torch.contiguous_format if self.ranks.contiguous else self.layout
        return net.to(self.device, memory_format=layout)

    @property
    def rates(self):
        return {"lr": self.args.learning_rate, "momentum": self.args.momentum, "weight_decay": self.args.weight_decay}

    def update_rule(self):
        """The network's optimizer: SGD unless a program overrides it."""
        torch, rates = self.torch, self.rates
        if "fused-optimizer" not in self.args.techniques:
            return self.ranks.optimizer(torch.optim.SGD(self.parameters, **rates), self.net)
        optimizer = self.ranks.optimizer(torch.optim.SGD(self.parameters, **rates, fused=True), self.net)
        # Zeros from the start give the same first update. Otherwise the fused kernel allocates the momentum at the first
        # step and leaves it uninitialized if the GradScaler skips that step, as it does until it has found its scale.
        for parameter in self.parameters if rates["momentum"] else []:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return optimizer

    def adamw(self, **constants: object):
        """AdamW with weight decay for matrices only.

        Parameters on different device meshes are in separate groups, since one kernel updates a group.
        """
        groups = {}
        for parameter in self.parameters:
            decay = self.args.weight_decay if parameter.dim() > 1 else 0.0
            groups.setdefault((decay, getattr(parameter, "device_mesh", None)), []).append(parameter)
        listed = [{"params": own, "weight_decay": decay} for (decay, _), own in groups.items()]
        fused = "fused-optimizer" in self.args.techniques
        return self.torch.optim.AdamW(listed, lr=self.args.learning_rate, fused=fused, **constants)

    def reseed(self):
        """Seed each rank differently from here on (dropout, augmentation)."""
        self.torch.manual_seed(self.args.seed + self.ranks.rank)

    def synchronize(self):
        if self.on_gpu:
            self.torch.cuda.synchronize(self.device)

    def barrier(self):
        self.ranks.barrier()
        self.synchronize()

    def evaluate(self):
        loss = self.shared_loss()
        self.torch.manual_seed(self.args.seed)  # the same dropout on all ranks
        with self.torch.no_grad():
            value = loss().item()
        self.reseed()
        return [value]

    def exchange(self, elements):
        return self.ranks.exchange(elements, self.device)

    def collectives(self):
        return self.ranks.collectives(self.device)

    def alone(self):
        """A function that computes a loss and its gradients without exchange; None with cuda-graphs."""
        if "cuda-graphs" in self.args.techniques:
            return None  # a step is one launch, so no pass outside the graph resembles it
        loss = self.loss_of(self.computed, self.shared_batch())
        # Not backward(): a gradient that reaches a parameter triggers its exchange.
        return lambda: self.torch.autograd.grad(loss(), self.parameters)

    def backward(self):
        """The fields of event `backward`; None on several devices, which exchange gradients, with several networks, or with cuda-graphs."""
        devices = self.args.devices * self.ranks.world_size
        if devices > 1 or not hasattr(self, "computed") or "cuda-graphs" in self.args.techniques:
            return None
        from with_pytorch.backward import timed

        return timed(self)

    def shared_loss(self):
        """A function that computes the training-mode loss on the batch that all ranks share."""
        return self.loss_of(self.net, self.shared_batch())

    def loss_of(self, model, batch):
        def loss():
            with self.autocast:
                return self.loss(model, batch)

        return loss

    def product(self, size, precision):
        factor = self.torch.full((size, size), 0.5, dtype=getattr(self.torch, AUTOCAST.get(precision, "float32")))
        result = self.torch.empty_like(factor)
        return lambda: self.torch.mm(factor, factor, out=result), 1, "torch.mm"

    def read(self, losses):
        return self.torch.stack(losses).tolist()

    def flop_counts(self):
        from with_pytorch.profiler import flop_counts

        return flop_counts(self.shared_loss(), self.parameters, samples=self.args.batch)

    def parameter_count(self):
        return sum(p.numel() for p in self.parameters)

    def end(self):
        """Release what would keep the ranks from shutting down."""
        if "cuda-graphs" in self.args.techniques:
            self.enqueue.end()

    def parameter_norm(self):
        squares = [self.ranks.whole(p.detach().double().square().sum()) for p in self.parameters]
        return math.sqrt(self.torch.stack(squares).sum().item())

    def validate(self):
        """Evaluate this rank's share of the validation set in inference mode: no dropout, running statistics of normalizations.

        All ranks use the statistics of rank 0, which would be those of its checkpoint; DistributedDataParallel broadcasts them
        before each step anyway.
        """
        torch = self.torch
        self.ranks.share(list(self.net.buffers()))
        self.net.eval()
        samples, loss_sum, correct = 0, torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        with torch.no_grad():
            for inputs, labels in self.validation():
                with self.autocast:
                    scores = self.net(inputs).float()
                loss_sum += torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
                correct += (scores.argmax(1) == labels).sum()
                samples += len(labels)
        self.net.train()
        return {"samples": samples, "loss_sum": loss_sum.item(), "correct": int(correct.item())}


def run(program, args):
    """Run the requested training, emit its events, and exit; `program` is a subclass of `Training`."""
    pin(args.cpus_per_worker)

    import torch
    from with_pytorch.ranks import OneMessage, launched

    calls_recorder = recorder(args, torch.version.cuda)
    strategy = choose(args, program)
    check(args, strategy, launched=launched(), offered=program.offered)
    check_device(args, torch)
    imported = time.monotonic()
    device = set_up(args, torch)
    ranks = (OneMessage if "one-message" in args.techniques else strategy)(args, device)
    events = Events(rank=ranks.rank)
    events.emit("phase", name="import", seconds=imported - process_start())
    events.emit("env", **environment(args, torch, device))
    training = program(args, torch, device, ranks)
    training.recorder = calls_recorder
    events.phase("model", imported)
    loop.report(training, events, args, world_size=args.devices * ranks.world_size)
    training.end()
    ranks.leave()
    leave()
