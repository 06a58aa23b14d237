"""Inside the image: gradients sent as one message equal those averaged by DistributedDataParallel.

Prevents: gradients that are summed instead of averaged, taken from one rank or from another layer, a layout that is copied wrongly, weights
or running statistics that start or stay different although they are shared, gradients averaged after clipping, a
network that sends its statistics while it is only counted, on the CPU, which NCCL refuses.
"""

import os

import torch
from programs import torchrun
from torch import multiprocessing, nn
from with_pytorch.operations import layers
from with_pytorch.ranks import Ddp

RANKS, STEPS = 2, 3


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
    """Parameters, buffers and the last gradients after some steps."""
    net = network(ranks.rank, local="local-statistics" in ranks.techniques)
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


def rank_main(rank, jobs):
    os.environ.update(jobs[rank])
    ranks = Ddp(torch.device("cpu"), ())
    for names in ((), ("local-statistics",)):
        for clip_norm, rounding in ((None, ()), (0.01, ()), (None, ("bf16-gradients",))):
            found = []
            for more in ((), ("one-message", *rounding)):
                ranks.techniques = (*names, *more)
                found.append(trained(ranks, clip_norm=clip_norm))
            for what, plain, packed in zip(("weights", "buffers", "gradients"), *found, strict=True):
                # bf16 has 8 bits, and errors accumulate over the steps.
                near = 0.02 * max(one.abs().max().item() for one in plain) if rounding else 1e-7
                for one, other in zip(plain, packed, strict=True):
                    assert torch.allclose(one, other, rtol=1e-5, atol=near), (names, clip_norm, rounding, what)
            for weight in found[1][0]:
                held = [torch.empty_like(weight) for _ in range(RANKS)]
                torch.distributed.all_gather(held, weight)
                assert torch.equal(*held), (names, "ranks differ")
            mean = found[1][1][0]
            held = [torch.empty_like(mean) for _ in range(RANKS)]
            torch.distributed.all_gather(held, mean)
            assert not torch.equal(*held), (names, "statistics of a rank's own last batch")
    ranks.leave()


if __name__ == "__main__":
    multiprocessing.start_processes(rank_main, (torchrun(RANKS),), nprocs=RANKS, start_method="fork")
