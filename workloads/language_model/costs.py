"""What a token of each language model costs in floating-point operations, the same in every framework. Standard library and NumPy only."""

from flags import SIZES
from tokens import masked_of


def flop_per_token(model, *, length):
    """Count one token: {"forward", "backward"}, in floating-point operations: twice the multiply-adds of all products.

    Those with weights, 2 forward for each weight of a dense layer and 4 backward: the embedding multiplies nothing, unless it is the output
    layer too. Those of attention are counted over the whole square of a sequence, whose half a causal kernel may leave out: 4 x layers x
    width x length forward. That is 6N + 12LHQT of PaLM's appendix B (https://arxiv.org/abs/2204.02311); what a checkpointed
    block computes again is not counted.
    """
    size = SIZES[model]
    scores = size.width * size.vocabulary
    if size.encoder:
        scores = (size.width**2 + scores) * masked_of(length) / length
    forward = flop_per_read_token(model, length=length)["forward"] + 2 * scores
    return {"forward": forward, "backward": 2 * forward}


def flop_per_read_token(model, *, length):
    """Count the same of one token without the output layer."""
    size = SIZES[model]
    return {"forward": 2 * block_weights(size) + 4 * size.layers * size.width * length}


def flop_per_new_token(model, *, prompt, new):
    """Count what a token costs that is generated, its share of the prompt included: ``new`` tokens after ``prompt`` of them.

    The prompt is read at once, its attention over the whole square as above; each token after the first reads one position, and all before.
    Only the position behind which a token is chosen has scores.
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
