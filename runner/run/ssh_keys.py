"""The ssh keys of one run: made in memory, handed to the leases of its containers over the connection that holds them, and never on a disk.

The first node gets the key that opens the others, each of those the key that it proves itself with and the one that it lets in. A lease
keeps them on a tmpfs of its container's own, which goes with it (`workloads/lease.py`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from runner.core.container_spec import ContainerSpec
from runner.plan.launch import horovod
from runner.plan.launch.job import Job


@dataclass(frozen=True)
class KeyPair:
    """An Ed25519 key pair in OpenSSH's formats: a private key file, and algorithm and key as in known_hosts and authorized_keys."""

    private: str = field(repr=False)
    public: str


def make_pair() -> KeyPair:
    """Make a new key pair."""
    key = Ed25519PrivateKey.generate()
    return KeyPair(
        private=key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode(),
        public=key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),
    )


def made(job: Job, specs: Sequence[ContainerSpec]) -> dict[str, bytes]:
    """Make a run's keys: by container, the line that its lease is told before all else; nothing for a job that needs no ssh."""
    logins = horovod.logins(job)
    if not logins:
        return {}
    user, host = make_pair(), make_pair()
    on_head = {
        "id": user.private,
        "ssh_config": horovod.client_config(logins),
        "known_hosts": horovod.known_hosts(logins, host.public),
    }
    on_others = {"host": host.private, "authorized_keys": f"{user.public}\n"}
    by_node = {job.head.node.name: on_head, **{login.node: on_others for login in logins}}
    return {spec.name: f"{json.dumps(by_node[spec.node])}\n".encode() for spec in specs if spec.keys}
