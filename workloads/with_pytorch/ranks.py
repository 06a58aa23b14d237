"""How the ranks of the PyTorch program meet and average their gradients: one alone, DistributedDataParallel, or Horovod.

Each class joins the others when it is made. `model` and `optimizer` wrap what is trained, `update` applies one step's gradients, all
together shortened to a norm if there is one, `share` gives all ranks rank 0's tensors, `barrier` waits for all ranks, `slowest` gives the
most of what each hands in, `exchange` makes what `probe.py` times, `leave` says goodbye.
"""

import os

import torch
from probe import part
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from with_pytorch.techniques import BUCKET_MIB, LARGE_BUCKET_MIB


class Alone:
    """One process, one device."""

    rank, world_size = 0, 1

    def model(self, model):
        return model

    def optimizer(self, optimizer, model):
        del model
        return optimizer

    def update(self, optimizer, scaler, *, clip_norm=None):
        clip(optimizer, scaler, clip_norm)
        scaler.step(optimizer)
        scaler.update()

    def share(self, tensors):
        """There is nobody to share them with."""

    def barrier(self):
        """There is nobody to wait for."""

    def slowest(self, seconds):
        return seconds

    def exchange(self, elements, device):
        """There is nobody to exchange anything with."""

    def leave(self):
        """There is nobody to take leave of."""


class AllReduce:
    """A sum over all ranks that `reduce` makes in place; `workloads/probe.py` says what its methods are for."""

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


class Ddp(Alone):
    """The ranks that torchrun started; NCCL between GPUs, Gloo between CPU workers."""

    def __init__(self, device, techniques):
        on_gpu = device.type == "cuda"
        if "cuda-graphs" in techniques:
            # What looks after NCCL's calls must not ask for their state while they are recorded.
            os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
        distributed.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
        self.device, self.techniques = device, techniques
        self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()

    def model(self, model):
        names = self.techniques
        bucket_mib = LARGE_BUCKET_MIB if "large-buckets" in names else BUCKET_MIB
        model = DistributedDataParallel(
            model,
            static_graph=True,
            gradient_as_bucket_view=True,
            bucket_cap_mb=bucket_mib,
            broadcast_buffers="local-statistics" not in names,
        )
        if "bf16-gradients" in names:
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        return model

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

    def leave(self):
        distributed.destroy_process_group()


class Horovod(Alone):
    """The ranks that Horovod's launcher started; fusion and cycle time are Horovod's own variables."""

    def __init__(self, compression):
        import horovod.torch as hvd

        hvd.init()
        self.hvd, self.rank, self.world_size = hvd, hvd.rank(), hvd.size()
        self.compression = getattr(hvd.Compression, compression)

    def optimizer(self, optimizer, model):
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return self.hvd.DistributedOptimizer(
            optimizer, named_parameters=model.named_parameters(), compression=self.compression
        )

    def update(self, optimizer, scaler, *, clip_norm=None):
        optimizer.synchronize()  # the scaler must see the averaged gradients to find the same overflow on all ranks
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

    def leave(self):
        self.hvd.shutdown()


def clip(optimizer, scaler, norm):
    """Shorten the gradients of all parameters together, averaged and in their own scale, to a norm; None leaves them as they are."""
    if norm is not None:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], norm)


def join(args, device):
    """Meet the other ranks in the way that --strategy says."""
    if args.strategy == "ddp":
        return Ddp(device, args.techniques)
    if args.strategy == "horovod":
        return Horovod(args.compression)
    return Alone()


def launched():
    """Whether torchrun or one of Horovod's launchers started this process."""
    return any(name in os.environ for name in ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"))
