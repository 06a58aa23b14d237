"""Inside the image: BERT has PyTorch's losses over twenty steps from the same weights on the same tokens.

Prevents heads that are split differently, normalization before a sum instead of after it, places of masked tokens shifted by one, an embedding
with half its gradient, an AdamW with other betas or other decayed weights than PyTorch's.
"""

import alike
from flags import SIZES, parser
from train_tensorflow import Bert
from with_tensorflow.ranks import Alone
from with_tensorflow.shim import tf

TABLES, STEM, BLOCK = 3, 5, 12  # embeddings; embeddings and their normalization; variables per block
training = Bert(alike.flags(parser, "bert-tiny"), tf, Alone("/cpu:0"))
ordered, end = training.variables[:STEM], STEM + BLOCK * SIZES["bert-tiny"].layers
for first in range(STEM, end, BLOCK):
    own = training.variables[first : first + BLOCK]
    # Two layers and the normalization after them, twice; PyTorch lists both normalizations first.
    ordered += [*own[4:6], *own[:4], *own[10:], *own[6:10]]
ordered += training.variables[end:]
scales = {number for number, variable in enumerate(ordered) if "gamma" in variable.name}
alike.transposed(ordered, tf, normalized=scales, tables=TABLES)
alike.check({"bert-tiny": training.read([training.step() for _ in range(alike.STEPS)])})
