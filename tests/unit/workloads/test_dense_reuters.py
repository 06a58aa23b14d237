"""The documents of the topic classifier.

Prevents: ranks that train on each other's documents, an epoch that omits or repeats documents, validation on documents that
were trained on, topics that can't be told from the words, lengths and topics unlike those of the corpus.
"""

import itertools

import numpy as np
from dense_reuters import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), first=st.integers(0, 10_000), count=st.integers(1, 5))
def test_a_document_depends_only_on_its_number(seed, first, count):
    corpus = synthetic.Corpus(seed)
    bags, topics = corpus.documents(first=first, count=count)
    assert (bags.shape, bags.dtype, topics.dtype) == ((count, 10_000), np.uint8, np.int64)
    again, same = synthetic.Corpus(seed).documents(first=first + count - 1, count=1)
    assert np.array_equal(again[0], bags[-1])
    assert same[0] == topics[-1]
    assert set(np.unique(bags)) <= {0, 1}
    assert bags.any(axis=1).all()


def test_lengths_and_topics_are_those_of_the_corpus():
    bags, topics = synthetic.Corpus(1).documents(first=0, count=2_000)
    assert set(topics) <= set(range(46))
    shares = np.sort(np.bincount(topics, minlength=46))[::-1] / 2_000
    assert shares[:2].sum() > 0.5
    # A repeated word counts once: fewer than the 146 drawn on average.
    assert 60 < bags.sum(axis=1).mean() < 146


def test_topics_can_be_told_from_the_words():
    """The nearest topic mean distinguishes documents of the two most frequent topics far better than chance."""
    bags, topics = synthetic.Corpus(1).documents(first=0, count=2_000)
    first, second = np.argsort(-np.bincount(topics))[:2]
    known, asked = slice(0, 1_000), slice(1_000, 2_000)
    means = [bags[known][topics[known] == topic].mean(axis=0) for topic in (first, second)]
    rows = [(row, topic) for row, topic in zip(bags[asked], topics[asked], strict=True) if topic in {first, second}]
    told = [
        (first, second)[int(row @ means[1] > row @ means[0] + ((means[1] ** 2).sum() - (means[0] ** 2).sum()) / 2)]
        for row, _ in rows
    ]
    right = np.mean([one == topic for one, (_, topic) in zip(told, rows, strict=True)])
    assert right > 0.8


@given(seed=st.integers(0, 2**32), batch=st.integers(1, 64), world=st.integers(1, 4))
@settings(max_examples=20)
def test_an_epoch_has_each_document_once_but_for_the_last_few(seed, batch, world):
    together = batch * world
    count = 8_982 // together
    numbers = np.stack(
        [
            list(itertools.islice(synthetic.rows(seed, rank=rank, world_size=world, batch=batch), count))
            for rank in range(world)
        ]
    )
    assert numbers.size == count * together
    assert len(np.unique(numbers)) == numbers.size
    alone = list(itertools.islice(synthetic.rows(seed, rank=0, world_size=1, batch=together), count))
    assert np.array_equal(np.concatenate(list(numbers), axis=1), np.stack(alone))


def test_the_second_epoch_is_in_another_order():
    count = 8_982 // 1_000
    batches = list(itertools.islice(synthetic.rows(1, rank=0, world_size=1, batch=1_000), 2 * count))
    assert not np.array_equal(batches[:count], batches[count:])
    assert max(map(np.max, batches)) < 8_982  # 8,982 and later are for validation


@given(samples=st.integers(1, 5_000), world=st.integers(1, 9))
def test_shares_cover_the_validation_set_once(samples, world):
    shares = [synthetic.share(samples, rank=rank, world_size=world) for rank in range(world)]
    assert [row for first, count in shares for row in range(first, first + count)] == list(range(samples))
