"""Strategy `multiworker`: TensorFlow's MultiWorkerMirroredStrategy, one process a device, which find each other by TF_CONFIG."""

from __future__ import annotations

from runner.launch.job import Job, program, spec
from runner.spec import ContainerSpec


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """One container a node; the suite's own launcher starts the workers in it, since TensorFlow brings none."""
    cluster = ",".join(f"{seat.address}:{port}" for seat in job.seats for port in seat.ports[: seat.processes])
    return tuple(
        spec(
            job,
            seat,
            role="worker",
            number=number,
            processes=seat.processes,
            argv=(
                job.site.python,
                f"{job.site.workloads}/tf_workers.py",
                f"--cluster={cluster}",
                f"--first={seat.first}",
                f"--count={seat.processes}",
                job.site.python,
                *program(job),
            ),
        )
        for number, seat in enumerate(job.seats)
    )
