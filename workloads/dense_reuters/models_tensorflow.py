"""The topic classifier of Keras' Reuters example in TensorFlow: layer for layer `models_torch`, which names its source."""

from with_tensorflow.layers import Dropout, keras

HIDDEN = 512


def build(words, topics, dropout):
    """Build a Keras model of (bags, seed): (batch, words) in fp32, and a pair (stream, step) in int32 that says what dropout drops.

    It gives (batch, topics) scores; weights are drawn uniformly (Glorot and Bengio 2010) from Keras' seed.
    """
    bags, seed = keras.Input(shape=(words,)), keras.Input(batch_shape=(2,), dtype="int32")
    x = keras.layers.Dense(HIDDEN, kernel_initializer=keras.initializers.GlorotUniform())(bags)
    x = Dropout(dropout, number=0)(keras.layers.ReLU()(x), seed)
    return keras.Model(
        [bags, seed], keras.layers.Dense(topics, kernel_initializer=keras.initializers.GlorotUniform())(x)
    )
