"""Trains a dense network on bags of words with PyTorch, on one device, with DistributedDataParallel or Horovod, and reports by events.

    python3 train_pytorch.py --model=mlp-512-reuters --num-classes=46 --batch=32 --iterations=40 --warmup=4 --window=4 --precision=fp32 \
        --device=cpu --devices=1 --strategy=single --data=synthetic --learning-rate=0.1 --momentum=0.9 --weight-decay=0 \
        --dropout=0.5 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=0
    torchrun --standalone --nproc-per-node=2 train_pytorch.py ... --strategy=ddp
    horovodrun --gloo -np 2 python3 train_pytorch.py ... --strategy=horovod --compression=none
    python3 train_pytorch.py ... --iterations=560 --epoch-iterations=280
    python3 train_pytorch.py ... --profile=kernels --profile-iterations=5

The loop is `workloads/loop.py`, the step `workloads/with_pytorch/training.py`; here are the network and its documents, which all stay on the
device, a byte a word.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flags import check, parser
from flop import per_sample
from synthetic import SHARED, TOPICS, TRAINING, VALIDATION, WORDS, Corpus, rows, share
from with_pytorch.training import Classifier, run

VALIDATED = 512  # documents at once


class Documents:
    """Endless batches of this rank's training documents, an order of its own for each epoch."""

    def __init__(self, torch, bags, topics, numbers):
        self.torch, self.bags, self.topics, self.numbers = torch, bags, topics, numbers

    def __next__(self):
        rows = self.torch.from_numpy(next(self.numbers)).to(self.bags.device, non_blocking=True)
        return self.bags[rows].float(), self.topics[rows]


class Mlp(Classifier):
    """The dense network, and this rank's documents."""

    def network(self):
        from models_torch import build

        return build(WORDS, TOPICS, self.args.dropout)

    def documents(self, *, first, count):
        """Bags of words and topics, on the device."""
        bags, topics = map(self.torch.from_numpy, Corpus(self.args.seed).documents(first=first, count=count))
        return bags.to(self.device), topics.to(self.device)

    def open(self):
        part = {"rank": self.ranks.rank, "world_size": self.ranks.world_size}
        numbers = rows(self.args.seed, **part, batch=self.args.batch)
        return Documents(self.torch, *self.documents(first=0, count=TRAINING), numbers)

    def shared_batch(self):
        bags, topics = self.documents(first=SHARED, count=self.args.batch)
        return bags.float(), topics

    def validation(self):
        first, count = share(VALIDATION, rank=self.ranks.rank, world_size=self.ranks.world_size)
        bags, topics = self.documents(first=TRAINING + first, count=count)
        for start in range(0, count, VALIDATED):
            yield bags[start : start + VALIDATED].float(), topics[start : start + VALIDATED]

    def shape(self):
        return {"image_shape": None, "num_classes": TOPICS}

    def flop_per_sample(self):
        from with_pytorch.operations import layers_of

        return per_sample(layers_of(self.net, (WORDS,)))


if __name__ == "__main__":
    args = parser(__doc__.splitlines()[0]).parse_args()
    check(args, topics=TOPICS)
    run(Mlp, args)
