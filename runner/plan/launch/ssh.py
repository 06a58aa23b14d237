"""The way from a job's first node into its containers on the others: an sshd there, and what ssh has to know here. Pure.

Each run has keys of its own (`runner/run/ssh_keys.py`), which its containers find at `KEYS`, in memory alone. The images make ssh read `KEYS`/ssh_config
whoever starts it, since horovodrun and mpirun leave no room for more on its command line than one port for all nodes; a port that is
free on every node is more than a node can promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runner.plan.launch.job import Job, Seat

KEYS: Final = "/dlscale/keys"
# Seconds between two questions whether the other side is still there, and how many may stay without an answer.
_ALIVE_S: Final = 5
_ALIVE_MISSED: Final = 3


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
    return tuple(Login(seat.node.name, seat.address, seat.ports[0]) for seat in job.seats[1:])


def sshd(job: Job, seat: Seat) -> tuple[str, ...]:
    """The command that lets ranks in on a node: on the wire's address alone, in the foreground, its log on standard error."""
    config = f"{job.site.workloads}/sshd_config"
    return ("/usr/sbin/sshd", "-D", "-e", "-f", config, "-o", f"ListenAddress={seat.address}", "-p", str(seat.ports[0]))


def client_config(logins: Sequence[Login]) -> str:
    """What ssh is to know: ssh_config(5)."""
    hosts = "".join(f"Host {login.address}\n  Port {login.port}\n" for login in logins)
    options = {
        "User": "bench",
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
    return hosts + "Host *\n" + "".join(f"  {name} {value}\n" for name, value in options.items())


def known_hosts(logins: Sequence[Login], host_key: str) -> str:
    """The one host key that all nodes of a run have: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"."""
    return "".join(f"[{login.address}]:{login.port} {host_key}\n" for login in logins)
