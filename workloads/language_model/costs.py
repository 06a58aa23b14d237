"""Floating-point operations per token of each language model, the same in every framework. Standard library and NumPy only."""

from flags import SIZES
from tokens import masked_count


def flop_per_token(model, *, length):
    """Count operations per token, {"forward", "backward"}: twice the multiply-adds of all products.

    Each weight of a dense layer counts 2 forward and 4 backward; the embedding multiplies nothing, unless it is also the output
    layer. Attention counts the full square of a sequence, although a causal kernel may skip half of it: 4 x layers x
    width x length forward. The sum is 6N + 12LHQT of PaLM's appendix B (https://arxiv.org/abs/2204.02311); recomputation of checkpointed
    blocks is not counted.
    """
    size = SIZES[model]
    scores = size.width * size.vocabulary
    if size.encoder:
        scores = (size.width**2 + scores) * masked_count(length) / length
    forward = flop_per_read_token(model, length=length)["forward"] + 2 * scores
    return {"forward": forward, "backward": 2 * forward}


def flop_per_read_token(model, *, length):
    """Count a token's forward operations without the output layer."""
    size = SIZES[model]
    return {"forward": 2 * block_weights(size) + 4 * size.layers * size.width * length}


def flop_per_new_token(model, *, prompt, new):
    """Count operations per generated token, with its share of the prompt: ``new`` tokens after ``prompt`` tokens.

    The prompt is read in one pass, its attention over the full square as above. Each token after the first reads one position, attending to all
    earlier ones. Scores are computed only at positions that choose a token.
    """
    size = SIZES[model]
    read = prompt + new - 1
    attended = prompt**2 + sum(range(prompt + 1, read + 1))
    return {
        "forward": (
            2 * (read * block_weights(size) + new * size.width * size.vocabulary)
            + 4 * size.layers * size.width * attended
        )
        / new
    }


def block_weights(size):
    """Weights of the dense layers of all blocks."""
    shared = 2 * (size.width // size.heads) * (size.kv_heads or size.heads)
    return size.layers * size.width * (2 * size.width + shared + size.hidden * (3 if size.llama else 2))
