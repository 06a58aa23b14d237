"""Inside the image: a Vision Transformer has the golden losses, against which TensorFlow's is also checked."""

import alike
import alone
from flags import parser
from train_pytorch import Cnn

training = alone.training(Cnn, parser, *alike.WORDS["vit-ti16"])
alike.check({"vit-ti16": alike.copied(training, normalized="biased")})
