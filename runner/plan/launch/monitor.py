"""Launches the samplers: one a machine, beside the job and not of it. `workloads/monitor.py` is what runs."""

from __future__ import annotations

from functools import partial
from typing import Final

from runner.core.container_spec import LABEL_ROLE, LABEL_RUN, ContainerSpec
from runner.engines.base import Site
from runner.plan.launch.job import HEARTBEAT_S, Job

# Beside the programs on other hosts: the modules that the sampler needs and no base system has.
MODULES: Final = "site"


def specs(job: Job, *, hz: int, image: str, site: Site) -> tuple[ContainerSpec, ...]:
    """The samplers of a job, at `hz` samples a second, none at 0; nodes that are emulated share a machine, and one sampler."""
    if not hz:
        return ()
    of_machine = partial(sampler, job.run_id, hz=hz, site=site, image=image, user=job.user)
    if not job.remote:
        return (of_machine(node=job.head.node.name, gpus=tuple(gpu for seat in job.seats for gpu in seat.gpus)),)
    return tuple(
        of_machine(node=seat.node.name, gpus=seat.gpus, number=number, remote=True).model_copy(
            update={"mounts": job.mounts, "gpus": seat.gpus, "network": "host", "host_pids": True}
        )
        for number, seat in enumerate(job.seats)
    )


def sampler(
    run_id: str,
    *,
    node: str,
    gpus: tuple[int, ...],
    hz: int,
    site: Site,
    image: str,
    user: str,
    number: int = 0,
    remote: bool = False,
) -> ContainerSpec:
    """The sampler of one machine: a process on this one, which sees all of it by itself, or what runs in a container on another.

    One that is `remote` has to hear from the runner to live on, and brings its modules along.
    """
    beat = (f"--heartbeat={HEARTBEAT_S}",) if remote else ()
    flags = (f"--node={node}", f"--hz={hz}", f"--gpus={','.join(map(str, gpus))}")
    return ContainerSpec(
        name=f"dlscale-{run_id}-monitor{number}",
        node=node,
        role="monitor",
        number=number,
        image=image,
        argv=(site.python, f"{site.workloads}/lease.py", *beat, site.python, f"{site.workloads}/monitor.py", *flags),
        env={
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            **({"PYTHONPATH": f"{site.workloads}/{MODULES}"} if remote else {}),
        },
        user=user,
        labels={LABEL_RUN: run_id, LABEL_ROLE: "monitor"},
    )
