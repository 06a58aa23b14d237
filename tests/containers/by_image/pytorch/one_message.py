"""Inside the image: gradients sent as one message equal those averaged by DistributedDataParallel.

Prevents: gradients that are summed instead of averaged, taken from one rank or from another layer, a layout that is copied wrongly, weights
or running statistics that start or stay different although they are shared, gradients averaged after clipping, a
network that sends its statistics while it is only counted, on the CPU, which NCCL refuses.
"""

import os
import tempfile
from argparse import Namespace
from itertools import chain
from pathlib import Path

import torch
from programs import torchrun
from torch import multiprocessing, nn
from with_pytorch.operations import layers
from with_pytorch.ranks import Ddp, OneMessage

RANKS, STEPS = 2, 3
TRAINED = ("weights", "buffers", "gradients")
# Techniques, the norm that gradients are clipped to, techniques of one message only.
CASES = [
    (names, *more)
    for names in ((), ("local-statistics",))
    for more in ((None, ()), (0.01, ()), (None, ("bf16-gradients",)))
]


def network(rank, *, local):
    """Weights differ by rank; so do statistics, unless they stay local, which DistributedDataParallel does not synchronize."""
    torch.manual_seed(rank)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 5)
    )
    if not local:
        nn.init.normal_(net[1].running_mean)
    return net.to(memory_format=torch.channels_last)


def trained(ranks, *, clip_norm):
    """`TRAINED` after some steps, gradients of the last."""
    net = network(ranks.rank, local="local-statistics" in ranks.args.techniques)
    model = ranks.model(net)
    if ranks.rank == 0:
        layers(net, 13)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    torch.manual_seed(100 + ranks.rank)
    for _ in range(STEPS):
        images, labels = torch.randn(4, 3, 13, 13), torch.randint(5, (4,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        ranks.update(optimizer, scaler, clip_norm=clip_norm)
    return [[p.detach() for p in net.parameters()], list(net.buffers()), [p.grad for p in net.parameters()]]


def rank_main(rank, jobs, strategy, folder):
    os.environ.update(jobs[rank])
    ranks = strategy(Namespace(techniques=()), torch.device("cpu"))
    found = []
    for names, clip_norm, rounding in CASES:
        ranks.args.techniques = names if strategy is Ddp else (*names, *rounding)
        found.append(trained(ranks, clip_norm=clip_norm))
    torch.save(found, Path(folder, str(rank)))
    ranks.leave()


def by_ranks(strategy):
    """What `trained` returns on each rank, by case."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = (torchrun(RANKS), strategy, folder)
        multiprocessing.start_processes(rank_main, jobs, nprocs=RANKS, start_method="fork")
        return list(zip(*(torch.load(Path(folder, str(rank))) for rank in range(RANKS)), strict=True))


def main():
    for case, by_ddp, by_message in zip(CASES, by_ranks(Ddp), by_ranks(OneMessage), strict=True):
        for what, plain, packed in zip(TRAINED * RANKS, chain(*by_ddp), chain(*by_message), strict=True):
            # bf16 has 8 bits, and errors accumulate over the steps.
            near = 0.02 * max(one.abs().max().item() for one in plain) if case[2] else 1e-7
            for one, other in zip(plain, packed, strict=True):
                assert torch.allclose(one, other, rtol=1e-5, atol=near), (case, what)
        (weights, (mean, *_), _), (other_weights, (other_mean, *_), _) = by_message
        assert all(map(torch.equal, weights, other_weights)), (case, "ranks differ")
        assert not torch.equal(mean, other_mean), (case, "statistics of a rank's own last batch")


if __name__ == "__main__":
    main()
