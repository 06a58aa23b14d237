"""What every PyTorch training program needs: `run`, which is its main and does not return, and the classes that its training derives from.

    class Cnn(Classifier):                        # or Supervised, or Training
        def network(self): ...
        def open(self): ...

    run(Cnn, parser(...).parse_args())

`Training` has what depends on the device and the ranks alone. Who derives from it makes, after ``super().__init__``,

    parameters       all that are trained, in one list
    batches          the `Batches` (`loop.py`) of this rank
    step()           one iteration: `loop.py`
    shared_loss()    a function that computes the loss on the batch that all ranks share, in training mode
    flop_per_sample(), shape(), samples   where they differ

`Supervised` is one network, one loss and SGD with momentum; who derives from it says

    network()            the network, on the CPU; its weights are drawn from torch's generator, which is seeded
    open()               endless batches of this rank, on the device
    shared_batch()       the batch that all ranks share and none trains on, on the device
    loss(model, batch)   the mean loss of a batch, on the device

`Classifier` is one whose batches are (inputs, labels) and whose loss is cross entropy. To converge (`convergence.py`) it says

    validation()         batches (inputs, labels) of this rank's share of the validation set, on the device, each sample once

fp16 and bf16 are torch.autocast with weights in fp32. Beyond that a training is plain, unless `--techniques` asks for more
(`techniques.py`), of which `Training` knows those of any network, and `Supervised` all.
"""

import contextlib
import itertools
import math
import time

import convergence
from arguments import refuse
from events import Events, process_start
from leaving import leave
from loop import Batches, drained, report
from placement import pin
from profiling import Regions
from with_pytorch import compiled, techniques
from with_pytorch.device import check as check_device
from with_pytorch.device import environment, set_up

AUTOCAST = {"fp16": "float16", "bf16": "bfloat16"}


def check(args, *, launched, offered):
    """Refuse a strategy that is not PyTorch's, or that does not go with how this process was started."""
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
    convergence.check(args)
    techniques.check(args, offered=offered)


class Training:
    """What is trained on one rank; `workloads/loop.py` says what its methods are for."""

    offered = frozenset({"channels-last", *techniques.BETWEEN_RANKS})  # of `techniques.py`

    def __init__(self, args, torch, device, ranks):
        self.args, self.torch, self.device, self.ranks = args, torch, device, ranks
        self.on_gpu = device.type == "cuda"
        self.marks, self.regions = [], Regions()
        self.copies = torch.cuda.Stream() if self.on_gpu else None
        torch.manual_seed(args.seed)  # the same on all ranks: they start from the same weights
        self.layout = torch.channels_last if "channels-last" in args.techniques else torch.contiguous_format
        self.scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "fp16")
        self.autocast = contextlib.nullcontext()
        if args.precision in AUTOCAST:
            self.autocast = torch.autocast(device.type, dtype=getattr(torch, AUTOCAST[args.precision]))

    @property
    def samples(self):
        """What one iteration of this rank trains on."""
        return self.args.batch

    def shape(self):
        """`image_shape` and `num_classes` of the event run_start."""
        return {"image_shape": None, "num_classes": None}

    def place(self, net):
        """Put a network on the device, its weights laid out for it."""
        # Horovod takes contiguous tensors only; the gradients of a weight lie as the weight does, cuDNN turns both at little cost.
        layout = self.torch.contiguous_format if self.args.strategy == "horovod" else self.layout
        return net.to(self.device, memory_format=layout)

    def sgd(self, net, *, learning_rate, momentum, weight_decay):
        """SGD on all parameters of a network, with the gradients of all ranks."""
        torch, parameters = self.torch, list(net.parameters())
        rates = {"lr": learning_rate, "momentum": momentum, "weight_decay": weight_decay}
        if "fused-optimizer" not in self.args.techniques:
            return self.ranks.optimizer(torch.optim.SGD(parameters, **rates), net)
        optimizer = self.ranks.optimizer(torch.optim.SGD(parameters, **rates, fused=True), net)
        # Zeros from the start give the same first update. Left to itself, the fused kernel allocates the momentum at the first
        # step and leaves it unset when the GradScaler skips that step, as it does until it has found its scale.
        for parameter in parameters if momentum else []:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return optimizer

    def reseed(self):
        """From here on (dropout, augmentation) each rank draws its own numbers."""
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

    def alone(self):
        return self.passes(self.shared_loss())

    def product(self, size, precision):
        factor = self.torch.full((size, size), 0.5, dtype=getattr(self.torch, AUTOCAST.get(precision, "float32")))
        result = self.torch.empty_like(factor)
        return lambda: self.torch.mm(factor, factor, out=result), 1, "torch.mm"

    def passes(self, loss):
        """A function that computes a loss and its gradients and exchanges nothing."""
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

    @property
    def lag(self):
        return 1 if self.on_gpu else 0

    def edge(self, losses):
        if not self.on_gpu:
            return drained(self, losses)
        marks, self.marks = self.marks, []
        kept = self.torch.stack(losses) if losses else None
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return lambda: self.passed(event, marks, kept)

    def passed(self, event, marks, kept):
        """Wait until the device has come to `event`, with later ones already enqueued; called in the order of edges."""
        event.synchronize()
        if kept is None:  # the first: the device has nothing else to do
            self.clock = event, time.monotonic()
            return self.clock[1], [], []
        before, moment = self.clock
        self.clock = event, moment + before.elapsed_time(event) / 1e3
        with self.torch.cuda.stream(self.copies):  # on the current stream a copy would wait for all that is enqueued
            values = kept.tolist()
        return self.clock[1], values, [one.elapsed_time(other) / 1e3 for one, other in itertools.pairwise(marks)]

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

    def skipped(self):
        """Names of the samples of --data that could not be read."""
        return self.batches.source.skipped

    def parameter_count(self):
        return sum(p.numel() for p in self.parameters)

    def gradient_bytes(self):
        # Weights and their gradients are in fp32 at every precision, on the wires unless asked otherwise.
        size = 2 if self.args.compression == "fp16" or "bf16-gradients" in self.args.techniques else 4
        return size * self.exchanged()

    def exchanged(self):
        """Numbers that a rank hands over in one iteration."""
        return self.parameter_count()

    def flop_per_sample(self):
        """`flop.per_sample` of what an iteration does for one sample; None where nobody has counted it."""

    def end(self):
        """Let go of what would keep the ranks together."""

    def parameter_norm(self):
        squares = [p.detach().double().square().sum() for p in self.parameters]
        return math.sqrt(self.torch.stack(squares).sum().item())


