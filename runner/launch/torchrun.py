"""Strategy `ddp`: PyTorch's DistributedDataParallel, one process a device, started by torchrun."""

from __future__ import annotations

from runner.launch.job import Job, program, spec
from runner.spec import ContainerSpec


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """One container; `--standalone` makes torchrun its own rendezvous on a free port of the loopback."""
    argv = (
        job.site.python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr=127.0.0.1",  # without a network the host name leads nowhere
        f"--nproc-per-node={job.trial.processes}",
        *program(job),
    )
    return (spec(job, role="worker", argv=argv, cpus=job.cpus),)
