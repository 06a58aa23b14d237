"""Inside the image: BERT has the golden losses, against which TensorFlow's is also checked."""

import alike
import alone
from flags import parser
from train_pytorch import LanguageModel

training = alone.training(LanguageModel, parser, *alike.WORDS["bert-tiny"])
scales = {
    number
    for number, (name, p) in enumerate(training.net.named_parameters())
    if p.dim() == 1 and ("norm" in name or name.startswith("head.2")) and name.endswith("weight")
}
assert len(training.parameters) == len(list(training.net.parameters()))
alike.check({"bert-tiny": alike.copied(training, normalized=scales)})
