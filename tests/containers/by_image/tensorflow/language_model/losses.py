"""Inside the image: BERT loses in twenty steps what PyTorch's does from the same weights on the same tokens.

Prevents heads that are cut otherwise, sums that are normalized before and not behind, places of masked tokens that are one off, an embedding that
gets half of its gradient, an AdamW with other betas or that decays what PyTorch's leaves.
"""

import alike
from flags import SIZES, parser
from train_tensorflow import Bert
from with_tensorflow.ranks import Alone
from with_tensorflow.shim import tf

TABLES, STEM, BLOCK = 3, 5, 12  # embeddings; with their normalization; variables of a block
training = Bert(alike.flags(parser, "bert-tiny"), tf, Alone("/cpu:0"))
ordered, end = training.variables[:STEM], STEM + BLOCK * SIZES["bert-tiny"].layers
for first in range(STEM, end, BLOCK):
    own = training.variables[first : first + BLOCK]
    # Two layers and what normalizes behind them, twice; PyTorch names both normalizations first.
    ordered += [*own[4:6], *own[:4], *own[10:], *own[6:10]]
ordered += training.variables[end:]
scales = {number for number, variable in enumerate(ordered) if "gamma" in variable.name}
alike.transposed(ordered, tf, normalized=scales, tables=TABLES)
alike.hold({"bert-tiny": training.read([training.step() for _ in range(alike.STEPS)])})
