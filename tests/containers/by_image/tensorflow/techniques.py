"""Inside the image: a network that is trained with techniques loses what the plain one loses, step by step, and keeps its parameters.

Prevents a loop in one graph that trains on less than its steps, numbers them otherwise (what dropout drops follows from the number) or
tells their losses in another order; a technique that is taken and does nothing; windows whose losses are those of another window.
"""

import math

import alone
import numpy as np
from flags import parser
from train_tensorflow import Cnn
from with_tensorflow import techniques
from with_tensorflow.ranks import Alone, Mirrored
from with_tensorflow.shim import tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
STEPS = (1, 3, 2)
LOOP, XLA = "step-loop", "xla"
# XLA draws other numbers from the same seed, and so drops others: of networks with dropout only the loop is held to the plain program.
CASES = (("alexnet", 1, [(LOOP,)]), ("resnet18", 1, [(LOOP,), (XLA,)]), ("resnet18", 2, [(XLA, LOOP)]))


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
        *next(training.batches), tf.constant(1), *([tf.constant(1)] if training.loops else [])
    ).graph.as_graph_def()
    functions = graph.library.function
    assert any("_XlaMustCompile" in f.attr for f in functions) == ("xla" in names)
    operators = {node.op for node in [*graph.node, *(node for f in functions for node in f.node_def)]}
    assert bool(operators & {"While", "StatelessWhile"}) == ("step-loop" in names)
    return losses, training.parameter_count(), math.fsum(training.evaluate()) / devices


for model, devices, chosen in CASES:
    plain, parameters, after = trained((), model, devices)
    assert abs(plain[-1] - plain[0]) > 0.01, "a curve this flat would prove nothing"
    for names in chosen:
        losses, *others = trained(names, model, devices)
        assert others[0] == parameters
        np.testing.assert_allclose([*losses, others[1]], [*plain, after], rtol=1e-5, err_msg=f"{model} {names}")
