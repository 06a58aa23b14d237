"""Inside the image: the WGAN has the catalog's parameters and its layers' operations, and a step does what it should.

Prevents a layer that is missing or of another width, operations counted differently from PyTorch's, an RMSprop with epsilon under the
root, critic weights beyond the clip value, a generator that is not trained, two devices that train two models, JPEG bytes on
another scale than the generator's images.
"""

import json
import sys
import tempfile
from pathlib import Path

import alone
import data_tensorflow
import flags
import numpy as np
from models_tensorflow import build
from train_tensorflow import Wgan
from with_tensorflow.layers import multiplied
from with_tensorflow.optimizers import RmsProp
from with_tensorflow.ranks import Alone, Mirrored
from with_tensorflow.shim import tf

CATALOG = json.loads(sys.argv[2])
CLIP = 0.01
# Weights and positions of convolutions of 4 x 4 at 64 pixels, by hand.
GENERATOR = [
    (16 * 100 * 512, 1),
    (16 * 512 * 256, 4**2),
    (16 * 256 * 128, 8**2),
    (16 * 128 * 64, 16**2),
    (16 * 64 * 3, 32**2),
]
CRITIC = [(16 * 3 * 64, 32**2), (16 * 64 * 128, 16**2), (16 * 128 * 256, 8**2), (16 * 256 * 512, 4**2), (16 * 512, 1)]

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


def training(*words, ranks=None):
    args = flags.parser("").parse_args([*alone.ONE, "--model=wgan-nobn", *alone.WGAN, *words])
    return Wgan(args, tf, ranks or Alone("/cpu:0"))


def count(nets):
    return sum(int(np.prod(weight.shape)) for net in nets for weight in net.trainable_weights)


def networks_match_the_catalog():
    for name, (size, parameters) in CATALOG["wgan"].items():
        nets = build(name, size, flags.latent_size(name))
        assert count(nets) == parameters, name
        assert nets[0].output.shape == (None, 64, 64, 3)
        if name != flags.PENALIZED:
            assert [multiplied(net) for net in nets] == [GENERATOR, CRITIC], name
            assert nets[1].output.shape == (None, 1, 1, 1)


def rmsprop_adds_epsilon_outside_the_root():
    weights = tf.Variable([1.0, 1.0])
    update = RmsProp([weights], learning_rate=0.1)
    # v = 0.01 g²; w = 1 - 0.1 g / (0.1 g + 1e-8): a gradient of 1e-7 is at epsilon, one of 2 far above it.
    update.apply([tf.constant([2.0, 1e-7])])
    np.testing.assert_allclose(weights, [1 - 0.1 * 2 / 0.2, 1 - 1e-8 / 2e-8], rtol=1e-5, atol=1e-6)
    update.apply([tf.constant([1.0, 0.0])])  # v = 0.99 * 0.04 + 0.01
    np.testing.assert_allclose(weights[0], -0.1 / np.sqrt(0.0496), rtol=1e-5)
    update.clip(0.2)
    np.testing.assert_allclose(weights, [-0.2, 0.2])


def a_step_trains_both_networks_and_clips_the_critic():
    made = training("--batch=4")
    before = [variable.numpy() for variable in made.variables]
    made.step()
    assert all((variable.numpy() != old).any() for variable, old in zip(made.variables, before, strict=True))
    largest = [np.abs(weight.numpy()).max() for weight in made.weights]
    assert max(largest) == np.float32(CLIP), largest
    assert max(np.abs(weight.numpy()).max() for weight in made.generator_weights) > CLIP
    assert made.batches.source.units == 8
    # Per iteration, the whole generator is exchanged once, the whole critic --n-critic times.
    assert made.gradient_bytes() == 4 * (count([made.generator]) + 2 * count([made.critic]))


def two_devices_have_the_losses_of_one():
    together = training("--batch=2", "--devices=2", "--strategy=mirrored", ranks=Mirrored(["/cpu:0", "/cpu:1"]))
    one = training("--batch=4")
    for _ in range(5):
        np.testing.assert_allclose(together.read([together.step()]), one.read([one.step()]), rtol=1e-3, atol=1e-6)
    first, second = together.evaluate()
    assert first == second


def real_images_have_the_range_of_generated_ones():
    root = Path(tempfile.mkdtemp())
    (root / "white").mkdir()
    for number in range(4):
        pixels = np.zeros((20, 60, 3), np.uint8)
        pixels[:, 20:40] = 255  # the middle square
        (root / f"white/{number}.jpg").write_bytes(tf.io.encode_jpeg(pixels, quality=100).numpy())
    made = training(f"--data={root}", "--loader-workers=1")
    source = data_tensorflow.Jpegs(made.args, made.ranks)
    real, *_ = next(source)
    assert (real.shape, real.dtype) == ((4, 16, 16, 3), tf.uint8)
    batches = made.batches_of(real)
    assert [batch.shape for batch in batches] == [(2, 16, 16, 3)] * 2
    # Decoders blend neighbouring colours across the edge.
    np.testing.assert_allclose(np.stack(batches)[:, :, 3:-3, 3:-3], 1.0, atol=0.05)
    assert source.units == 4


networks_match_the_catalog()
rmsprop_adds_epsilon_outside_the_root()
a_step_trains_both_networks_and_clips_the_critic()
two_devices_have_the_losses_of_one()
real_images_have_the_range_of_generated_ones()
