"""BERT in TensorFlow, an encoder that predicts masked tokens, with the same parameters as in `models_torch`: `build(size, length)`.

Uses Keras' functional form. Normalizations, embeddings and the sums of residual branches are in fp32 under every policy; products follow it.
"""

from flags import BERT_EPSILON, STANDARD_DEVIATION, residual_deviation
from tokens import masked_count
from with_tensorflow.layers import Attend, Gelu, LayerNorm, keras, tf


def build(size, length):
    """Build a Keras model of (tokens, places), (batch, length) and (batch, masked) in int32: scores of all words at these places.

    Scores are (batch, masked, vocabulary). Weights are drawn from Keras' global seed by the rules of `models_torch`.
    """
    tokens = keras.Input(shape=(length,), dtype="int32")
    places = keras.Input(shape=(masked_count(length),), dtype="int32")
    x, words = Embedding(size)(tokens)
    x = norm(x)
    for _ in range(size.layers):
        x = block(x, size)
    hidden = norm(Gelu()(dense(Gathered()(x, places), size.width)))
    return keras.Model([tokens, places], Scores(size.vocabulary)(hidden, words))


def block(x, size):
    """A transformer block, normalized after each sum."""
    attended = dense(Attend(size.heads)(dense(x, 3 * size.width)), size.width, deviation=residual_deviation(size))
    x = norm(keras.layers.Add(dtype="float32")([x, attended]))
    read = dense(Gelu()(dense(x, size.hidden)), size.width)
    return norm(keras.layers.Add(dtype="float32")([x, read]))


def norm(x):
    return LayerNorm(epsilon=BERT_EPSILON, axes=(-1,))(x)


def dense(x, units, *, deviation=STANDARD_DEVIATION):
    return keras.layers.Dense(units, kernel_initializer=drawn(deviation))(x)


def drawn(deviation=STANDARD_DEVIATION):
    """The weights' initializer; a new object per layer, because in Keras 3 one object draws the same values twice."""
    return keras.initializers.RandomNormal(stddev=deviation)


class Embedding(keras.layers.Layer):
    """Embeds tokens of one sentence, (batch, length), and their positions: (batch, length, width). Also returns the table of words."""

    def __init__(self, size):
        super().__init__(dtype="float32")
        self.size = size

    def build(self, _shape):
        def table(name, rows):
            return self.add_weight(name=name, shape=(rows, self.size.width), initializer=drawn())

        self.words = table("words", self.size.vocabulary)
        self.positions = table("positions", self.size.longest)
        self.kinds = table("kinds", 2)  # first or second sentence
        self.built = True

    def call(self, tokens):
        words, positions, kinds = map(tf.convert_to_tensor, (self.words, self.positions, self.kinds))
        return tf.gather(words, tokens) + positions[: tokens.shape[1]] + kinds[0], words


class Gathered(keras.layers.Layer):
    """Gathers (batch, masked) places from (batch, length, width)."""

    def call(self, x, places):
        return tf.gather(x, places, batch_dims=1)


class Scores(keras.layers.Layer):
    """Products with the embedding of every word, and a bias."""

    def __init__(self, vocabulary):
        super().__init__()
        self.vocabulary = vocabulary

    def build(self, *_shapes: tuple):
        self.bias = self.add_weight(name="bias", shape=(self.vocabulary,), initializer="zeros")
        self.built = True

    def call(self, x, words):
        return tf.matmul(x, words, transpose_b=True) + tf.convert_to_tensor(self.bias)
