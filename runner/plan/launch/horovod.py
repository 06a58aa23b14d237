"""Strategy `horovod`: one process a device, started by Horovod's own launcher, which meet through Gloo or MPI.

On several nodes the launcher runs on the first and starts the ranks of the others by ssh, in a container that waits there.
"""

from __future__ import annotations

from dataclasses import replace

from runner.core.container_spec import IMAGE_USER, ContainerSpec
from runner.core.trial import Horovod
from runner.plan.launch import ssh
from runner.plan.launch.job import Job, program, spec


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """One container with the launcher; before it, one with an sshd on each further node."""
    trial = job.trial
    assert trial.horovod is not None  # noqa: S101 - what the plan promises of this strategy
    argv = (
        job.site.beside_python("horovodrun"),
        f"--{trial.horovod.controller}",
        f"--num-proc={trial.processes}",
        *_hosts(job),
        *tuning(trial.horovod),
        *_in_its_container(job),
        job.site.python,
        *program(job),
    )
    env = environment(job, trial.horovod)
    if len(job.seats) == 1:
        return (spec(job, job.head, role="worker", processes=trial.processes, argv=argv, env=env),)
    # sshd lets in nobody but itself, and needs a user who has a name.
    job = replace(job, user=IMAGE_USER, keys=ssh.KEYS)
    daemons = tuple(
        spec(job, seat, role="daemon", number=number, processes=0, argv=ssh.sshd(job, seat), env=env)
        for number, seat in enumerate(job.seats[1:])
    )
    return (*daemons, spec(job, job.head, role="worker", processes=trial.processes, argv=argv, env=env))


def tuning(horovod: Horovod) -> tuple[str, ...]:
    """Horovod's own flags for what was asked; what was not stays at its default."""
    found = []
    if horovod.fusion_threshold_mib is not None:
        found.append(f"--fusion-threshold-mb={horovod.fusion_threshold_mib}")
    if horovod.cycle_time_ms is not None:
        found.append(f"--cycle-time-ms={horovod.cycle_time_ms}")
    return tuple(found)


def environment(job: Job, horovod: Horovod) -> dict[str, str]:
    """What Open MPI's own launcher needs; wires are `interconnect`'s."""
    if horovod.controller != "mpi":
        return {}
    if len(job.seats) == 1:
        return {"OMPI_MCA_plm": "isolated"}  # there is no ssh that could go anywhere
    # mpirun hands its own choice to its daemons on the other nodes, where the interface may have another name.
    return {"OMPI_MCA_oob_tcp_if_include": ",".join(dict.fromkeys(seat.iface for seat in job.seats))}


def _hosts(job: Job) -> tuple[str, ...]:
    """The nodes by address with their ranks, and the interface of the first; named, so that no other is tried."""
    if len(job.seats) == 1:
        return ()
    hosts = ",".join(f"{seat.address}:{seat.processes}" for seat in job.seats)
    return (f"--hosts={hosts}", f"--network-interfaces={job.head.iface}")


def _in_its_container(job: Job) -> tuple[str, ...]:
    """On several nodes, each rank takes what its own container was told over what the first node's launcher hands to all."""
    return () if len(job.seats) == 1 else (job.site.python, f"{job.site.workloads}/own_env.py")
