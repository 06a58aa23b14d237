"""Inside the image: the topic classifier has the example's layers, learns topics, and validates on every document once.

Prevents a layer of another width, documents that do not reach the network, an accuracy measured with dropout or on training
documents, validation that changes the training.
"""

import json
import sys

import alone
import torch
from flags import parser
from synthetic import Corpus
from torch.utils.flop_counter import FlopCounterMode
from train_pytorch import Mlp
from with_pytorch.ranks import Alone


class Second(Alone):
    """The second of two ranks; it communicates with nobody."""

    rank, world_size = 1, 2


made = alone.training(Mlp, parser, *alone.DENSE, "--batch=32")
# 10,000 words to 512 units to 46 topics, with biases.
count = 10_000 * 512 + 512 + 512 * 46 + 46
assert sum(p.numel() for p in made.parameters) == count
assert json.loads(sys.argv[2])["dense_reuters"] == {"mlp-512-reuters": [None, count]}
before = made.validate()
with FlopCounterMode(display=False) as counter:
    made.step()
assert sum(made.flop_per_sample().values()) * 32 == counter.get_total_flops()

bags, topics = Corpus(1).documents(first=0, count=1)
assert torch.equal(made.batches.source.bags[0], torch.from_numpy(bags[0]))
assert made.batches.source.topics[0] == topics[0]

losses = [made.step().item() for _ in range(100)]
assert sum(losses[:10]) > 1.5 * sum(losses[-10:]), losses
state = torch.get_rng_state()
after = made.validate()
assert torch.equal(state, torch.get_rng_state()), "validation drew random numbers"
assert made.net.training
assert (before["samples"], after["samples"]) == (2_246, 2_246)
assert after["correct"] > 3 * before["correct"], (before, after)
assert 0.5 < after["correct"] / 2_246 < 0.95, after
assert after["loss_sum"] < before["loss_sum"]

# The second of two ranks has the documents that the first leaves.
other = alone.training(Mlp, parser, *alone.DENSE, "--batch=32", ranks=Second())
other.net.load_state_dict(made.net.state_dict())
half = other.validate()
assert half["samples"] == 1_123
numbers = range(8_982 + 1_123, 8_982 + 2_246)
bags, topics = map(torch.from_numpy, Corpus(1).documents(first=numbers[0], count=len(numbers)))
with torch.no_grad():
    right = (other.net.eval()(bags.float()).argmax(1) == topics).sum().item()
assert half["correct"] == right
