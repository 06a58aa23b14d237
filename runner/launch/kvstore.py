"""Strategy `kvstore`: MXNet's key-value store.

With `device` or `nccl` a single process drives all devices of the host. With `dist_sync`, `dist_sync_device` or `dist_async` each
device has a process of its own, and they meet at a parameter server: a scheduler, a server, and the workers, each a container, all
in the network namespace of the scheduler's.
"""

from __future__ import annotations

from runner.launch.job import LOOPBACK, Job, name, program, spec
from runner.spec import ContainerSpec


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """One container for one process; else scheduler, server, and one container a worker with its own cores or GPU."""
    worker = (job.site.python, *program(job))
    if job.trial.processes == 1:
        return (spec(job, role="worker", argv=worker, cpus=job.cpus),)
    # ps-lite's variables: https://mxnet.apache.org/versions/1.9.1/api/faq/distributed_training
    meeting = {
        "DMLC_PS_ROOT_URI": LOOPBACK,
        "DMLC_PS_ROOT_PORT": str(job.node.rendezvous_port),
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": str(job.trial.processes),
        "DMLC_NODE_HOST": LOOPBACK,
        "DMLC_INTERFACE": "lo",
    }
    # Importing MXNet with one of these roles runs that role until the workers are done; the shim lets it be imported everywhere.
    helper = (job.site.python, f"{job.site.workloads}/imagenet_cnn/mxnet_shim.py")
    inside = f"container:{name(job, 'scheduler', 0)}"
    return (
        spec(job, role="scheduler", argv=helper, cpus=job.cpus, gpus=(), env={**meeting, "DMLC_ROLE": "scheduler"}),
        spec(
            job,
            role="server",
            argv=helper,
            cpus=job.cpus,
            gpus=(),
            env={**meeting, "DMLC_ROLE": "server"},
            network=inside,
        ),
        *(
            spec(
                job,
                role="worker",
                number=number,
                argv=worker,
                cpus=job.worker_cpus(number),
                gpus=job.gpus[number : number + 1],
                env={**meeting, "DMLC_ROLE": "worker"},
                network=inside,
            )
            for number in range(job.trial.processes)
        ),
    )