class Supervised(Training):
    """One network that lowers one loss on batches of its input."""

    offered = frozenset(techniques.TECHNIQUES)
    clip_norm = None  # of all gradients together, where a workload shortens them

    def __init__(self, args, torch, device, ranks):
        super().__init__(args, torch, device, ranks)
        names = args.techniques
        if "cuda-graphs" in names:
            from with_pytorch import captured

            captured.stream()
        self.net = self.computed = self.place(techniques.rebuilt(self.network(), names))
        self.parameters = list(self.net.parameters())
        if "compile" in names:
            compiled.keep(args.compiled)
            self.computed, self.compiled = compiled.of(self.net, search="kernel-search" in names), compiled.graphs
        self.model = ranks.model(self.computed)
        self.reseed()
        rates = {"momentum": args.momentum, "weight_decay": args.weight_decay}
        self.optimizer = self.sgd(self.net, learning_rate=args.learning_rate, **rates)
        self.batches = Batches(self.open())
        self.enqueue = self.learn
        if "cuda-graphs" in names:
            self.enqueue = captured.Captured(self.learn, before=techniques.EAGER_STEPS)

    def step(self):
        with self.regions("input"):
            batch = next(self.batches)
        return self.enqueue(batch)

    def end(self):
        if "cuda-graphs" in self.args.techniques:
            self.enqueue.end()

    def learn(self, batch):
        """Enqueue all of a step that comes after its input."""
        with self.regions("optimizer"):
            self.optimizer.zero_grad()
        with self.regions("forward"), self.autocast:
            loss = self.loss(self.model, batch)
        with self.regions("backward"):
            self.scaler.scale(loss).backward()
        with self.regions("optimizer"):
            self.ranks.update(self.optimizer, self.scaler, clip_norm=self.clip_norm)
        return loss.detach()  # stays on the device: reading it here would stop it every step

    def shared_loss(self):
        return self.loss_of(self.net)

    def loss_of(self, model):
        batch = self.shared_batch()

        def loss():
            with self.autocast:
                return self.loss(model, batch)

        return loss

    def alone(self):
        if "cuda-graphs" in self.args.techniques:
            return None  # a step is one launch, which no pass outside of the graph is like
        return self.passes(self.loss_of(self.computed))


class Classifier(Supervised):
    """A network that gives scores, (batch, classes), and learns (inputs, labels)."""

    def loss(self, model, batch):
        inputs, labels = batch
        return self.torch.nn.functional.cross_entropy(model(inputs), labels)

    def validate(self):
        """This rank's share of the validation set, with the network as it is used: no dropout, statistics of normalizations frozen.

        They are rank 0's on all ranks, which are those in the checkpoint that rank 0 would write; DistributedDataParallel gives them to
        all before each step anyway.
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
    """Train as the command line says, report by events, and end the process; `program` is a class that derives from `Training`."""
    pin(args.cpus_per_worker)

    import torch
    from with_pytorch.ranks import join, launched

    check(args, launched=launched(), offered=program.offered)
    check_device(args, torch)
    imported = time.monotonic()
    device = set_up(args, torch)
    ranks = join(args, device)
    events = Events(rank=ranks.rank)
    events.emit("phase", name="import", seconds=imported - process_start())
    events.emit("env", **environment(args, torch, device))
    training = program(args, torch, device, ranks)
    events.phase("model", imported)
    report(training, events, args, world_size=ranks.world_size)
    training.end()
    ranks.leave()
    leave()
