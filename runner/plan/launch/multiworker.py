"""Strategy `multiworker`: TensorFlow's MultiWorkerMirroredStrategy, one process a device, which find each other by TF_CONFIG."""

from __future__ import annotations

from runner.core.container_spec import ContainerSpec
from runner.plan.launch.job import Job, Seat, program, worker_a_node


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """One container a node; the suite's own launcher starts the workers in it, since TensorFlow brings none."""
    cluster = ",".join(f"{seat.address}:{port}" for seat in job.seats for port in seat.ports[: seat.processes])

    def argv(number: int, seat: Seat) -> tuple[str, ...]:
        return (
            job.site.python,
            f"{job.site.workloads}/tf_workers.py",
            f"--cluster={cluster}",
            f"--host={number}",
            f"--count={seat.processes}",
            job.site.python,
            *program(job),
        )

    return worker_a_node(job, argv)
