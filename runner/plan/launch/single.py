"""One process that drives every device of the job: strategy `single` with one, TensorFlow's `mirrored`, PyTorch's `dp` and Caffe's own with several."""

from __future__ import annotations

from dataclasses import replace

from runner.core.container_spec import ContainerSpec, Mount
from runner.core.trial import Counting
from runner.plan.launch.job import Job, program, spec


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """One container with the training program, under Nsight Compute in a pass that reads the GPU's counters with it."""
    argv = (job.site.python, *program(job))
    if job.trial.profile and (ncu := job.trial.profile.ncu):
        return (_counted(job, ncu, argv),)
    return (spec(job, job.head, role="worker", argv=argv),)


def _counted(job: Job, ncu: Counting, argv: tuple[str, ...]) -> ContainerSpec:
    """The program under the host's own `ncu`, which a container finds at the same path."""
    if ncu.folder and ncu.folder not in {mount.target for mount in job.mounts}:
        job = replace(job, mounts=(*job.mounts, Mount(source=ncu.folder, target=ncu.folder)))
    argv = (job.site.python, f"{job.site.workloads}/ncu.py", f"--ncu={ncu.program}", *argv)
    return spec(job, job.head, role="worker", argv=argv, env={"DLSCALE_COUNTERS": "ncu"})
