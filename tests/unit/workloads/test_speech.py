"""Utterances, their spectrograms and their batches.

Prevents: padding that counts as audio, seconds lost or counted twice over the ranks, texts longer than CTC can align, frames or outputs
miscounted by one, a spectrogram of wrong frequencies, ranks with batches of different lengths in a step, lengths unlike LibriSpeech's.
"""

import itertools
import math

import numpy as np
import pytest
import speech
from hypothesis import given, settings
from hypothesis import strategies as st


def test_frames_and_outputs_by_hand():
    """20 ms windows every 10 ms: one second has 99, the last from 980 ms on; every second one gives an output."""
    assert [speech.frames(samples) for samples in (320, 479, 480, 16_000)] == [1, 1, 2, 99]
    assert [speech.steps(frames) for frames in (1, 2, 3, 99)] == [1, 1, 2, 50]


def test_ctc_needs_a_blank_between_equal_letters():
    assert speech.encode("Hello, World!").tolist() == [10, 7, 14, 14, 17, 1, 25, 17, 20, 14, 6]
    assert speech.needed(speech.encode("hello")) == 6
    assert speech.needed(speech.encode("aaa")) == 5
    assert speech.needed(speech.encode("")) == 0
    assert speech.OUTPUTS == 29


def test_a_tone_is_in_the_bin_of_its_frequency():
    """1 kHz is bin 20 of the 50 Hz bins of windows of 20 ms."""
    audio = np.sin(2 * math.pi * 1_000 * np.arange(speech.RATE) / speech.RATE)
    found = speech.spectrogram(audio)
    assert (found.shape, found.dtype) == ((161, 99), np.float32)
    assert set(found.argmax(axis=0)) == {20}
    assert found.mean() == pytest.approx(0, abs=1e-5)
    assert found.std() == pytest.approx(1, abs=1e-5)


def test_silence_has_a_spectrogram():
    assert not speech.spectrogram(np.zeros(speech.RATE)).any()


@given(seed=st.integers(0, 2**32), number=st.integers(0, 2**33), longest=st.floats(1, 20))
def test_an_utterances_text_fits_its_outputs(seed, number, longest):
    samples = speech.duration(seed, number, longest_s=longest)
    assert speech.RATE <= samples <= round(speech.RATE * longest)
    # 14 letters a second, with a blank between any two, need fewer than 50 outputs.
    assert 2 * (speech.CHARACTERS_PER_S * samples // speech.RATE) < speech.steps(speech.frames(samples))


@settings(max_examples=10)
@given(number=st.integers(0, 100))
def test_a_synthetic_utterance_has_its_stated_length(number):
    one = speech.synthetic(1, number, longest_s=2)
    assert one.samples == speech.duration(1, number, longest_s=2)
    assert (one.spectrogram.shape, one.spectrogram.dtype) == ((161, speech.frames(one.samples)), np.float32)
    assert len(one.text) == 14 * one.samples // speech.RATE
    assert one.text.min() >= 1
    assert one.text.max() <= 28


def test_lengths_are_librispeechs():
    seconds = [speech.duration(1, number, longest_s=17) / speech.RATE for number in range(4_000)]
    # 960.9 hours in 281,241 utterances; the density's standard deviation is 3.5 s: five standard errors of 4,000.
    assert np.mean(seconds) == pytest.approx(960.9 * 3600 / 281_241, abs=5 * 3.5 / 4_000**0.5)
    assert min(seconds) >= 1
    assert max(seconds) <= 17


def utterance(frames, text=(1, 2)):
    return speech.Utterance(np.full((161, frames), frames, np.float32), np.array(text), 320 + 160 * (frames - 1))


def test_a_batch_by_hand():
    batch = speech.collate([utterance(2, (5,)), utterance(4, (6, 7, 8)), utterance(3)])
    assert batch.frames.tolist() == [4, 3, 2]
    assert batch.spectrograms.shape == (3, 161, 4)
    assert batch.spectrograms[:, 0].tolist() == [[4, 4, 4, 4], [3, 3, 3, 0], [2, 2, 0, 0]]
    assert batch.texts.tolist() == [[6, 7, 8], [1, 2, 0], [5, 0, 0]]
    assert batch.characters.tolist() == [3, 2, 1]
    assert batch.seconds == (480 + 800 + 640) / 16_000  # 2, 4 and 3 windows, without padding


@given(
    samples=st.lists(st.integers(320, 10**6), min_size=1, max_size=60),
    batch=st.integers(1, 5),
    world=st.integers(1, 3),
)
def test_ranks_share_batches_of_nearly_equal_length(samples, batch, world):
    parts = [speech.buckets(samples, batch=batch, rank=rank, world_size=world) for rank in range(world)]
    count = len(samples) // (batch * world)
    assert all(part.shape == (count, batch) for part in parts)
    numbers = [int(number) for part in parts for number in part.ravel()]
    assert len(set(numbers)) == len(numbers) == count * batch * world
    together = [np.concatenate([part[index] for part in parts]) for index in range(count)]
    lengths = [[samples[number] for number in group] for group in together]
    for longer, shorter in itertools.pairwise(lengths):
        assert min(longer) >= max(shorter)
    left = set(range(len(samples))) - set(numbers)
    assert not count or not left or max(samples[n] for n in left) <= min(map(min, lengths))


@settings(max_examples=5)
@given(batch=st.integers(1, 2), world=st.integers(1, 3))
def test_two_ranks_have_the_audio_of_one(batch, world):
    alone = speech.synthetic_batches(1, batch=batch * world, rank=0, world_size=1, longest_s=1.5)
    parts = [speech.synthetic_batches(1, batch=batch, rank=r, world_size=world, longest_s=1.5) for r in range(world)]
    assert len(alone) == speech.BATCHES
    for index, whole in enumerate(alone):
        own = [part[index] for part in parts]
        assert sum(one.seconds for one in own) == pytest.approx(whole.seconds, rel=1e-12)
        assert sorted(np.concatenate([one.frames for one in own])) == sorted(whole.frames)


def test_the_seconds_of_a_run_are_those_of_its_utterances():
    batches = speech.synthetic_batches(3, batch=2, rank=0, world_size=1, longest_s=2)
    expected = sum(speech.duration(3, number, longest_s=2) for number in range(16)) / 16_000
    assert sum(batch.seconds for batch in batches) == pytest.approx(expected, rel=1e-12)


def test_the_shared_batch_is_not_trained_on():
    trained = speech.synthetic_batches(1, batch=2, rank=0, world_size=1, longest_s=1)
    shared = speech.shared_batch(1, batch=2, longest_s=1)
    known = {row.tobytes() for batch in trained for row in batch.spectrograms}
    assert not {row.tobytes() for row in shared.spectrograms} & known


def test_epochs_are_in_different_orders():
    orders = [speech.shuffled(1, epoch, 50).tolist() for epoch in (0, 1)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(50))
    assert orders[0] != orders[1]
