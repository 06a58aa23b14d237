"""A minimal PyTorch training loop that uses only the suite's network: the reference for the suite's overhead.

    python3 bare_pytorch.py --model=resnet18 --image-size=32 --batch=32 --iterations=40 --warmup=4 --seed=1 --threads=2 --device=cpu \
        --precision=fp32 --techniques=channels-last,fused-optimizer

Prints images/sec, and the seconds from the start of the process to the end of the first step.
"""

import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from events import process_start
from flags import bare_parser
from models_torch import build

parser = bare_parser(__doc__.splitlines()[0])
parser.add_argument("--device", required=True, choices=("cpu", "gpu"))
parser.add_argument("--precision", required=True, choices=("fp32", "tf32", "bf16"))
parser.add_argument("--techniques", default="", help="channels-last, fused-optimizer or both")
args = parser.parse_args()
techniques = set(args.techniques.split(","))
on_gpu = args.device == "gpu"
device = torch.device("cuda" if on_gpu else "cpu")
layout = torch.channels_last if "channels-last" in techniques else torch.contiguous_format
torch.set_num_threads(args.threads)
torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
autocast = torch.autocast(device.type, torch.bfloat16, enabled=args.precision == "bf16")
torch.manual_seed(args.seed)
model = build(args.model, args.image_size, 1000).to(device, memory_format=layout)
fused = "fused-optimizer" in techniques or None
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=fused)
loss_function = torch.nn.CrossEntropyLoss()
images = torch.randn(args.batch, 3, args.image_size, args.image_size).to(device, memory_format=layout)
labels = torch.randint(1000, (args.batch,), device=device)


def clock():
    """Seconds, read after the device has finished all queued work."""
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter()


for iteration in range(args.warmup + args.iterations):
    if iteration == args.warmup:
        start = clock()
    optimizer.zero_grad()
    with autocast:
        loss = loss_function(model(images), labels)
    loss.backward()
    optimizer.step()
    if iteration == 0:
        clock()
        first_step = time.monotonic() - process_start()

print(f"images/sec {args.iterations * args.batch / (clock() - start):.3f}")
print(f"first step {first_step:.3f}")
