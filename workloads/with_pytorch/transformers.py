"""Encoder blocks, in which every position attends to all others: (batch, length, width) to the same shape."""

from torch import nn
from torch.nn import functional


class Attend(nn.Module):
    """Attention's weightless products, which count as layers (`operations`); each of (batch, heads, length, head)."""

    def forward(self, q, k, v):
        return functional.scaled_dot_product_attention(q, k, v)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.attend, self.out = nn.Linear(width, 3 * width), Attend(), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))


class EncoderBlock(nn.Module):
    """Encoder block, normalized before each part, as in ViT, or, with `after`, after each sum, as in BERT and the first transformer."""

    def __init__(self, width, heads, hidden, *, epsilon, after=False):
        super().__init__()
        self.after = after
        self.norm1, self.attention = nn.LayerNorm(width, eps=epsilon), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=epsilon)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x):
        if self.after:
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.mlp(x))
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))
