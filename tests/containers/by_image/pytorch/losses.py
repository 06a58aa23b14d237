"""Inside the image: a Vision Transformer loses what the golden losses say, to which TensorFlow's is held as well."""

import alike
import alone
from flags import parser
from train_pytorch import Cnn

training = alone.training(Cnn, parser, *alike.WORDS["vit-ti16"])
alike.hold({"vit-ti16": alike.copied(training, normalized="biased")})
