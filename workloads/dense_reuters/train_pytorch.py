"""Trains a dense network on bags of words with PyTorch, on one device, with DistributedDataParallel or Horovod, and reports events.

    python3 train_pytorch.py --model=mlp-512-reuters --num-classes=46 --batch=32 --iterations=40 --warmup=4 --window=4 --precision=fp32 \
        --device=cpu --devices=1 --strategy=single --data=synthetic --learning-rate=0.001 --dropout=0.5 --seed=1 \
        --threads=2 --cpus-per-worker=0 --loader-workers=0
    torchrun --standalone --nproc-per-node=2 train_pytorch.py ... --strategy=ddp
    horovodrun --gloo -np 2 python3 train_pytorch.py ... --strategy=horovod --compression=none
    python3 train_pytorch.py ... --iterations=560 --epoch-iterations=280
    python3 train_pytorch.py ... --profile=kernels --profile-iterations=5

All documents stay on the device, one byte per word.

This file has the data, the network, the step and the timed window. `workloads/loop.py`, shared by all programs, runs the windows and
everything before and after them, and emits their events; `with_pytorch/training.py` has everything that is not measured.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flags import EPSILON, check, parser
from flop import per_sample
from loop import Batches
from synthetic import SHARED, TOPICS, TRAINING, VALIDATION, WORDS, Corpus, rows, share
from with_pytorch.training import Training, run

HIDDEN = 512
VALIDATED = 512  # documents per batch


def build(torch, dropout):
    """Build the classifier of Keras' Reuters example: (batch, WORDS) bags of words in fp32 to (batch, TOPICS) scores, 5,144,110 parameters.

    https://github.com/keras-team/keras/blob/2.3.1/examples/reuters_mlp.py. Weights are drawn as in Keras: uniformly (Glorot and Bengio 2010),
    biases zero.
    """
    nn = torch.nn
    net = nn.Sequential(nn.Linear(WORDS, HIDDEN), nn.ReLU(inplace=True), nn.Dropout(dropout), nn.Linear(HIDDEN, TOPICS))
    for module in net.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    return net


class Documents:
    """Endless batches of this rank's training documents, in a new order each epoch."""

    def __init__(self, torch, bags, topics, numbers):
        self.torch, self.bags, self.topics, self.numbers = torch, bags, topics, numbers

    def __next__(self):
        rows = self.torch.from_numpy(next(self.numbers)).to(self.bags.device, non_blocking=True)
        return self.bags[rows].float(), self.topics[rows]


class Mlp(Training):
    def __init__(self, args, torch, device, ranks):
        super().__init__(args, torch, device, ranks)
        self.take(build(torch, args.dropout))
        numbers = rows(args.seed, rank=ranks.rank, world_size=ranks.world_size, batch=args.batch)
        self.batches = Batches(Documents(torch, *self.documents(first=0, count=TRAINING), numbers))

    def update_rule(self):
        names = self.args.techniques
        how = {"fused": "fused-optimizer" in names or None, "capturable": "cuda-graphs" in names}
        adam = self.torch.optim.Adam(self.parameters, lr=self.args.learning_rate, eps=EPSILON, **how)
        return self.ranks.optimizer(adam, self.net)

    def window(self, iterations):
        """Enqueue the steps of a timed window. Nothing here waits for a GPU: the clock records an event at each mark."""
        marks, losses = [self.clock.mark()], []
        for _ in range(iterations):
            losses.append(self.step())
            marks.append(self.clock.mark())
        return self.clock.edge(marks, losses)

    def step(self):
        with self.regions("input"):
            batch = next(self.batches)
        return self.enqueue(batch)  # `learn`, or its replay with --techniques=cuda-graphs

    def learn(self, batch):
        with self.regions("optimizer"):
            self.optimizer.zero_grad()
        with self.regions("forward"), self.autocast:
            loss = self.loss(self.model, batch)
        with self.regions("backward"):
            self.scaler.scale(loss).backward()
        with self.regions("optimizer"):
            self.ranks.update(self.optimizer, self.scaler)
        return loss.detach()  # stays on the device: reading it here would stall every step

    def loss(self, model, batch):
        bags, topics = batch
        return self.torch.nn.functional.cross_entropy(model(bags), topics)

    def documents(self, *, first, count):
        bags, topics = map(self.torch.from_numpy, Corpus(self.args.seed).documents(first=first, count=count))
        return bags.to(self.device), topics.to(self.device)

    def shared_batch(self):
        bags, topics = self.documents(first=SHARED, count=self.args.batch)
        return bags.float(), topics

    def validation(self):
        first, count = share(VALIDATION, rank=self.ranks.rank, world_size=self.ranks.world_size)
        bags, topics = self.documents(first=TRAINING + first, count=count)
        for start in range(0, count, VALIDATED):
            yield bags[start : start + VALIDATED].float(), topics[start : start + VALIDATED]

    def flop_per_sample(self):
        from with_pytorch.operations import layers_of

        return per_sample(layers_of(self.net, (WORDS,)))


if __name__ == "__main__":
    args = parser(__doc__.splitlines()[0]).parse_args()
    check(args, topics=TOPICS)
    run(Mlp, args)
