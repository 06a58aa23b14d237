"""Ranks started by torchrun that each hold a shard of the weights, gradients and optimizer state.

`fsdp`     FSDP2 (`fully_shard`): each rank has its own samples and gathers the weights of a block when it needs them.
`tp`       tensor parallelism by DTensor: all ranks have the same samples, and each multiplies by its columns or rows of every layer.
`fsdp+tp`  both, on a mesh: neighbours split each layer, and each part is sharded again among the ranks that hold the same part.

The network defines how ranks split its layers: `shared_layers` are (name, style) of the split layers, `blocks` are gathered as units.
"""

import contextlib
import os

import torch
from arguments import IN_BF16
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from with_pytorch.ranks import Torchrun

STYLES = {
    "embedding": lambda: RowwiseParallel(input_layouts=Replicate()),  # a part of the vocabulary
    "columns": ColwiseParallel,
    "rows": RowwiseParallel,  # all-reduces its sums
    "scores": lambda: ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),  # a sharded loss
}


class Fsdp(Torchrun):
    """`ranks_per_layer` neighbouring ranks split each layer; groups have different samples."""

    cuts = True
    gathers = True  # whether groups shard what each of their ranks holds

    def __init__(self, args, device):
        super().__init__(args, device)
        self.ranks_per_layer = self.neighbours()
        shape = (self.world_size // self.ranks_per_layer, self.ranks_per_layer)
        self.mesh = init_device_mesh(device.type, shape, mesh_dim_names=("samples", "layers"))
        if self.ranks_per_layer > 1:
            self.loss_context = contextlib.ExitStack()
            self.loss_context.enter_context(loss_parallel())  # backward passes need it as well

    def neighbours(self):
        return 1

    def compiled(self, net, options):
        """Compile block by block: their weights are gathered between them."""
        for block in net.blocks:
            block.compile(options=options)
        return net

    def model(self, model):
        """Shard a network in place."""
        args = self.args
        if self.ranks_per_layer > 1:
            styles = {name: STYLES[style]() for name, style in model.shared_layers()}
            parallelize_module(model, self.mesh["layers"], styles)
            model.tie()
        if not self.gathers:
            return model
        policy = MixedPrecisionPolicy()
        if args.precision in IN_BF16:
            policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
        sharding = {"mesh": self.mesh["samples"], "mp_policy": policy}
        for block in model.blocks:
            fully_shard(block, **sharding, reshard_after_forward=args.reshard == "forward")
        return fully_shard(model, **sharding, reshard_after_forward=False)  # forward's last layers are backward's first

    def accumulate(self, model, *, last):
        if self.gathers:
            model.set_requires_gradient_sync(last)

    def whole(self, tensor):
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def own(self, tensor):
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def all_reduce_bytes(self, model, *, tokens, element):
        """Bytes of an all-reduce over all ranks with the traffic of a step; activations of `tokens` have `element` bytes per number.

        An all-gather or reduce-scatter of W bytes sends half as much as an all-reduce. Blocks are gathered again for the backward pass
        if they were freed. Activations split between neighbours are summed twice per block in each direction, and once at each end. An
        all-reduce over n ranks sends 2(n - 1) times its bytes in total. Neighbours are on one node: only weights cross between nodes.
        """
        samples, ranks_per_layer = self.mesh.shape
        blocks, total = (sum(p.numel() for p in part.parameters()) for part in (model.blocks, model))
        bf16 = self.args.precision in IN_BF16 or self.args.weights == "bf16"
        gathered = (total + blocks * (self.args.reshard == "forward")) * (2 if bf16 else 4)
        weights = (gathered + 4 * total) // 2
        if os.environ["LOCAL_WORLD_SIZE"] != os.environ["WORLD_SIZE"]:
            return weights
        sums = (4 * len(model.blocks) + 2) * tokens * model.embedding.embedding_dim * element
        return ((samples - 1) * weights + samples * (ranks_per_layer - 1) * sums) // max(1, self.world_size - 1)


class FsdpTp(Fsdp):
    """Neighbours split each layer; groups shard what each of their ranks holds."""

    splits_layers = True
    # Compiled, a gradient is not a DTensor (PyTorch 2.13); the kernel reads all scores of a token.
    fails_with = frozenset({"compile", "loss-kernel"})

    def neighbours(self):
        return self.args.tensor_parallel


class Tp(FsdpTp):
    """All ranks split each layer."""

    gathers = False

    def neighbours(self):
        return self.world_size


STRATEGIES = {"fsdp": Fsdp, "tp": Tp, "fsdp+tp": FsdpTp}
