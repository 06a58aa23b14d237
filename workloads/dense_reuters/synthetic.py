"""Documents of the shape of the Reuters newswire topics in Keras, drawn from a seed: bags of words with topics that can be learnt. NumPy only.

The corpus itself may not be downloaded everywhere, and what is measured does not depend on its words. What is kept of it: 8,982 documents to
train on and 2,246 to validate with, 46 topics of which two have more than half of all documents, the 10,000 most frequent words, each
there or not (https://keras.io/api/datasets/reuters/, whose defaults split 11,228 documents so). What is ours: words are drawn with Zipf's
frequencies, 1 / rank; of a topic's documents a tenth of the words comes from an order of words of its own, so that a topic shows and
a document can still be taken for another. Lengths are log-normal around 100 words, so that the mean is about 146, as the corpus has.

Document number i depends on the seed and on i alone. Every epoch has its own order, the same on all ranks; each takes its stretch of every
global batch, and what does not fill a last one is left out.
"""

import numpy as np

WORDS, TOPICS = 10_000, 46
TRAINING, VALIDATION = 8_982, 2_246
OWN_WORDS = 0.1  # share of a document's words that come from its topic's order
LENGTH_MEDIAN, LENGTH_SIGMA = 100, 0.87  # mean: 100 exp(0.87² / 2) = 146
SHARED = 1 << 32  # first of the documents on which all ranks compute one loss
ORDERS, EPOCHS = 1, 2  # what else is drawn from a seed, beside documents


def zipf(count):
    """Probabilities in proportion to 1 / rank."""
    weights = 1 / np.arange(1, count + 1)
    return weights / weights.sum()


class Corpus:
    def __init__(self, seed):
        self.seed = seed
        self.words = np.cumsum(zipf(WORDS))
        self.topics = np.cumsum(zipf(TOPICS) ** 1.5 / (zipf(TOPICS) ** 1.5).sum())
        random = np.random.default_rng((seed, ORDERS, WORDS))
        self.orders = np.stack([random.permutation(WORDS) for _ in range(TOPICS)])

    def document(self, number):
        """Its topic, and the words that it has: (up to its length,) in ascending order."""
        random = np.random.default_rng((self.seed, 0, number))
        topic = drawn(self.topics, random.random())
        length = max(1, round(random.lognormal(np.log(LENGTH_MEDIAN), LENGTH_SIGMA)))
        ranks = drawn(self.words, random.random(length))
        own = random.random(length) < OWN_WORDS
        return int(topic), np.unique(np.where(own, self.orders[topic][ranks], ranks))

    def documents(self, *, first, count):
        """Bags of words (count, WORDS) of 0 and 1 in uint8, and topics (count,) in int64."""
        bags, topics = np.zeros((count, WORDS), np.uint8), np.empty(count, np.int64)
        for row in range(count):
            topics[row], words = self.document(first + row)
            bags[row, words] = 1
        return bags, topics


def drawn(cumulated, numbers):
    """Indices that uniform numbers choose; the last sum may fall short of 1 by what was rounded."""
    return np.minimum(np.searchsorted(cumulated, numbers, side="right"), len(cumulated) - 1)


def rows(seed, *, rank, world_size, batch):
    """Numbers (batch,) of the training documents of each of a rank's batches, epoch after epoch, without end."""
    together = batch * world_size
    epoch = 0
    while True:
        order = np.random.default_rng((seed, EPOCHS, epoch)).permutation(TRAINING)
        for first in range(rank * batch, TRAINING // together * together, together):
            yield order[first : first + batch]
        epoch += 1


def share(samples, *, rank, world_size):
    """A rank's stretch, as (first, count), of so many samples: all ranks together have each once."""
    first = samples * rank // world_size
    return first, samples * (rank + 1) // world_size - first
