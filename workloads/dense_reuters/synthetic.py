"""Documents shaped like Keras' Reuters newswire topics, drawn from a seed: bags of words with learnable topics. NumPy only.

The corpus can't be downloaded everywhere, and the measurements do not depend on its words. Kept from it: 8,982 training documents
and 2,246 for validation; 46 topics, two of which have more than half of all documents; the 10,000 most frequent words, each
present or absent (https://keras.io/api/datasets/reuters/, whose defaults split 11,228 documents this way). Ours: words are drawn with Zipf's
frequencies, 1 / rank; a tenth of a document's words come from its topic's own order of words, so that topics can be told apart, but
not always. Lengths are log-normal with median 100, so that the mean is about 146 words, as in the corpus.

Document number i depends only on the seed and i. Each epoch has its own order, the same on all ranks; each rank takes its stretch of every
global batch, and the last, incomplete batch is dropped.
"""

import numpy as np

WORDS, TOPICS = 10_000, 46
TRAINING, VALIDATION = 8_982, 2_246
OWN_WORDS = 0.1  # share of a document's words drawn from its topic's order
LENGTH_MEDIAN, LENGTH_SIGMA = 100, 0.87  # mean: 100 exp(0.87² / 2) = 146
SHARED = 1 << 32  # first of the documents on which all ranks compute the same loss
ORDERS, EPOCHS = 1, 2  # other streams drawn from a seed, besides documents


def zipf(count):
    """Return probabilities proportional to 1 / rank."""
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
        """Return a document's topic, and its distinct words in ascending order, at most as many as its length."""
        random = np.random.default_rng((self.seed, 0, number))
        topic = drawn(self.topics, random.random())
        length = max(1, round(random.lognormal(np.log(LENGTH_MEDIAN), LENGTH_SIGMA)))
        ranks = drawn(self.words, random.random(length))
        own = random.random(length) < OWN_WORDS
        return int(topic), np.unique(np.where(own, self.orders[topic][ranks], ranks))

    def documents(self, *, first, count):
        """Return bags of words (count, WORDS) of 0 and 1 in uint8, and topics (count,) in int64."""
        bags, topics = np.zeros((count, WORDS), np.uint8), np.empty(count, np.int64)
        for row in range(count):
            topics[row], words = self.document(first + row)
            bags[row, words] = 1
        return bags, topics


def drawn(cumulated, numbers):
    """Map uniform numbers to indices; rounding may leave the last cumulated sum below 1."""
    return np.minimum(np.searchsorted(cumulated, numbers, side="right"), len(cumulated) - 1)


def rows(seed, *, rank, world_size, batch):
    """Yield the numbers (batch,) of the training documents in each of a rank's batches, epoch after epoch, endlessly."""
    together = batch * world_size
    epoch = 0
    while True:
        order = np.random.default_rng((seed, EPOCHS, epoch)).permutation(TRAINING)
        for first in range(rank * batch, TRAINING // together * together, together):
            yield order[first : first + batch]
        epoch += 1


def share(samples, *, rank, world_size):
    """Return a rank's stretch of `samples` samples, as (first, count); together, the ranks cover each sample once."""
    first = samples * rank // world_size
    return first, samples * (rank + 1) // world_size - first
