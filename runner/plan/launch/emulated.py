"""Nodes emulated on one machine: a small container each that owns a network namespace, as a pod's pause container does.

It is on a network that the run makes for itself, under the node's name, and is held to the link that was asked for. The containers of
the job on that node join its namespace, so that every strategy runs as on real hosts.
"""

from __future__ import annotations

from runner.core.container_spec import LABEL_ROLE, LABEL_RUN, ContainerSpec
from runner.plan.launch.job import Job, Seat, leased, stand_in

# It sleeps; Python's own start is the most that it ever needs.
_MEMORY_MIB = 128


def nodes(job: Job) -> tuple[ContainerSpec, ...]:
    """The containers that stand for the emulated nodes of a job; none for a job on real ones, or on one alone."""
    return tuple(_node(job, seat, number) for number, seat in enumerate(job.seats) if seat.network == "emulated")


def _node(job: Job, seat: Seat, number: int) -> ContainerSpec:
    assert job.tools is not None  # noqa: S101 - what whoever emulates nodes has made ready
    return ContainerSpec(
        name=stand_in(job, seat),
        node=seat.node.name,
        role="daemon",
        number=number,
        image=job.tools,
        argv=leased(job, "sleep", "infinity"),
        env={},
        mounts=tuple(mount for mount in job.mounts if mount.target == job.site.workloads),  # the lease is in there
        cpus=seat.node.cores,
        memory_mib=_MEMORY_MIB,
        shm_mib=1,
        tmp_mib=1,
        user=job.user,
        network=f"dlscale-{job.run_id}",
        hostname=seat.node.name,
        aliases=(seat.node.name,),
        link=job.trial.link,
        labels={LABEL_RUN: job.run_id, LABEL_ROLE: "daemon"},
    )
