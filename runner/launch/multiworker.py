"""Strategy `multiworker`: TensorFlow's MultiWorkerMirroredStrategy, one process a device, which find each other by TF_CONFIG."""

from __future__ import annotations

from runner.launch.job import LOOPBACK, Job, program, spec
from runner.spec import ContainerSpec


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """One container; the suite's own launcher starts the workers in it, since TensorFlow brings none."""
    first, count = job.node.rendezvous_port, job.trial.processes
    argv = (
        job.site.python,
        f"{job.site.workloads}/tf_workers.py",
        f"--cluster={','.join(f'{LOOPBACK}:{first + worker}' for worker in range(count))}",
        "--first=0",
        f"--count={count}",
        job.site.python,
        *program(job),
    )
    return (spec(job, role="worker", processes=count, argv=argv, cpus=job.cpus),)
