"""Strategy `ddp`: PyTorch's DistributedDataParallel, one process a device, started by torchrun."""

from __future__ import annotations

from runner.core.container_spec import ContainerSpec
from runner.plan.launch.job import Job, Seat, program, worker_a_node


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """One container a node."""

    def argv(number: int, seat: Seat) -> tuple[str, ...]:
        return (
            job.site.python,
            "-m",
            "torch.distributed.run",
            *_rendezvous(job, number),
            f"--local-addr={seat.address}",  # without a network, the host's name leads nowhere
            "--tee=2",  # standard error carries each line's rank; the events on standard output stay as they are
            "--log-dir=/tmp/torchrun",
            f"--nproc-per-node={seat.processes}",
            *program(job),
        )

    return worker_a_node(job, argv)


def _rendezvous(job: Job, number: int) -> tuple[str, ...]:
    """Alone, torchrun is its own rendezvous on a free port of the loopback; several meet at the first, each with its fixed number."""
    if len(job.seats) == 1:
        return ("--standalone",)
    return (
        f"--nnodes={len(job.seats)}",
        f"--node-rank={number}",
        f"--master-addr={job.head.address}",
        f"--master-port={job.head.ports[0]}",
    )
