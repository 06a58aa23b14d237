"""Launchers: pure functions from a `Job` to a strategy's `ContainerSpec`s; `LAUNCHERS` has them by their names in `runner/core/strategies.py`."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from runner.core.container_spec import ContainerSpec, Mount, Role
from runner.core.trial import Counting
from runner.plan.launch import horovod
from runner.plan.launch.job import Job, Seat, name, program, spec, worker_per_node


def single(job: Job) -> tuple[ContainerSpec, ...]:
    """One process for all devices.

    A pass that reads the GPU's counters with Nsight Compute runs under `ncu`.
    """
    argv = (job.site.python, *program(job))
    if job.trial.profile and (ncu := job.trial.profile.ncu):
        return (_under_ncu(job, ncu, argv),)
    return (spec(job, job.head, role="worker", argv=argv),)


def _under_ncu(job: Job, ncu: Counting, argv: tuple[str, ...]) -> ContainerSpec:
    """Run the program under the host's own `ncu`, mounted into a container at the same path."""
    if ncu.folder and ncu.folder not in {mount.target for mount in job.mounts}:
        job = replace(job, mounts=(*job.mounts, Mount(source=ncu.folder, target=ncu.folder)))
    argv = (job.site.python, f"{job.site.workloads}/ncu.py", f"--ncu={ncu.program}", *argv)
    return spec(job, job.head, role="worker", argv=argv, env={"DLSCALE_COUNTERS": "ncu"})


def torchrun(job: Job) -> tuple[ContainerSpec, ...]:
    """PyTorch's own ranks: one container a node, in which torchrun starts one process a device.

    The nodes rendezvous at the first one, with fixed numbers. So does a single node, because `--standalone` takes half a second longer.
    """

    def argv(number: int, seat: Seat) -> tuple[str, ...]:
        return (
            job.site.python,
            f"{job.site.workloads}/torchrun.py",
            f"--nnodes={len(job.seats)}",
            f"--node-rank={number}",
            f"--master-addr={job.head.address}",
            f"--master-port={job.head.node.ports[0]}",
            f"--local-addr={seat.address}",  # without a network, the host name does not resolve
            "--tee=2",  # prefix lines of standard error with their rank; events on standard output stay unmodified
            "--log-dir=/tmp/torchrun",
            f"--nproc-per-node={seat.processes}",
            *program(job),
        )

    return worker_per_node(job, argv)


def multiworker(job: Job) -> tuple[ContainerSpec, ...]:
    """TensorFlow's MultiWorkerMirroredStrategy: one process a device, with rendezvous by TF_CONFIG.

    One container a node, in which the suite's own launcher starts the workers, because TensorFlow has none.
    """
    cluster = ",".join(f"{seat.address}:{port}" for seat in job.seats for port in seat.node.ports[: seat.processes])

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

    return worker_per_node(job, argv)


def kvstore(job: Job) -> tuple[ContainerSpec, ...]:
    """MXNet's key-value store.

    With `device` or `nccl`, a single process drives all devices of the host. With `dist_sync`, `dist_sync_device` or `dist_async`, several
    processes use parameter servers: a scheduler on the first node, a server on each, and workers, each a container with its own cores or
    GPUs. On one host they share the network namespace of the scheduler's container.
    """
    if job.trial.processes == 1:
        return (spec(job, job.head, role="worker", argv=(job.site.python, *program(job))),)
    # Importing MXNet as scheduler or server runs that role until the workers are done; the shim makes MXNet importable everywhere.
    helper = (job.site.python, f"{job.site.workloads}/with_mxnet/shim.py")
    inside = f"container:{name(job, 'scheduler', 0)}" if len(job.seats) == 1 else None
    found = [spec(job, job.head, role="scheduler", argv=helper, gpus=(), env=_ps_lite(job, job.head, "scheduler"))]
    for number, seat in enumerate(job.seats):
        env = _ps_lite(job, seat, "server")
        found.append(spec(job, seat, role="server", number=number, argv=helper, gpus=(), env=env, network=inside))
    return (*found, *_workers(job, env=lambda seat: _ps_lite(job, seat, "worker"), network=inside))


def _workers(job: Job, *, env: Callable[[Seat], dict[str, str]], network: str | None) -> tuple[ContainerSpec, ...]:
    """Workers of parameter servers, each in a container with its own cores or GPUs."""
    per_worker = job.trial.world_size // job.trial.processes
    share = job.trial.cpus_per_worker and job.trial.cpus_per_worker * per_worker
    return tuple(
        spec(
            job,
            seat,
            role="worker",
            number=seat.first + worker_number,
            argv=(job.site.python, *program(job)),
            cpus=seat.worker_cores(worker_number, share),
            gpus=seat.gpus[per_worker * worker_number : per_worker * (worker_number + 1)],
            env=env(seat),
            network=network,
        )
        for seat in job.seats
        for worker_number in range(seat.processes)
    )


def parameter_servers(job: Job) -> tuple[ContainerSpec, ...]:
    """TensorFlow's `ps`: a server on each node and one worker a device, a client of all servers, which assign its rank.

    On one host the workers share the network namespace of the server's container.
    """
    addresses = {seat.node.name: f"{seat.address}:{seat.node.ports[0]}" for seat in job.seats}
    inside = f"container:{name(job, 'server', 0)}" if len(job.seats) == 1 else None
    helper = (job.site.python, f"{job.site.workloads}/with_tensorflow/servers.py")
    servers = (
        spec(
            job,
            seat,
            role="server",
            number=number,
            argv=(*helper, f"--address={addresses[seat.node.name]}", f"--workers={job.trial.processes}"),
            gpus=(),
        )
        for number, seat in enumerate(job.seats)
    )
    env = {"DLSCALE_SERVERS": ",".join(addresses.values())}
    return (*servers, *_workers(job, env=lambda _: env, network=inside))


def _ps_lite(job: Job, seat: Seat, role: Role) -> dict[str, str]:
    """ps-lite's variables: https://mxnet.apache.org/versions/1.9.1/api/faq/distributed_training."""
    return {
        "DMLC_ROLE": role,
        "DMLC_PS_ROOT_URI": job.head.address,
        "DMLC_PS_ROOT_PORT": str(job.head.node.ports[0]),
        "DMLC_NUM_SERVER": str(len(job.seats)),
        "DMLC_NUM_WORKER": str(job.trial.processes),
        **_own_address(seat),
    }


def _own_address(seat: Seat) -> dict[str, str]:
    """The address that a process listens on: the one by which others reach it, unless that is a name, which ps-lite cannot bind to.

    With a name, workers and servers use the address of DMLC_INTERFACE, and the scheduler, because of DMLC_USE_KUBERNETES, listens on all
    addresses (`Van::Start` and `ZMQVan::Bind` of ps-lite).
    """
    try:
        ipaddress.ip_address(seat.address)
    except ValueError:
        return {"DMLC_USE_KUBERNETES": "1"}
    return {"DMLC_NODE_HOST": seat.address}


LAUNCHERS: Final[dict[str, Callable[[Job], tuple[ContainerSpec, ...]]]] = {
    "single": single,
    "torchrun": torchrun,
    "multiworker": multiworker,
    "kvstore": kvstore,
    "ps": parameter_servers,
    "horovod": horovod.specs,
}
