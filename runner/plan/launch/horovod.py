"""Strategy `horovod`: one process a device, started by Horovod's own launcher, which meet through Gloo or MPI.

On several nodes the launcher runs on the first and starts the ranks of the others by ssh, in a container that waits there with an sshd.
Each run has keys of its own (`runner/run/container_group.py`), which its containers find at `KEYS`, in memory alone. The images make ssh read
`KEYS`/ssh_config whoever starts it, since horovodrun and mpirun leave no room for more on its command line than one port for all nodes; a
port that is free on every node is more than a node can promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from runner.core.container_spec import IMAGE_USER, ContainerSpec
from runner.core.trial import Horovod
from runner.plan.launch.job import Job, Seat, program, spec

KEYS: Final = "/dlscale/keys"
# Where MPI Operator puts the key pair of a job into its pods, as `id_rsa`, `id_rsa.pub` and `authorized_keys`.
OPERATOR_KEYS: Final = "/dlscale/ssh"
# Seconds between two questions whether the other side is still there, and how many may stay without an answer.
_ALIVE_S: Final = 5
_ALIVE_MISSED: Final = 3


def specs(job: Job) -> tuple[ContainerSpec, ...]:
    """One container with the launcher; before it, one with an sshd on each further node."""
    trial, asked = job.trial, job.trial.horovod
    assert asked is not None  # noqa: S101 - what the plan promises of this strategy
    tuning = {"fusion-threshold-mb": asked.fusion_threshold_mib, "cycle-time-ms": asked.cycle_time_ms}
    argv = (
        job.site.beside_python("horovodrun"),
        f"--{asked.controller}",
        f"--num-proc={trial.processes}",
        *_hosts(job),
        *(f"--{name}={value}" for name, value in tuning.items() if value is not None),  # else Horovod's own default
        # On several nodes, each rank takes what its own container was told over what the first node's launcher hands to all.
        *(() if len(job.seats) == 1 else (job.site.python, f"{job.site.workloads}/own_env.py")),
        job.site.python,
        *program(job),
    )
    env = _environment(job, asked)
    if len(job.seats) == 1:
        return (spec(job, job.head, role="worker", processes=trial.processes, argv=argv, env=env),)
    # sshd lets in nobody but itself, and needs a user who has a name.
    job = replace(job, user=IMAGE_USER, keys=None if job.head.network == "pod" else KEYS)
    daemons = tuple(
        spec(job, seat, role="daemon", number=number, processes=0, argv=_sshd(job, seat), env=env)
        for number, seat in enumerate(job.seats[1:])
    )
    return (*daemons, spec(job, job.head, role="worker", processes=trial.processes, argv=argv, env=env))


def _environment(job: Job, horovod: Horovod) -> dict[str, str]:
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


@dataclass(frozen=True)
class Login:
    """Where the sshd of a node listens, for this run alone."""

    node: str
    address: str
    port: int


def logins(job: Job) -> tuple[Login, ...]:
    """The nodes that the first one reaches by ssh; none for a job on one node, or whose launcher is started on each."""
    if job.trial.horovod is None:
        return ()
    return tuple(Login(seat.node.name, seat.address, seat.node.ports[0]) for seat in job.seats[1:])


def _sshd(job: Job, seat: Seat) -> tuple[str, ...]:
    """The command that lets ranks in on a node: on the wire's address alone, in the foreground, its log on standard error."""
    where: tuple[str, ...] = ("-o", f"ListenAddress={seat.address}")
    if seat.network == "pod":  # one interface; and a folder of keys that is read-only, but not by its mode
        keys = f"{OPERATOR_KEYS}/authorized_keys"
        where = ("-h", f"{OPERATOR_KEYS}/id_rsa", "-o", f"AuthorizedKeysFile={keys}", "-o", "StrictModes=no")
    port = str(seat.node.ports[0])
    return ("/usr/sbin/sshd", "-D", "-e", "-f", f"{job.site.workloads}/sshd_config", *where, "-p", port)


def client_config(logins: Sequence[Login], *, operator: bool = False) -> str:
    """What ssh is to know: ssh_config(5). With `operator` all pods of a job have one key pair, which is every host's as well."""
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
        "ServerAliveInterval": _ALIVE_S,
        "ServerAliveCountMax": _ALIVE_MISSED,
    }
    if operator:
        options |= {
            "IdentityFile": f"{OPERATOR_KEYS}/id_rsa",
            "UserKnownHostsFile": "none",
            "KnownHostsCommand": f'/usr/bin/sed "s/^/%H /" {OPERATOR_KEYS}/id_rsa.pub',
        }
    return hosts + "Host *\n" + "".join(f"  {name} {value}\n" for name, value in options.items())


def known_hosts(logins: Sequence[Login], host_key: str) -> str:
    """The one host key that all nodes of a run have: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"."""
    return "".join(f"[{login.address}]:{login.port} {host_key}\n" for login in logins)
