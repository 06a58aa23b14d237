"""Ranks that torchrun started and that hold a part of the weights each, with their gradients and what the optimizer keeps of them.

`fsdp`     FSDP2 (`fully_shard`): each rank has its own samples and gathers the weights of a block when it needs them.
`tp`       tensor parallelism by DTensor: all ranks have the same samples, and each multiplies by its columns or rows of every layer.
`fsdp+tp`  both, on a mesh: neighbours share each layer, and what they hold is sharded again among those that hold the same.

A network says itself how ranks share its layers: `shared_layers` are (name, style) of those that they do, `blocks` what is gathered at once.
"""

import contextlib
import os

import torch
from arguments import IN_BF16
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from with_pytorch.ranks import Ddp

STYLES = {
    "embedding": lambda: RowwiseParallel(input_layouts=Replicate()),  # a part of the vocabulary
    "columns": ColwiseParallel,
    "rows": RowwiseParallel,  # sums of all ranks are exchanged
    "scores": lambda: ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),  # the loss is made of parts
}


class Sharded(Ddp):
    """`together` ranks, neighbours, share each layer; the others have other samples."""

    def __init__(self, args, device):
        super().__init__(device, ())
        self.args = args
        self.together = {"fsdp": 1, "tp": self.world_size}.get(args.strategy, args.tensor_parallel)
        shape = (self.world_size // self.together, self.together)
        self.mesh = init_device_mesh(device.type, shape, mesh_dim_names=("samples", "layers"))
        if self.together > 1:
            self.forever = contextlib.ExitStack()
            self.forever.enter_context(loss_parallel())  # backward passes need it as well

    def compiled(self, net, options):
        """Blocks one by one: what gathers their weights runs between them."""
        for block in net.blocks:
            block.compile(options=options)
        return net

    def model(self, model):
        """Cut a network in place."""
        args = self.args
        if self.together > 1:
            styles = {name: STYLES[style]() for name, style in model.shared_layers()}
            parallelize_module(model, self.mesh["layers"], styles)
            model.tie()
        if args.strategy == "tp":
            return model
        policy = MixedPrecisionPolicy()
        if args.precision in IN_BF16:
            policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
        cut = {"mesh": self.mesh["samples"], "mp_policy": policy}
        for block in model.blocks:
            fully_shard(block, **cut, reshard_after_forward=args.reshard == "forward")
        return fully_shard(model, **cut, reshard_after_forward=False)  # backward begins with what forward ends with

    def accumulate(self, model, *, last):
        if self.args.strategy != "tp":
            model.set_requires_gradient_sync(last)

    def whole(self, tensor):
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def own(self, tensor):
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def handed_bytes(self, model, *, tokens, element):
        """What the exchanges of a step come to as one all-reduce over all ranks, in bytes; activations of `tokens` have `element` bytes a number.

        Of W bytes an all-gather and a reduce-scatter send half of what an all-reduce sends. Blocks are gathered again for the backward pass
        where they were let go. What is shared between neighbours is summed twice a block in each direction, and once at both ends. An
        all-reduce over n ranks sends 2(n - 1) times its bytes in all. Neighbours are on one node: between nodes the weights alone cross.
        """
        samples, together = self.mesh.shape
        blocks, every = (sum(p.numel() for p in part.parameters()) for part in (model.blocks, model))
        bf16 = self.args.precision in IN_BF16 or self.args.weights == "bf16"
        gathered = (every + blocks * (self.args.reshard == "forward")) * (2 if bf16 else 4)
        weights = (gathered + 4 * every) // 2
        if os.environ["LOCAL_WORLD_SIZE"] != os.environ["WORLD_SIZE"]:
            return weights
        sums = (4 * len(model.blocks) + 2) * tokens * model.embedding.embedding_dim * element
        return ((samples - 1) * weights + samples * (together - 1) * sums) // max(1, self.world_size - 1)
