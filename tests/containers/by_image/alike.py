"""Checks that the programs of two frameworks have equal losses over twenty steps from equal weights. A library, not a script.

The losses in `tests/golden/alike_losses.json` are PyTorch's; its own scripts are checked against them too.
"""

import json
from pathlib import Path

import alone
import numpy as np

GOLDEN = Path(__file__).parents[2] / "golden/alike_losses.json"
STEPS = 20
GAN = (*alone.WGAN, "--clip=0.04", "--batch=4")  # a clip value that affects some weights
WORDS = {
    # RMSprop's first steps have the same length for a gradient that is only rounding error as for any other, and normalizations amplify that: at
    # 0.0002, PyTorch in fp32 and in fp64 differ by 1 %.
    "wgan": ("--model=wgan", *GAN, "--learning-rate=0.00002"),
    "wgan-nobn": ("--model=wgan-nobn", *GAN, "--learning-rate=0.0002"),
    "wgan-gp": ("--model=wgan-gp", *alone.PENALIZED, "--batch=4", "--learning-rate=0.00002"),
    "vit-ti16": (
        *("--model=vit-ti16", "--image-size=32", "--num-classes=10", "--batch=4", "--learning-rate=0.0005"),
        *("--momentum=0.9", "--weight-decay=0.05"),
    ),
    "bert-tiny": (*alone.LANGUAGE, "--model=bert-tiny", "--batch=4", "--learning-rate=0.003"),
    "mlp-512-reuters": (*alone.DENSE, "--dropout=0", "--batch=32"),
}


def flags(parser, model):
    return parser("").parse_args([*alone.ONE, *WORDS[model]])


def weights(shapes, *, normalized):
    """Draw weights in PyTorch's shapes, seeded by their number; vectors are biases, or with `normalized` alternately scales, around 1, and biases.

    With `normalized="biased"`, the alternation restarts after each matrix and its bias. A set has the numbers of the scales.
    """
    found, vectors = [], 0
    for number, shape in enumerate(shapes):
        value = np.random.default_rng((7, number)).uniform(-0.05, 0.05, shape).astype(np.float32)
        if normalized == "biased" and len(shape) > 1:
            vectors = 1
        if len(shape) == 1:
            if isinstance(normalized, set):
                value += number in normalized
            elif normalized:
                value += 1 - vectors % 2
            vectors += 1
        found.append(value)
    return found


def copied(training, *, normalized=False):
    """Copy these weights into a PyTorch training, and return its losses."""
    import torch

    with torch.no_grad():
        values = weights([p.shape for p in training.parameters], normalized=normalized)
        for parameter, value in zip(training.parameters, values, strict=True):
            parameter.copy_(torch.from_numpy(value))
    return [training.step().item() for _ in range(STEPS)]


def transposed(variables, tf, *, normalized, tables=0):
    """Assign PyTorch's weights to a TensorFlow program's variables: kernels are transposed, except the first `tables`."""
    # A convolution's (height, width, in, out) is (out, in, height, width) in PyTorch.
    kernels = {1: (0,), 2: (1, 0), 3: (0, 1, 2), 4: (3, 2, 0, 1)}
    turned = [(0, 1) if number < tables else kernels[len(v.shape)] for number, v in enumerate(variables)]
    shapes = [tuple(v.shape[axis] for axis in axes) for v, axes in zip(variables, turned, strict=True)]
    values = weights(shapes, normalized=normalized)
    for variable, value, axes in zip(variables, values, turned, strict=True):
        variable.assign(tf.constant(value.transpose([axes.index(axis) for axis in range(len(axes))])))


def check(losses):
    """Compare the losses of a workload's models with PyTorch's."""
    golden = json.loads(GOLDEN.read_text())
    for model, found in losses.items():
        assert len(found) == STEPS
        assert max(golden[model]) - min(golden[model]) > 0.1 * abs(golden[model][0]), (
            "a curve this flat would prove nothing"
        )
        for step, (one, other) in enumerate(zip(found, golden[model], strict=True)):
            assert abs(one - other) <= 1e-3 * max(map(abs, golden[model])), (model, step, found, golden[model])
