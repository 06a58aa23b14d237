"""Inside the image: validation reads the centre of each image of the split once, and counts the correct answers of a handmade network.

Prevents a validation set that differs between frameworks, images that are counted twice or as padding, another crop, an unreadable
image that is counted or not reported, batch statistics or dropout in inference mode, validation that changes the training.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from class_folders import central_square, class_folders, share, split
from data_tensorflow import Validation, central_crop, normalized, read_central
from flags import parser
from train_tensorflow import Cnn
from with_tensorflow.layers import BatchNorm, Dropout, in_use, keras
from with_tensorflow.ranks import Alone, Mirrored
from with_tensorflow.shim import tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

root = Path(tempfile.mkdtemp())
for name, level in (("dark", 20), ("light", 220)):
    (root / name).mkdir()
    for number in range(35):
        pixels = np.full((24 + number, 40, 3), level + number % 7, np.uint8)
        (root / name / f"{number:02d}.jpg").write_bytes(tf.io.encode_jpeg(pixels, quality=95).numpy())
(root / "dark/04.jpg").write_text("no image")  # the first validation image
_, held_out = split(class_folders(root)[1])
assert len(held_out) == 14
assert held_out[0] == ("dark/04.jpg", 0)

FLAGS = {"image_size": 32, "batch": 4, "devices": 1, "seed": 1, "loader_workers": 1, "data": str(root)}


def the_central_crop_is_that_of_all_frameworks():
    for height, width in ((24, 40), (33, 33), (51, 36), (9, 100), (300, 201)):
        left, top, side = central_square(width, height)
        pixels = (
            np.random.default_rng(1).integers(0, 256, (height // 3, width // 3, 3), np.uint8).repeat(3, 0).repeat(3, 1)
        )
        pixels = np.pad(pixels, ((0, height - len(pixels)), (0, width - pixels.shape[1]), (0, 0)), mode="edge")
        jpeg = tf.io.encode_jpeg(pixels, quality=100, chroma_downsampling=False)  # no colour from neighbouring pixels
        whole = tf.io.decode_jpeg(jpeg)[top : top + side, left : left + side]
        expected = tf.image.resize(whole, (32, 32)).numpy()
        np.testing.assert_allclose(central_crop(jpeg, 32).numpy(), expected, atol=1)


def each_image_is_validated_once():
    everyone = []
    for devices, processes in ((1, 1), (1, 2), (2, 1)):
        seen, unread = [], set()
        for rank in range(processes):
            ranks = Mirrored(["/cpu:0", "/cpu:1"]) if devices == 2 else Alone("/cpu:0")
            ranks.rank, ranks.world_size = rank, processes * devices
            validation = Validation(argparse.Namespace(**{**FLAGS, "devices": devices}), ranks, images=held_out)
            for _ in range(2):  # the same again after the next epoch
                found = []
                for batch in validation.batches():
                    images, labels, weights = (ranks.strategy.experimental_local_results(part) for part in batch)
                    assert [part.shape for part in images] == [(4, 32, 32, 3)] * devices
                    for device in range(devices):
                        kept = weights[device].numpy() == 1
                        levels = images[device].numpy().mean((1, 2, 3))[kept]
                        assert ((levels > 120) == (labels[device].numpy()[kept] == 1)).all()
                        found += labels[device].numpy()[kept].tolist()
            seen += found
            unread |= validation.skipped
            own = share(held_out, rank=rank, world_size=processes)
            assert len(found) == len([name for name, _ in own if name != "dark/04.jpg"])
        assert unread == {"dark/04.jpg"}
        everyone.append(sorted(seen))
    assert everyone == [[0] * 6 + [1] * 7] * 3
    pixels, labels, skipped = read_central(argparse.Namespace(**FLAGS), held_out)
    assert (pixels.shape, pixels.dtype, labels.tolist()) == ((13, 32, 32, 3), np.uint8, [0] * 6 + [1] * 7)
    assert skipped == ["dark/04.jpg"]


class ByHand(Cnn):
    """Scores an image's brightness for class 1 and zero for class 0, so that light and dark images are both right."""

    def build(self):
        images, seed = keras.Input(shape=(32, 32, 3)), keras.Input(batch_shape=(2,), dtype="int32")
        x = Dropout(0.9, number=0)(keras.layers.GlobalAveragePooling2D()(BatchNorm(epsilon=0.0)(images)), seed)
        bright = keras.layers.Dense(2, kernel_initializer=tf.constant_initializer([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]))
        self.take(keras.Model([images, seed], bright(x)))


def correct_answers_are_counted():
    words = [f"--{name.replace('_', '-')}={value}" for name, value in FLAGS.items()]
    more = ("--model=lenet", "--num-classes=2", "--iterations=2", "--warmup=1", "--window=1", "--precision=fp32")
    rates = ("--learning-rate=0.1", "--momentum=0", "--weight-decay=0", "--threads=1", "--cpus-per-worker=0")
    words += [*more, *rates, "--device=cpu", "--epoch-iterations=1"]
    pixels, labels, _ = read_central(argparse.Namespace(**FLAGS), held_out)
    brightness = normalized(tf.constant(pixels)).numpy()[..., 0].mean((1, 2)).astype(np.float64)
    # Cross entropy of two classes with scores 0 and s: log(1 + exp(s)) if the first is right, log(1 + exp(-s)) if the second is.
    expected = np.log1p(np.exp(np.where(labels == 1, -brightness, brightness))).sum()
    for devices, ranks in ((1, Alone("/cpu:0")), (2, Mirrored(["/cpu:0", "/cpu:1"]))):
        strategy = "single" if devices == 1 else "mirrored"
        args = parser("").parse_args([*words, f"--devices={devices}", f"--strategy={strategy}", "--batch=4"])
        training = ByHand(args, tf, ranks)
        found = training.validate()
        assert (found["samples"], found["correct"]) == (13, 13), found
        np.testing.assert_allclose(found["loss_sum"], expected, rtol=1e-5)
        assert training.batches.source.skipped == ["dark/04.jpg"]
        # Differing statistics of the devices become the first one's; the network is left unchanged, and keeps training.
        training.step()
        norm, before = training.parameter_norm(), training.validate()
        assert training.validate() == before
        assert training.parameter_norm() == norm
        moving = training.shim.gathered(training.net)[0]
        copies = [part.numpy() for part in ranks.strategy.experimental_local_results(moving)]
        assert all((part == copies[0]).all() for part in copies)


def inference_neither_drops_nor_updates_statistics():
    images, seed = keras.Input(shape=(2, 2, 1)), keras.Input(batch_shape=(2,), dtype="int32")
    net = keras.Model([images, seed], Dropout(0.5, number=0)(BatchNorm(epsilon=0.0)(images), seed))
    mean, variance = net.non_trainable_weights
    mean.assign([3.0])
    variance.assign([4.0])
    inputs = [tf.fill((2, 2, 2, 1), 7.0), tf.constant([1, 1])]
    with in_use(net):
        np.testing.assert_allclose(net(inputs), 2.0)  # (7 - 3) / 2
    assert (float(mean[0]), float(variance[0])) == (3.0, 4.0)
    net(inputs)
    np.testing.assert_allclose(mean, 3.0 * 0.9 + 7.0 * 0.1, rtol=1e-6)


the_central_crop_is_that_of_all_frameworks()
each_image_is_validated_once()
correct_answers_are_counted()
inference_neither_drops_nor_updates_statistics()
