"""Strategy `horovod`: one process a device, started by Horovod's own launcher, which meet through Gloo or MPI."""

from __future__ import annotations

from runner.launch.job import Job, program, spec
from runner.spec import ContainerSpec
from runner.trial import Horovod


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """One container; all ranks are the launcher's children, so that it needs no way to another host."""
    trial = job.trial
    assert trial.horovod is not None  # noqa: S101 - what the plan promises of this strategy
    argv = (
        job.site.beside_python("horovodrun"),
        f"--{trial.horovod.controller}",
        f"--num-proc={trial.processes}",
        *tuning(trial.horovod),
        job.site.python,
        *program(job),
    )
    return (spec(job, job.head, role="worker", processes=trial.processes, argv=argv, env=environment(trial.horovod)),)


def tuning(horovod: Horovod) -> tuple[str, ...]:
    """Horovod's own flags for what was asked; what was not stays at its default."""
    found = []
    if horovod.fusion_threshold_mib is not None:
        found.append(f"--fusion-threshold-mb={horovod.fusion_threshold_mib}")
    if horovod.cycle_time_ms is not None:
        found.append(f"--cycle-time-ms={horovod.cycle_time_ms}")
    return tuple(found)


def environment(horovod: Horovod) -> dict[str, str]:
    """What Open MPI needs in a container without ssh; its wires are `interconnect`'s."""
    return {"OMPI_MCA_plm": "isolated"} if horovod.controller == "mpi" else {}
