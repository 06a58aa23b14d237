# ruff: noqa: INP001, S101, T201 - a script that a build runs: it prints what it finds and fails where an assertion does
"""Last step of the image's build: TensorFlow is the locked version, imports as the image's user, computes, and decodes JPEGs.

    python3 smoke.py VERSION cpu|gpu [CUDA CAPABILITY...]

A GPU build imports without a driver; the architectures that it says it was compiled for are held against versions.yaml.
"""

import ctypes
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

version, device, *gpu = sys.argv[1:]
assert tf.__version__ == version, tf.__version__
built = tf.sysconfig.get_build_info()
assert built["is_cuda_build"] == (device == "gpu"), dict(built)
if device == "gpu":
    cuda, *capabilities = gpu
    assert built["cuda_version"].rpartition(".")[0] == cuda, built["cuda_version"]
    compiled = sorted(built["cuda_compute_capabilities"])
    print(f"CUDA {cuda}, cuDNN {built['cudnn_version']}, {' '.join(compiled)}")
    held = sorted(text.replace("sm_", "").replace("compute_", "") for text in compiled)
    assert held == sorted(capability.replace(".", "") for capability in capabilities), compiled
    # One that does not load by its name leaves TensorFlow without GPUs, and the reason only in a debug log.
    for name in ("cudart", "cublas", "cublasLt", "cufft", "cusolver", "cusparse", "cudnn", "nccl"):
        folders = map(Path, os.environ["LD_LIBRARY_PATH"].split(":"))
        (library,) = [library for folder in folders for library in folder.glob(f"lib{name}.so.*")]
        ctypes.CDLL(library.name)

white = tf.fill([8, 8, 3], tf.constant(255, tf.uint8))
pixels = tf.cast(tf.io.decode_jpeg(tf.io.encode_jpeg(white)), tf.float32) / 255
kernel = tf.Variable(tf.ones([3, 3, 3, 4]))


@tf.function
def step(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """One convolution and its gradient, as a graph."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.conv2d(images, kernel, strides=1, padding="VALID"))
    return loss, tape.gradient(loss, kernel)


loss, gradient = step(tf.stack([pixels, pixels]))
# 27 ones under each of 6 x 6 positions, 4 channels, 2 images; each weight is used at 6 x 6 positions of 2 images
assert loss.numpy() == 27 * 36 * 4 * 2, loss
assert (gradient.numpy() == 36 * 2).all(), gradient
print(f"tensorflow {tf.__version__} works")
