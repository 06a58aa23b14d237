"""Inside the image: the operations counted for every network are those of PyTorch's counter, but where the networks are known to differ.

Prevents frameworks that are held against each other by another count of operations, and so by another utilisation.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
from flop import per_sample
from models_mxnet import build
from with_mxnet.operations import layers
from with_mxnet.shim import mx

REFERENCE = json.loads((Path(__file__).parents[3] / "golden/flop_per_sample.json").read_text())


def earlier_stride(image_size):
    """What the zoo's bottleneck ResNets save, by hand.

    The stride of the first block of stages 2 to 4 sits in its 1x1 convolution in place of its 3x3 one, which so has a quarter of the
    positions: three times those of its output fewer, from 256, 512 and 1,024 channels to 128, 256 and 512.
    """
    first = (
        image_size // 8 if image_size >= 96 else image_size // 2
    )  # output of stage 2; the stem of small images has no stride
    return 2 * sum(3 * (first >> stage) ** 2 * (256 << stage) * (128 << stage) for stage in range(3))


catalog = json.loads(sys.argv[1])
for name, (image_size, _) in catalog.items():
    for size in sorted({32, image_size}):
        ours = per_sample(layers(build(name, size, 1000, [mx.cpu()]), size))
        saved = earlier_stride(size) if name in {"resnet50", "resnet101", "resnet152"} else 0
        for phase, passes in (("forward", 1), ("backward", 2)):
            theirs = REFERENCE[name][str(size)][phase] - passes * saved
            assert abs(ours[phase] / theirs - 1) < 0.02, (name, size, phase, ours, theirs)

# As the program has it: hybridized, its parameters in half precision.
net = build("lenet", 32, 1000, [mx.cpu()])
net.cast("float16")
net.hybridize(static_alloc=True, static_shape=True)
assert per_sample(layers(net, 32))["forward"] == REFERENCE["lenet"]["32"]["forward"]
