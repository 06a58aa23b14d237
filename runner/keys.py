"""The ssh keys of one run: made in memory, put on the run's nodes for as long as it lasts, and never written anywhere else.

The first node gets the key that opens the others, each of those the key that it proves itself with and the one that it lets in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from runner.engines import volumes
from runner.engines.base import Engine, EngineError
from runner.engines.docker import DockerEngine
from runner.engines.volumes import File
from runner.launch import ssh
from runner.launch.job import Job
from runner.spec import IMAGE_USER, LABEL_RUN


@dataclass(frozen=True)
class KeyPair:
    """An Ed25519 key pair in OpenSSH's formats.

    Attributes:
        private: what a private key file holds.
        public: algorithm and key, as in known_hosts and authorized_keys.
    """

    private: bytes = field(repr=False)
    public: str


def make_pair() -> KeyPair:
    """Make a key pair that never was and never will be again."""
    key = Ed25519PrivateKey.generate()
    return KeyPair(
        private=key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
        public=key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),
    )


def files(job: Job, *, user: KeyPair, host: KeyPair) -> dict[str, dict[str, File]]:
    """What each node of a job finds at `ssh.KEYS`, by node and name; nothing for a job that needs no ssh.

    Args:
        job: on several nodes.
        user: with which the first node logs in to the others.
        host: by which it knows them.
    """
    logins = ssh.logins(job)
    if not logins:
        return {}
    on_head = {
        "id": _own(user.private),
        "ssh_config": _own(ssh.client_config(logins).encode()),
        "known_hosts": _own(ssh.known_hosts(logins, host.public).encode()),
    }
    on_others = {"host": _own(host.private), "authorized_keys": _own(f"{user.public}\n".encode())}
    return {job.head.node.name: on_head, **{login.node: on_others for login in logins}}


@contextmanager
def handed_out(job: Job, engines: Mapping[str, Engine]) -> Iterator[None]:
    """Have a run's keys on its nodes; afterwards they are gone, whatever happened meanwhile.

    Args:
        job: what is about to run; one that needs no ssh gets no keys.
        engines: by node; emulated nodes have one in common.

    Raises:
        EngineError: a node did not take them; the message names it.
    """
    by_node = files(job, user=make_pair(), host=make_pair())
    with ExitStack() as undo:
        for engine in dict.fromkeys(engines[node] for node in by_node):
            assert isinstance(engine, DockerEngine)  # noqa: S101 - no other reaches several nodes
            nodes = [node for node in by_node if engines[node] is engine]
            # Before there is one: Ctrl-C may come while it is filled.
            undo.callback(volumes.remove, engine.client, ssh.volume(job))
            try:
                volumes.fill(
                    engine.client,
                    name=ssh.volume(job),
                    image=job.image,
                    files={name: file for node in nodes for name, file in by_node[node].items()},
                    labels={LABEL_RUN: job.run_id},
                )
            except EngineError as error:
                raise EngineError(f"{nodes[0]}: {error}") from error
        yield


def _own(content: bytes) -> File:
    """A file that the job's user alone may read, as ssh and sshd demand of private keys."""
    return File(content=content, mode=0o600, uid=int(IMAGE_USER.partition(":")[0]))
