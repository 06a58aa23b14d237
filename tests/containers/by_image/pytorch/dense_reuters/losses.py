"""Inside the image: the topic classifier loses in twenty steps what all frameworks' have to lose from the same weights on the same documents.

Prevents networks of one name that are not one network, an update that another framework does otherwise, documents in another order.
"""

import alike
import torch
from flags import parser
from train_pytorch import Mlp
from with_pytorch.ranks import Alone

training = Mlp(alike.flags(parser, "mlp-512-reuters"), torch, torch.device("cpu"), Alone())
alike.hold({"mlp-512-reuters": alike.copied(training)})
