"""Launches the samplers: one a machine, beside the job and not of it. `workloads/monitor.py` is what runs."""

from __future__ import annotations

from typing import Final

from runner.engines.base import Site
from runner.launch.job import HEARTBEAT_S, Job
from runner.spec import LABEL_ROLE, LABEL_RUN, ContainerSpec

# Beside the programs on other hosts: the modules that the sampler needs and no base system has.
MODULES: Final = "site"


def specs(job: Job, *, hz: int, image: str, site: Site) -> tuple[ContainerSpec, ...]:
    """The samplers of a job.

    Args:
        job: what they look at. Nodes that are emulated share a machine, and one sampler.
        hz: samples a second; 0 for no samplers.
        image: of the containers on other machines.
        site: where the samplers find Python and the programs.
    """
    if not hz:
        return ()
    if not job.remote:
        gpus = tuple(gpu for seat in job.seats for gpu in seat.gpus)
        return (local(job.run_id, node=job.head.node.name, gpus=gpus, hz=hz, image=image, site=site, user=job.user),)
    found = []
    for number, seat in enumerate(job.seats):
        alone = local(
            job.run_id, node=seat.node.name, gpus=seat.gpus, hz=hz, image=image, site=site, user=job.user, number=number
        )
        python, lease, *argv = alone.argv
        own = {
            "argv": (python, lease, f"--heartbeat={HEARTBEAT_S}", *argv),
            "env": {**alone.env, "PYTHONPATH": f"{site.workloads}/{MODULES}"},
            "mounts": job.mounts,
            "gpus": seat.gpus,
            "network": "host",
            "host_pids": True,
        }
        found.append(alone.model_copy(update=own))
    return tuple(found)


def local(
    run_id: str, *, node: str, gpus: tuple[int, ...], hz: int, image: str, site: Site, user: str, number: int = 0
) -> ContainerSpec:
    """The sampler of the machine that it is on, which sees all of it by itself."""
    flags = (f"--node={node}", f"--hz={hz}", f"--gpus={','.join(map(str, gpus))}")
    return ContainerSpec(
        name=f"dlscale-{run_id}-monitor{number}",
        node=node,
        role="monitor",
        number=number,
        image=image,
        argv=(site.python, f"{site.workloads}/lease.py", site.python, f"{site.workloads}/monitor.py", *flags),
        env={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"},
        user=user,
        labels={LABEL_RUN: run_id, LABEL_ROLE: "monitor"},
    )
