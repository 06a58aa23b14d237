"""Inside the image: a Vision Transformer has PyTorch's losses over twenty steps from the same weights on the same images.

Prevents tokens in another order, heads that are split differently, an AdamW that decays other weights than PyTorch's.
"""

import alike
from flags import parser
from train_tensorflow import Cnn
from with_tensorflow.ranks import Alone
from with_tensorflow.shim import tf

training = Cnn(alike.flags(parser, "vit-ti16"), tf, Alone("/cpu:0"))
in_order = training.variables
# PyTorch lists the class token and the positions before the convolution that makes the other tokens.
alike.transposed([*in_order[2:4], *in_order[:2], *in_order[4:]], tf, normalized="biased")
alike.check({"vit-ti16": training.read([training.step() for _ in range(alike.STEPS)])})
