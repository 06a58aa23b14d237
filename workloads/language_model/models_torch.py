"""GPT-2 and Llama 3 in PyTorch, decoders that predict the next token at each of (batch, length) tokens, and BERT, which predicts masked ones.

GPT-2 (Radford et al. 2019, with the shapes of its released weights): learned positions, LayerNorm, GELU, biases, the output layer tied to
the embedding. No dropout, because it is trained for few epochs today.
Llama 3 (https://arxiv.org/abs/2407.21783, table 3; 1b: the shapes of Llama 3.2): rotary positions, RMSNorm, grouped queries, SwiGLU, no biases.

BERT (https://arxiv.org/abs/1810.04805) with its head for masked tokens (a dense layer, GELU, LayerNorm, and the embedding again with a bias),
without its pooler and its prediction of next sentences, and without dropout.

Layers that read the same input are one product: queries, keys and values, and both halves of SwiGLU. Their rows are ordered by groups, one
per head of keys and values; a group's rows are adjacent, so that ranks that share a layer each take whole groups. A block derives
the number of groups from the shape of its products.
"""

import torch
from arguments import IN_BF16
from flags import BERT_EPSILON, SIZES, STANDARD_DEVIATION, residual_deviation
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from with_pytorch import fp8
from with_pytorch.transformers import EncoderBlock

ROPE_BASE = 500_000.0  # Llama 3's


class Attention(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.head = size.width // size.heads
        self.queries = size.heads // (size.kv_heads or size.heads)  # per group
        groups = size.heads // self.queries
        self.qkv = nn.Linear(size.width, groups * (self.queries + 2) * self.head, bias=not size.llama)
        self.out = nn.Linear(size.width, size.width, bias=not size.llama)

    def forward(self, x, angles, extend_cache=None):
        """(batch, length, width) to the same shape; `angles` are the positions' `rotary_angles`, or None if positions were added earlier.

        `extend_cache` stores the keys and values of these positions and returns all so far. Unless the cache is empty, a call reads one position.
        """
        batch, length = x.shape[:2]
        qkv = self.qkv(x).view(batch, length, -1, self.queries + 2, self.head)
        q, k, v = qkv.split((self.queries, 1, 1), dim=3)
        q, k, v = (part.flatten(2, 3) for part in (q, k, v))  # (batch, length, heads, head)
        if angles is not None:
            q, k = rotated(q, angles), rotated(k, angles)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if extend_cache is not None:
            k, v = extend_cache(k, v)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=length > 1, enable_gqa=self.queries > 1)
        return self.out(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """A block's MLP: GELU between two layers, or SwiGLU."""

    def __init__(self, size):
        super().__init__()
        self.gated = size.llama
        self.part = size.hidden // size.kv_heads if self.gated else size.hidden
        self.inner = nn.Linear(size.width, size.hidden * (2 if self.gated else 1), bias=not size.llama)
        self.out = nn.Linear(size.hidden, size.width, bias=not size.llama)

    def forward(self, x):
        x = self.inner(x)
        if not self.gated:
            return self.out(functional.gelu(x, approximate="tanh"))
        gate, up = x.unflatten(-1, (-1, 2, self.part)).unbind(-2)
        return self.out((functional.silu(gate) * up).flatten(-2))


class Block(nn.Module):
    def __init__(self, size, *, recompute):
        super().__init__()
        self.recompute = recompute
        self.norm1, self.attention = norm(size), Attention(size)
        self.norm2, self.mlp = norm(size), Mlp(size)

    def forward(self, x, angles, extend_cache=None):
        if self.recompute:
            return checkpoint(self.layers, x, angles, use_reentrant=False)
        return self.layers(x, angles, extend_cache)

    def layers(self, x, angles, extend_cache=None):
        x = x + self.attention(self.norm1(x), angles, extend_cache)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, size, *, length, recompute, arithmetic, loss):
        super().__init__()
        self.arithmetic = arithmetic  # of activations between blocks, whatever the weights are in
        self.loss = loss
        self.embedding = nn.Embedding(size.vocabulary, size.width)
        self.positions = None if size.llama else nn.Embedding(size.longest, size.width)
        self.blocks = nn.ModuleList(Block(size, recompute=recompute) for _ in range(size.layers))
        self.norm = norm(size)
        self.output = nn.Linear(size.width, size.vocabulary, bias=False)
        self.tied = size.tied
        self.tie()
        self.register_buffer(
            "angles", rotary_angles(length, size.width // size.heads) if size.llama else None, persistent=False
        )

    def tie(self):
        if self.tied:
            self.output.weight = self.embedding.weight

    def shared_layers(self):
        """Yield (name, style of `sharded.STYLES`) of each layer that ranks can share: one split by columns, then its reader, split by rows."""
        yield "embedding", "embedding"
        yield "output", "scores"
        for number in range(len(self.blocks)):
            for inner, outer in (("attention.qkv", "attention.out"), ("mlp.inner", "mlp.out")):
                yield f"blocks.{number}.{inner}", "columns"
                yield f"blocks.{number}.{outer}", "rows"

    def forward(self, tokens, targets):
        """Mean cross-entropy of `targets`, the next tokens; both (batch, length) in int64. A scalar in fp32."""
        x = self.read(tokens).to(self.arithmetic)
        return self.loss(x.flatten(0, 1), self.output, targets.flatten())

    def read(self, tokens, cache=None):
        """Read (batch, length) tokens that follow those in the cache, up to the output layer: (batch, length, width)."""
        first = cache.filled if cache else 0
        last = first + tokens.shape[1]
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[first:last]
        x = x.to(self.arithmetic)
        angles = self.angles if self.angles is None else self.angles[:, first:last]
        for number, block in enumerate(self.blocks):
            x = block(x, angles, cache and cache.of(number))
        if cache:
            cache.filled = last
        return self.norm(x)


class Encoder(nn.Module):
    def __init__(self, size, *, recompute, arithmetic, loss):
        super().__init__()
        self.arithmetic, self.recompute, self.loss = arithmetic, recompute, loss
        self.embedding, self.positions = (
            nn.Embedding(size.vocabulary, size.width),
            nn.Embedding(size.longest, size.width),
        )
        self.kinds = nn.Embedding(2, size.width)  # first or second sentence
        self.norm = nn.LayerNorm(size.width, eps=BERT_EPSILON)
        self.blocks = nn.ModuleList(
            EncoderBlock(size.width, size.heads, size.hidden, epsilon=BERT_EPSILON, after=True)
            for _ in range(size.layers)
        )
        dense, norm = nn.Linear(size.width, size.width), nn.LayerNorm(size.width, eps=BERT_EPSILON)
        self.head = nn.Sequential(dense, nn.GELU(), norm)
        self.output = nn.Linear(size.width, size.vocabulary)
        self.output.weight = self.embedding.weight

    def forward(self, tokens, targets):
        """Mean cross-entropy of masked tokens, a scalar in fp32; `targets`, (batch, 2, masked), are their places and their original tokens."""
        places, wanted = targets.unbind(1)
        x = self.read(tokens)
        masked = x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))
        x = self.head(masked).to(self.arithmetic)
        return self.loss(x.flatten(0, 1), self.output, wanted.flatten())

    def read(self, tokens):
        """Read (batch, length) tokens of one sentence, up to the head: (batch, length, width)."""
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]] + self.kinds.weight[0]
        x = self.norm(x.to(self.arithmetic))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return x


