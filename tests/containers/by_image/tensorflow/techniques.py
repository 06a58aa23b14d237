"""Inside the image: a network trained with techniques has the losses of the plain one, step by step, and the same parameters.

Prevents a loop in one graph that runs fewer steps, numbers them differently (the number seeds dropout) or
reports their losses in another order; a technique that is accepted but has no effect; windows with another window's losses.
"""

import math

import alone
import numpy as np
from flags import parser
from models_tensorflow import build
from train_tensorflow import Cnn
from with_tensorflow import stems, techniques
from with_tensorflow.layers import in_use, multiplied
from with_tensorflow.ranks import Alone, Mirrored
from with_tensorflow.shim import tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
STEPS = (1, 3, 2)
LOOP, XLA = "step-loop", "xla"
# XLA draws other numbers from the same seed, and so drops other units: with dropout, only the loop is compared with the plain program.
CASES = (("alexnet", 1, (LOOP,)), ("lenet", 1, (XLA,)), ("resnet18", 2, (XLA, LOOP)))


def trained(names, model, devices):
    words = (f"--model={model}", "--image-size=32", "--num-classes=10", "--batch=4", "--learning-rate=0.005")
    chosen = (f"--techniques={','.join(names)}",) if names else ()
    args = parser("").parse_args([*alone.ONE, *words, "--momentum=0.9", "--weight-decay=0.0001", *chosen])
    args.devices = devices
    techniques.check(args, offered=Cnn.offered)
    ranks = Alone("/cpu:0") if devices == 1 else Mirrored([f"/cpu:{number}" for number in range(devices)])
    training = Cnn(args, tf, ranks)
    losses = training.read([training.step()])
    for count in STEPS:
        _, told, seconds = training.window(count)()
        assert len(told) == count
        assert (seconds is None) == ("step-loop" in names)
        losses += told
    assert training.iteration == 1 + sum(STEPS)
    graph = training.train.get_concrete_function(
        *next(training.batches), tf.constant(1), *([tf.constant(1)] if training.uses_step_loop else [])
    ).graph.as_graph_def()
    functions = graph.library.function
    assert any("_XlaMustCompile" in f.attr for f in functions) == ("xla" in names)
    operators = {node.op for node in [*graph.node, *(node for f in functions for node in f.node_def)]}
    assert bool(operators & {"While", "StatelessWhile"}) == ("step-loop" in names)
    return losses, training.parameter_count(), math.fsum(training.evaluate()) / devices


def both(layers, x, above, *, xla):
    """Each layer's output for x, and its gradients with respect to x and its weights, given the gradient above it."""
    found = []
    for layer in layers:

        @tf.function(jit_compile=xla)
        def pass_one(layer=layer):
            with tf.GradientTape() as tape:
                tape.watch(x)
                told = layer(x)
            return told, *tape.gradient(told, [x, *layer.trainable_variables], above)

        found.append([one.numpy() for one in pass_one()])
    return zip(*found, strict=True)


def check_stem(size, kernel, stride, border):
    plain = tf.keras.Sequential([tf.keras.layers.ZeroPadding2D(border), tf.keras.layers.Conv2D(8, kernel, stride)])
    blocked = stems.Blocked(8, kernel, stride, border=border)
    x = tf.random.stateless_normal((2, size, size, 3), (1, 2))
    shape = plain(x).shape
    assert blocked.compute_output_shape(x.shape) == shape == blocked(x).shape
    blocked.set_weights(plain.get_weights())
    for one, other in both((blocked, plain), x, tf.random.stateless_normal(shape, (3, 4)), xla=False):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.abs(other).max())


def check_pool(*, xla):
    """Of equal numbers, the first gets the gradient, as in TensorFlow's own CPU operator; an even map's last row is never read."""
    x = tf.random.stateless_uniform((2, 10, 13, 4), (1, 2), 0, 3, tf.int32)
    above = tf.random.stateless_normal((2, 4, 6, 4), (3, 4))
    layers = (stems.MaxPool(), tf.keras.layers.MaxPool2D(3, 2))
    for one, other in both(layers, tf.cast(x, tf.float32), above, xla=xla):
        np.testing.assert_allclose(one, other, atol=1e-6)


def check_network(model, count):
    """A network has these layers where they belong, and computes the same as the plain one."""
    names = ("space-to-depth", "pooling-index")
    plain, faster = (build(model, 96, 10, auxiliary=False, techniques=chosen) for chosen in ((), names))
    faster.set_weights(plain.get_weights())
    assert sum(isinstance(layer, (stems.Blocked, stems.MaxPool)) for layer in faster.layers) == count
    assert multiplied(faster) == multiplied(plain)
    asked = [tf.random.stateless_normal((2, 96, 96, 3), (5, 6)), tf.constant([1, 1])]
    with in_use(plain), in_use(faster):
        np.testing.assert_allclose(faster(asked), plain(asked), rtol=1e-3, atol=1e-4)


for shape in ((96, 7, 2, 3), (95, 11, 4, 2), (33, 7, 2, 3), (64, 3, 2, 0)):
    check_stem(*shape)
check_pool(xla=False)
check_pool(xla=True)
check_network("resnet18", 2)
check_network("googlenet", 4)
for model, devices, names in CASES:
    plain, parameters, after = trained((), model, devices)
    assert abs(plain[-1] - plain[0]) > 0.01, "a curve this flat would prove nothing"
    losses, *others = trained(names, model, devices)
    assert others[0] == parameters
    np.testing.assert_allclose([*losses, others[1]], [*plain, after], rtol=1e-5, err_msg=f"{model} {names}")
