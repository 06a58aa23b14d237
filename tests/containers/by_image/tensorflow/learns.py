"""Inside the image: a few steps on one batch lower a network's loss, and every weight gets a gradient.

Prevents a branch that is built but not connected, a weight without a gradient, a gradient of the wrong sign; an update other
than `v = m v + (g + d w), w -= r v`, missing weight decay, a step that is applied despite an overflow; dropout that
is the same on all ranks or in several steps.
"""

import numpy as np
from modelled import check_learning
from models_tensorflow import build
from with_tensorflow.layers import Dropout
from with_tensorflow.optimizers import AdamW, Sgd
from with_tensorflow.shim import set_seed, tf, trained

for name in ("resnet18", "inception-bn", "vit-ti16"):
    set_seed(1)
    net = build(name, 32, 10)
    variables = trained(net)
    sgd = Sgd(variables, learning_rate=0.03, momentum=0.9, weight_decay=0.0, scaled=False)
    if name == "vit-ti16":
        sgd = AdamW(variables, learning_rate=0.001, weight_decay=0.01)
    images, labels = tf.random.stateless_normal((8, 32, 32, 3), (1, 1)), tf.range(8)

    losses = []
    for iteration in range(6):
        with tf.GradientTape() as tape:
            logits = net([images, tf.constant([1, iteration])])
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        gradients = tape.gradient(loss, variables)
        sgd.apply(gradients)
        losses.append(float(loss))
    check_learning(
        name, losses, [v.name for v, gradient in zip(variables, gradients, strict=True) if not gradient.numpy().any()]
    )

for scaled in (False, True):
    weights = tf.Variable([1.0, 2.0])
    sgd = Sgd([weights], learning_rate=0.1, momentum=0.9, weight_decay=0.01, scaled=scaled)
    loss = sgd.scaled(tf.constant(1.0))  # the resulting gradient is (1, 2), times the scale
    sgd.apply([loss * [1.0, 2.0]])  # v = 1 + 0.01, 2 + 0.02; w = 1 - 0.101, 2 - 0.202
    np.testing.assert_allclose(weights, [0.899, 1.798], rtol=1e-6)
    sgd.apply([loss * [1.0, 0.0]])  # v = 0.909 + 1.00899, 1.818 + 0.01798; w = 0.899 - 0.191799, 1.798 - 0.183598
    np.testing.assert_allclose(weights, [0.707201, 1.614402], rtol=1e-6)
before = weights.numpy(), sgd.velocities[0].numpy()
sgd.apply([tf.constant([float("inf"), 1.0])])
assert (weights.numpy() == before[0]).all()
assert (sgd.velocities[0].numpy() == before[1]).all()
assert float(sgd.scale) == 2**15

matrix, vector = tf.Variable([[1.0, 2.0]]), tf.Variable([1.0, 2.0])
update = AdamW([matrix, vector], learning_rate=0.1, weight_decay=0.5)
update.apply([tf.constant([[3.0, -4.0]]), tf.constant([3.0, -4.0])])  # Adam's first step is as long as its rate
np.testing.assert_allclose(matrix, [[0.95 - 0.1, 1.9 + 0.1]], rtol=1e-5)
np.testing.assert_allclose(vector, [0.9, 2.1], rtol=1e-5)

ones = tf.ones((1000,))
first, second = Dropout(0.5, number=0), Dropout(0.5, number=1)
drawn = first(ones, tf.constant([1, 1])).numpy()
assert set(drawn.tolist()) == {0.0, 2.0}
assert 400 < (drawn == 0).sum() < 600
assert (drawn == first(ones, tf.constant([1, 1])).numpy()).all()
for other in (first(ones, tf.constant([2, 1])), first(ones, tf.constant([1, 2])), second(ones, tf.constant([1, 1]))):
    assert (drawn != other.numpy()).any()
