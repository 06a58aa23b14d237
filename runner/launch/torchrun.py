"""Strategy `ddp`: PyTorch's DistributedDataParallel, one process a device, started by torchrun."""

from __future__ import annotations

from runner.launch.job import LOOPBACK, Job, program, spec
from runner.spec import ContainerSpec


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """One container; `--standalone` makes torchrun its own rendezvous on a free port of the loopback."""
    argv = (
        job.site.python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--local-addr={LOOPBACK}",  # without a network the host name leads nowhere
        "--tee=2",  # standard error carries each line's rank; the events on standard output stay as they are
        "--log-dir=/tmp/torchrun",
        f"--nproc-per-node={job.trial.processes}",
        *program(job),
    )
    return (spec(job, role="worker", processes=job.trial.processes, argv=argv, cpus=job.cpus),)
