"""How the ranks of the PyTorch program meet and average their gradients: a single one, DistributedDataParallel, DataParallel, or Horovod.

A strategy is a class that joins the ranks on construction and overrides what differs from `Alone`; the fields and methods there, and the
methods of `process.Alone`, say what each has to state and to do. `sharded.py` has the strategies that split a network.
"""

import contextlib
import functools
import os

import process
import torch
from collectives import by_horovod, payload
from probe import part
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DataParallel, DistributedDataParallel, comm


class Alone(process.Alone):
    """One process, one device."""

    launcher = None  # what starts the ranks; None for a single process
    several_gpus = False  # whether a process drives several
    cuts = False  # whether each rank holds a part of the network
    splits_layers = False  # whether the parts are smaller than layers
    contiguous = False  # whether gradients must not be channels-last
    tunes_exchange = False  # whether it has the techniques between ranks
    fails_with = frozenset()  # techniques

    world_size = 1
    ranks_per_layer = 1  # ranks that share each layer and read the same samples

    def __init__(self, *_args: object):
        """Join the ranks, by the arguments and the device of this one."""

    def compiled(self, net, options):
        """Compile a network, before `model` gets it."""
        return torch.compile(net, options=options)

    def model(self, model):
        """Give a network rank 0's weights and return what a step calls in its place."""
        return model

    def optimizer(self, optimizer, model):
        """Wrap the optimizer of a network, if that is what averages its gradients."""
        del model
        return optimizer

    def accumulate(self, model, *, last):
        """Prepare for a backward pass; only the last one before an update has to exchange gradients."""

    def update(self, optimizer, scaler, *, clip_norm=None):
        """Apply the gradients of one step: their average over all ranks, clipped to a global norm if one is given."""
        clip(optimizer, scaler, clip_norm)
        scaler.step(optimizer)
        scaler.update()

    def whole(self, tensor):
        """Assemble a tensor from the ranks' shards; `own` returns this rank's shard of one."""
        return tensor

    own = whole

    def share(self, tensors):
        """Broadcast rank 0's tensors."""


class AllReduce:
    """A sum over all ranks, which `reduce` computes in place; `workloads/probe.py` describes its methods."""

    operation = "all_reduce"

    def __init__(self, ranks, elements, device, reduce):
        self.devices, self.reduce = ranks.world_size, reduce
        self.part = torch.from_numpy(part(ranks.rank, elements)).to(device)
        self.buffer = torch.empty_like(self.part)

    def fill(self):
        self.buffer.copy_(self.part)

    def run(self):
        self.reduce(self.buffer)

    def results(self):
        return [self.buffer.cpu().numpy()]


class Collective:
    """One of `collectives.OPERATIONS`; `run` takes the last result and the tensor to send, and returns the result."""

    def __init__(self, operation, run, ranks, device, elements):
        self.operation, self.send = operation, run
        self.number, self.devices, self.share = ranks.rank, ranks.world_size, elements // ranks.world_size
        self.payload = torch.from_numpy(payload(operation, self.number, self.devices, self.share)).to(device)
        size = self.share if operation == "reduce_scatter" else self.share * self.devices
        self.result = torch.empty(size, device=device)

    def fill(self):
        self.result.fill_(-1)  # not a value of any share

    def run(self):
        self.result = self.send(self.result, self.payload)

    def results(self):
        return [self.result.cpu().numpy()]


class Torchrun(Alone):
    """The ranks that torchrun started; NCCL between GPUs, Gloo between CPU workers."""

    launcher = "torchrun"

    def __init__(self, args, device):
        on_gpu = device.type == "cuda"
        if "cuda-graphs" in args.techniques:
            # NCCL's watchdog must not query events while calls are captured.
            os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
        distributed.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
        self.args, self.device = args, device
        self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()

    def share(self, tensors):
        for tensor in tensors:
            distributed.broadcast(tensor, src=0)

    def barrier(self):
        distributed.barrier()

    def slowest(self, seconds):
        found = torch.tensor(seconds, dtype=torch.float64, device=self.device)
        distributed.all_reduce(found, distributed.ReduceOp.MAX)
        return found.item()

    def exchange(self, elements, device):
        return AllReduce(self, elements, device, distributed.all_reduce)

    @contextlib.contextmanager
    def collectives(self, device):
        # A separate group, as NCCL keeps memory for each pair of GPUs that has exchanged anything.
        group = distributed.new_group()

        def send_into(send, result, payload):
            send(result, payload, group=group)
            return result

        ops = {
            "all_gather": distributed.all_gather_into_tensor,
            "reduce_scatter": distributed.reduce_scatter_tensor,
            "all_to_all": distributed.all_to_all_single,
        }
        runs = {name: functools.partial(send_into, send) for name, send in ops.items()}
        yield {name: functools.partial(Collective, name, run, self, device) for name, run in runs.items()}, None
        distributed.destroy_process_group(group)

    def leave(self):
        distributed.destroy_process_group()


class Ddp(Torchrun):
    """DistributedDataParallel, which sends gradients while later ones are computed."""

    tunes_exchange = True

    def model(self, model):
        # PyTorch 2.13 warns of `broadcast_buffers`, even with its default.
        buffers = {"broadcast_buffers": False} if "local-statistics" in self.args.techniques else {}
        static = getattr(self.args, "gradient_accumulation", 1) == 1
        model = DistributedDataParallel(model, static_graph=static, gradient_as_bucket_view=True, **buffers)
        if "bf16-gradients" in self.args.techniques:
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        return model

    def accumulate(self, model, *, last):
        model.require_backward_grad_sync = last


