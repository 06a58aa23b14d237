"""Strategy `kvstore`: MXNet's key-value store.

With `device` or `nccl` a single process drives all devices of the host. With `dist_sync`, `dist_sync_device` or `dist_async` several
processes meet at parameter servers: a scheduler on the first node, a server on each, and the workers, each a container. On one host
they share the network namespace of the scheduler's.
"""

from __future__ import annotations

import ipaddress

from runner.core.container_spec import ContainerSpec, Role
from runner.plan.launch.job import Job, Seat, name, program, spec


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """One container for one process; else scheduler, servers, and one container a worker with its own cores or GPUs."""
    worker = (job.site.python, *program(job))
    if job.trial.processes == 1:
        return (spec(job, job.head, role="worker", argv=worker),)
    # Importing MXNet with one of these roles runs that role until the workers are done; the shim lets it be imported everywhere.
    helper = (job.site.python, f"{job.site.workloads}/with_mxnet/shim.py")
    inside = f"container:{name(job, 'scheduler', 0)}" if len(job.seats) == 1 else None
    found = [spec(job, job.head, role="scheduler", argv=helper, gpus=(), env=_meeting(job, job.head, "scheduler"))]
    for number, seat in enumerate(job.seats):
        env = _meeting(job, seat, "server")
        found.append(spec(job, seat, role="server", number=number, argv=helper, gpus=(), env=env, network=inside))
    per_worker = job.trial.world_size // job.trial.processes
    share = job.trial.cpus_per_worker and job.trial.cpus_per_worker * per_worker
    for seat in job.seats:
        found += [
            spec(
                job,
                seat,
                role="worker",
                number=seat.first + worker_number,
                argv=worker,
                cpus=seat.worker_cores(worker_number, share),
                gpus=seat.gpus[per_worker * worker_number : per_worker * (worker_number + 1)],
                env=_meeting(job, seat, "worker"),
                network=inside,
            )
            for worker_number in range(seat.processes)
        ]
    return tuple(found)


def _meeting(job: Job, seat: Seat, role: Role) -> dict[str, str]:
    """ps-lite's variables: https://mxnet.apache.org/versions/1.9.1/api/faq/distributed_training."""
    return {
        "DMLC_ROLE": role,
        "DMLC_PS_ROOT_URI": job.head.address,
        "DMLC_PS_ROOT_PORT": str(job.head.ports[0]),
        "DMLC_NUM_SERVER": str(len(job.seats)),
        "DMLC_NUM_WORKER": str(job.trial.processes),
        **_own_address(seat),
    }


def _own_address(seat: Seat) -> dict[str, str]:
    """Where a process listens: at the address by which the others find it, but ps-lite can't listen at a name.

    Reached by name, workers and servers take the address of DMLC_INTERFACE, and the scheduler, told that it is in a pod, listens at all
    addresses (`Van::Start` and `ZMQVan::Bind` of ps-lite).
    """
    try:
        ipaddress.ip_address(seat.address)
    except ValueError:
        return {"DMLC_USE_KUBERNETES": "1"}
    return {"DMLC_NODE_HOST": seat.address}
