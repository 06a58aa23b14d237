"""One process that drives every device of the job: strategy `single` with one, TensorFlow's `mirrored` and Caffe's own with several."""

from __future__ import annotations

from runner.launch.job import Job, program, spec
from runner.spec import ContainerSpec


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """One container with the training program."""
    return (spec(job, job.head, role="worker", argv=(job.site.python, *program(job))),)
