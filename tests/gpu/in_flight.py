"""On a GPU: several batches that are under way at once are answered as each is alone, from pinned memory that nothing waits for.

    python3 tests/gpu/in_flight.py        in an environment with PyTorch for CUDA

Prevents a network that reads a batch before it has arrived or after the next one has taken its place, and a copy that waits for the device.
"""

import sys
from itertools import chain
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[2] / "workloads/imagenet_cnn"))
import inference
from flags import infer_parser
from infer_pytorch import OnGpu
from with_pytorch import device as devices

WORDS = (
    *(
        "--model=resnet50",
        "--image-size=224",
        "--num-classes=1000",
        "--batch=256",
        "--iterations=1",
        "--warmup=1",
        "--window=1",
    ),
    *(
        "--precision=bf16",
        "--device=gpu",
        "--devices=1",
        "--data=synthetic",
        "--seed=1",
        "--threads=1",
        "--cpus-per-worker=0",
    ),
    "--loader-workers=0",
)
args = infer_parser("").parse_args(WORDS)
predictor = OnGpu(args, torch, devices.set_up(args, torch))
generator = np.random.default_rng(1)
# Images of one colour each, so that the network, untrained with statistics of these, tells many apart.
pixels = np.broadcast_to(generator.integers(0, 256, (1024, 3, 1, 1), np.uint8), (1024, 3, 224, 224)).copy()
predictor.net.train()
with torch.no_grad():
    for first in range(0, 256, 64):
        predictor.net(predictor.prepare(pixels[first : first + 64]))
predictor.net.eval()
predictor.convert()

laid_out = predictor.lay_out(pixels)
assert laid_out.is_pinned()
_, classes, _ = predictor.submit(laid_out[:256])
assert classes.is_pinned()
assert predictor.place(laid_out[:256]).is_contiguous(memory_format=torch.channels_last)
for length in (8, 64, 256):
    parts = [laid_out[first : first + length] for first in range(0, 1024, length)]
    together = list(chain.from_iterable(classes for classes, *_ in inference.pipelined(predictor, parts * 3)))
    alone = list(chain.from_iterable(predictor.collect(predictor.submit(part))[0] for part in parts))
    assert len(set(alone)) > 1, "answers that are all alike have no order"
    assert together == alone * 3, length
    times = [answered for *_, answered in inference.pipelined(predictor, parts * 3)]
    assert times == sorted(times)
