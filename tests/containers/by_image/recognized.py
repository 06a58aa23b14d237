"""Checks that two frameworks' Deep Speech 2 have equal losses over ten steps from equal weights. A library, not a script.

The losses in `tests/golden/deepspeech2_losses.json` are PyTorch's; its own script is checked against them too.
"""

import json
from pathlib import Path

import alone
import numpy as np

GOLDEN = Path(__file__).parents[2] / "golden/deepspeech2_losses.json"
STEPS = 10
MODEL = "deepspeech2-small"
# The small one as it is, one normalized like the large ones, and one with the suite's layers.
SIZES = {"plain": (8, 2, 64, False, False), "normalized": (4, 2, 16, True, False), "suite": (8, 2, 32, False, True)}


def flags(parser):
    return parser("").parse_args([*alone.ONE, *alone.SPEECH, "--learning-rate=0.01", "--clip-norm=50"])


def weights(shapes):
    """Draw weights and biases, seeded by their number, the same in each framework: those of the convolutions, of each recurrent layer forwards
    then backwards (inputs, states, their biases), and of both dense layers.
    """
    return [
        np.random.default_rng((7, number)).uniform(-0.1, 0.1, shape).astype(np.float32)
        for number, shape in enumerate(shapes)
    ]


def check(losses):
    """Compare losses by size with PyTorch's."""
    golden = json.loads(GOLDEN.read_text())
    assert set(losses) == set(golden) == set(SIZES)
    for size, found in losses.items():
        assert len(found) == STEPS
        for step, (one, other) in enumerate(zip(found, golden[size], strict=True)):
            assert abs(one - other) <= 1e-3 * other, (size, step, found, golden[size])
