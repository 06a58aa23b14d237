"""Inside the image: the topic classifier has PyTorch's losses over twenty steps from the same weights on the same documents.

Prevents different networks of one name, an update that differs from PyTorch's, documents in another order.
"""

import alike
from flags import parser
from train_tensorflow import Mlp
from with_tensorflow.ranks import Alone
from with_tensorflow.shim import tf

training = Mlp(alike.flags(parser, "mlp-512-reuters"), tf, Alone("/cpu:0"))
alike.transposed(training.variables, tf, normalized=False)
alike.check({"mlp-512-reuters": training.read([training.step() for _ in range(alike.STEPS)])})
