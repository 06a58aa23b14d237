"""The plainest PyTorch training loop, with the network and nothing else of the suite: what its overhead is held against.

    python3 bare_pytorch.py --model=resnet18 --image-size=32 --batch=32 --iterations=40 --warmup=4 --seed=1 --threads=2

Prints images/sec, and the seconds from the start of the process to the end of the first step.
"""

import os
import sys
import time
from pathlib import Path

import torch
from models_torch import build

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flags import bare_parser

args = bare_parser(__doc__.splitlines()[0]).parse_args()
torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
model = build(args.model, args.image_size, 1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
loss_function = torch.nn.CrossEntropyLoss()
images = torch.randn(args.batch, 3, args.image_size, args.image_size)
labels = torch.randint(1000, (args.batch,))

for iteration in range(args.warmup + args.iterations):
    if iteration == args.warmup:
        start = time.perf_counter()
    optimizer.zero_grad()
    loss_function(model(images), labels).backward()
    optimizer.step()
    if iteration == 0:
        ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
        first_step = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")

print(f"images/sec {args.iterations * args.batch / (time.perf_counter() - start):.3f}")
print(f"first step {first_step:.3f}")