class Cache:
    """Keys and values of all blocks for `batch` sequences, at `filled` of at most `length` positions."""

    def __init__(self, size, *, batch, length, device, dtype):
        shape = (size.layers, 2, batch, size.kv_heads or size.heads, length, size.width // size.heads)
        self.stored, self.filled = torch.empty(shape, device=device, dtype=dtype), 0

    def of(self, block):
        def extend(k, v):
            last = self.filled + k.shape[2]
            own = self.stored[block, :, :, :, :last]
            own[0, :, :, self.filled :], own[1, :, :, self.filled :] = k, v
            return own.unbind()

        return extend


def output_loss(x, layer, targets):
    """Mean cross-entropy of `layer`'s scores of (rows, width) `x` for (rows,) targets in int64, a scalar in fp32."""
    return functional.cross_entropy(layer(x).float(), targets)


def norm(size):
    return nn.RMSNorm(size.width, eps=1e-5) if size.llama else nn.LayerNorm(size.width)


def rotary_angles(length, head):
    """Cosines and sines of the positions' angles, (2, length, 1, head / 2) in fp32: pair i of a head rotates by position / base^(2i / head).

    https://arxiv.org/abs/2104.09864
    """
    rates = ROPE_BASE ** (-torch.arange(0, head, 2).double() / head)
    angles = torch.arange(length).double()[:, None, None] * rates
    return torch.stack((angles.cos(), angles.sin())).float()


def rotated(x, angles):
    """Rotate the pairs of (batch, length, heads, head); a pair's first number is in the first half of the head, its second in the other."""
    cos, sin = angles
    one, other = x.float().chunk(2, dim=-1)
    return torch.cat((one * cos - other * sin, one * sin + other * cos), dim=-1).to(x.dtype)


def build(args, device):
    """Build the model of a command line on a device; `--weights` sets its precision."""
    size, bf16, loss = SIZES[args.model], torch.bfloat16, output_loss
    if "loss-kernel" in args.techniques:
        from with_pytorch.loss_kernel import output_loss as loss
    torch.set_default_dtype(bf16 if args.weights == "bf16" else torch.float32)
    with device:  # where drawing weights is fast
        how = {
            "recompute": args.checkpointing == "block",
            "arithmetic": bf16 if args.precision in IN_BF16 else torch.float32,
            "loss": loss,
        }
        net = Encoder(size, **how) if size.encoder else Decoder(size, length=args.sequence_length, **how)
        ends = residual_deviation(size)
        for name, parameter in net.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                nn.init.normal_(parameter, std=ends if name.endswith("out.weight") else STANDARD_DEVIATION)
    torch.set_default_dtype(torch.float32)
    if args.precision == "fp8":
        fp8.rebuild(net.blocks)
    return net