class PackedTensors:
    """Tensors in one buffer, packed and unpacked by a few kernels in total.

    The buffer has a view per tensor with the tensor's own strides, so that a copy is one sweep over memory.
    """

    def __init__(self, tensors, dtype):
        self.buffer = torch.zeros(sum(t.numel() for t in tensors), dtype=dtype, device=tensors[0].device)
        self.views, begin = [], 0
        for tensor in tensors:
            self.views.append(self.buffer.as_strided(tensor.size(), tensor.stride(), begin))
            begin += tensor.numel()

    def average(self, tensors, world_size):
        torch._foreach_copy_(self.views, tensors)
        self.buffer.div_(world_size)
        distributed.all_reduce(self.buffer)
        torch._foreach_copy_(tensors, self.views)


class OneMessage(Torchrun):
    """Gradients sent together after the backward pass.

    On fast wires, Ddp hides little and costs more: a copy of each gradient, and multiprocessors that communication and compute compete for.
    """

    def __init__(self, args, device):
        super().__init__(args, device)
        self.packed = {}  # by optimizer

    def model(self, model):
        self.share([tensor.detach() for tensor in (*model.parameters(), *model.buffers())])
        if "local-statistics" in self.args.techniques:
            return model

        def share_and_forward(*inputs: torch.Tensor):  # not a hook: uses of the bare network send nothing
            self.share(list(model.buffers()))
            return model(*inputs)

        return share_and_forward

    def update(self, optimizer, scaler, *, clip_norm=None):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if optimizer not in self.packed:
            dtype = torch.bfloat16 if "bf16-gradients" in self.args.techniques else gradients[0].dtype
            self.packed[optimizer] = PackedTensors(gradients, dtype)
        self.packed[optimizer].average(gradients, self.world_size)
        super().update(optimizer, scaler, clip_norm=clip_norm)


class SumAndCopies:
    """DataParallel's traffic in a step: gradients are summed on the first GPU, weights copied from it to all."""

    operation = "all_reduce"

    def __init__(self, elements, devices):
        self.devices = devices
        self.parts = [torch.from_numpy(part(number, elements)).to(f"cuda:{number}") for number in range(devices)]

    def fill(self):
        """Do nothing: each sum is a new tensor."""

    def run(self):
        self.copies = comm.broadcast(comm.reduce_add(self.parts, 0), range(self.devices))

    def results(self):
        return [copy.cpu().numpy() for copy in self.copies]


class Dp(Alone):
    """Several GPUs of one process by DataParallel, which copies all weights to each in every step, and sums gradients on the first."""

    no_collectives = "DataParallel sums on one GPU and copies to the others"
    several_gpus = True
    fails_with = frozenset({"compile", "cuda-graphs"})  # they keep one network

    def __init__(self, args, _device):
        self.devices = args.devices

    def model(self, model):
        return DataParallel(model, range(self.devices))

    def exchange(self, elements, device):
        del device
        return SumAndCopies(elements, self.devices) if self.devices > 1 else None


class Horovod(Alone):
    """The ranks that Horovod's launcher started; Horovod's own variables set fusion and cycle time."""

    launcher = "horovodrun"
    contiguous = True
    fails_with = frozenset({"cuda-graphs"})  # another thread sends the gradients

    def __init__(self, args, _device):
        import horovod.torch as hvd

        hvd.init()
        self.hvd, self.rank, self.world_size = hvd, hvd.rank(), hvd.size()
        self.compression = getattr(hvd.Compression, args.compression)

    def optimizer(self, optimizer, model):
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return self.hvd.DistributedOptimizer(
            optimizer, named_parameters=model.named_parameters(), compression=self.compression
        )

    def update(self, optimizer, scaler, *, clip_norm=None):
        optimizer.synchronize()  # the scaler must see averaged gradients, so that all ranks find the same overflow
        clip(optimizer, scaler, clip_norm)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()

    def share(self, tensors):
        for number, tensor in enumerate(tensors):
            self.hvd.broadcast_(tensor, root_rank=0, name=f"share.{number}")

    def barrier(self):
        self.hvd.barrier()

    def slowest(self, seconds):
        return self.hvd.allreduce(torch.tensor(seconds, dtype=torch.float64), op=self.hvd.Max, name="slowest").item()

    def exchange(self, elements, device):
        def reduce(buffer):
            self.hvd.allreduce_(buffer, op=self.hvd.Sum, name=f"probe.{elements}")

        return AllReduce(self, elements, device, reduce)

    @contextlib.contextmanager
    def collectives(self, device):
        ops, missing = by_horovod(self.hvd, on_gpu=device.type == "cuda")

        def named(name, result, payload):
            del result  # Horovod allocates its own
            return ops[name](payload, f"probe.{name}.{payload.numel()}")

        yield (
            {name: functools.partial(Collective, name, functools.partial(named, name), self, device) for name in ops},
            missing,
        )

    def leave(self):
        self.hvd.shutdown()


def clip(optimizer, scaler, norm):
    """Clip the global norm of all gradients, averaged and unscaled; None leaves them as they are."""
    if norm is not None:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], norm)


def launched():
    """Whether torchrun or one of Horovod's launchers started this process."""
    return any(name in os.environ for name in ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"))


# A program supports all but those that it `lacks`.
STRATEGIES = {"single": Alone, "ddp": Ddp, "dp": Dp, "horovod": Horovod}
