"""Inside the image: the topic classifier has over twenty steps the losses required of all frameworks, from the same weights and documents.

Prevents different networks of one name, an update that differs between frameworks, documents in another order.
"""

import alike
import torch
from flags import parser
from train_pytorch import Mlp
from with_pytorch.ranks import Alone

training = Mlp(alike.flags(parser, "mlp-512-reuters"), torch, torch.device("cpu"), Alone())
alike.check({"mlp-512-reuters": alike.copied(training)})
