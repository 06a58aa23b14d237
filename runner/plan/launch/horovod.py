"""Strategy `horovod`: one process a device, started by Horovod's own launcher, with rendezvous by Gloo or MPI.

On several nodes, the launcher runs on the first and starts the ranks of the others by SSH, in containers that run an sshd. Each run has its own
keys (`runner/run/container_group.py`), which its containers find at `KEYS`, in memory only. The images make every ssh read
`KEYS`/ssh_config, because horovodrun and mpirun can pass ssh only one port for all nodes, and no port is sure to be free on every node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from runner.core.container_spec import IMAGE_USER, ContainerSpec
from runner.core.trial import Horovod
from runner.plan.launch.job import Job, Seat, program, spec

KEYS: Final = "/dlscale/keys"
# The folder in which MPI Operator puts a job's key pair into its pods, as `id_rsa`, `id_rsa.pub` and `authorized_keys`.
OPERATOR_KEYS: Final = "/dlscale/ssh"
# Seconds between keep-alive messages of ssh, and how many may go unanswered.
_KEEPALIVE_S: Final = 5
_KEEPALIVE_MISSED: Final = 3


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """A container with the launcher, after one with an sshd on each further node."""
    trial, settings = job.trial, job.trial.horovod
    assert settings is not None  # noqa: S101 - the plan sets it for this strategy
    tuning = {"fusion-threshold-mb": settings.fusion_threshold_mib, "cycle-time-ms": settings.cycle_time_ms}
    argv = (
        job.site.program_path("horovodrun"),
        f"--{settings.controller}",
        f"--num-proc={trial.processes}",
        *_hosts(job),
        *(f"--{name}={value}" for name, value in tuning.items() if value is not None),  # else Horovod's own default
        # On several nodes, a rank's own container overrides the environment that the first node's launcher passes to all ranks.
        *(() if len(job.seats) == 1 else (job.site.python, f"{job.site.workloads}/own_env.py")),
        job.site.python,
        *program(job),
    )
    env = _environment(job, settings)
    if len(job.seats) == 1:
        return (spec(job, job.head, role="worker", processes=trial.processes, argv=argv, env=env),)
    # An unprivileged sshd admits only its own user, who must have a name.
    job = replace(job, user=IMAGE_USER, keys=None if job.head.network == "pod" else KEYS)
    daemons = tuple(
        spec(job, seat, role="daemon", number=number, processes=0, argv=_sshd(job, seat), env=env)
        for number, seat in enumerate(job.seats[1:])
    )
    return (*daemons, spec(job, job.head, role="worker", processes=trial.processes, argv=argv, env=env))


def _environment(job: Job, horovod: Horovod) -> dict[str, str]:
    """Variables for Open MPI's own launcher; those for wires are in `interconnect_environment`."""
    if horovod.controller != "mpi":
        return {}
    if len(job.seats) == 1:
        return {"OMPI_MCA_plm": "isolated"}  # launch without ssh
    # mpirun passes its own interface to its daemons on the other nodes, where it may have another name.
    return {"OMPI_MCA_oob_tcp_if_include": ",".join(dict.fromkeys(seat.iface for seat in job.seats))}


def _hosts(job: Job) -> tuple[str, ...]:
    """The nodes' addresses and numbers of ranks, and the first node's interface, so that no other is tried; empty on one node."""
    if len(job.seats) == 1:
        return ()
    hosts = ",".join(f"{seat.address}:{seat.processes}" for seat in job.seats)
    return (f"--hosts={hosts}", f"--network-interfaces={job.head.iface}")


@dataclass(frozen=True)
class Login:
    """The address and port of a node's sshd, for one run."""

    node: str
    address: str
    port: int


def logins(job: Job) -> tuple[Login, ...]:
    """The nodes that the first one reaches by SSH; empty without Horovod or on one node."""
    if job.trial.horovod is None:
        return ()
    return tuple(Login(seat.node.name, seat.address, seat.node.ports[0]) for seat in job.seats[1:])


def _sshd(job: Job, seat: Seat) -> tuple[str, ...]:
    """The sshd command of a node: listens only on the wire's address (in a pod, on all), in the foreground, and logs to standard error."""
    options: tuple[str, ...] = ("-o", f"ListenAddress={seat.address}")
    if seat.network == "pod":  # a pod has one interface, and its read-only folder of keys has a mode that sshd rejects
        keys = f"{OPERATOR_KEYS}/authorized_keys"
        options = ("-h", f"{OPERATOR_KEYS}/id_rsa", "-o", f"AuthorizedKeysFile={keys}", "-o", "StrictModes=no")
    port = str(seat.node.ports[0])
    return ("/usr/sbin/sshd", "-D", "-e", "-f", f"{job.site.workloads}/sshd_config", *options, "-p", port)


def client_config(logins: Sequence[Login], *, operator: bool = False) -> str:
    """The ssh_config(5) of a run. With `operator`, all pods of a job share one key pair, which is also every host's key."""
    hosts = "".join(f"Host {login.address}\n  Port {login.port}\n" for login in logins)
    options = {
        "IdentityFile": f"{KEYS}/id",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": f"{KEYS}/known_hosts",
        "GlobalKnownHostsFile": "none",
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": 10,
        "ConnectionAttempts": 2,  # the other node's sshd may start a moment later
        "ServerAliveInterval": _KEEPALIVE_S,
        "ServerAliveCountMax": _KEEPALIVE_MISSED,
    }
    if operator:
        options |= {
            "IdentityFile": f"{OPERATOR_KEYS}/id_rsa",
            "UserKnownHostsFile": "none",
            "KnownHostsCommand": f'/usr/bin/sed "s/^/%H /" {OPERATOR_KEYS}/id_rsa.pub',
        }
    return hosts + "Host *\n" + "".join(f"  {name} {value}\n" for name, value in options.items())


def known_hosts(logins: Sequence[Login], host_key: str) -> str:
    """The known_hosts file with the host key that all nodes of a run share: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"."""
    return "".join(f"[{login.address}]:{login.port} {host_key}\n" for login in logins)
