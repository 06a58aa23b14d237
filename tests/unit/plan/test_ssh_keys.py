"""Keys of a run. Prevents: a key that ssh can't read, one key for two runs, the key that opens every node lying on all of them, a key
that a traceback or a plan shows, keys that are on a disk.
"""

import json
import shutil
import subprocess

import examples
import pytest
from unit.plan.test_launch_horovod import CASES

from runner.cluster.cluster import emulated_nodes
from runner.engines import docker_options
from runner.plan.launch import horovod, launch
from runner.run import container_group

JOB = CASES["mxnet-horovod-gloo-2-nodes"]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
def test_openssh_reads_a_pair_and_finds_that_its_halves_belong_together(tmp_path):
    pair = container_group.make_pair()
    path = tmp_path / "id"
    path.write_text(pair.private)
    path.chmod(0o600)
    found = subprocess.run(["ssh-keygen", "-y", "-P", "", "-f", path], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == pair.public
    assert pair.public.startswith("ssh-ed25519 ")


def test_no_two_pairs_are_equal_and_none_shows_its_private_half():
    one, other = container_group.make_pair(), container_group.make_pair()
    assert one.private != other.private
    assert "PRIVATE" not in f"{one} {one!r}"


def test_each_container_is_told_its_own_and_no_disk_holds_any():
    """A volume of the engine with the private keys of a run whose runner was killed."""
    specs = launch(JOB)
    lines = container_group.made(JOB, specs)
    told = {spec.node: json.loads(lines[spec.name]) for spec in specs}
    assert {node: sorted(found) for node, found in told.items()} == {
        "n1": ["id", "known_hosts", "ssh_config"],
        "n2": ["authorized_keys", "host"],
    }
    assert told["n1"]["id"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert told["n1"]["id"] != told["n2"]["host"]
    assert told["n2"]["authorized_keys"].startswith("ssh-ed25519 ")
    assert told["n2"]["authorized_keys"].strip() not in told["n1"]["known_hosts"]  # which has the host's
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines.values())
    for spec in specs:
        assert not [mount for mount in spec.mounts if horovod.KEYS in mount.target]
        tmpfs = docker_options.create_options(spec, None)["host"]["tmpfs"][horovod.KEYS]
        assert {"mode=700", "uid=10001", "gid=10001", "noexec"} <= set(tmpfs.split(","))
        assert f"--keys={horovod.KEYS}" in spec.argv
        assert "PRIVATE" not in spec.model_dump_json()


def test_nodes_of_one_engine_have_different_keys():
    """The key that opens every node, in a volume that all emulated nodes shared."""
    nodes = emulated_nodes(examples.node(), 2)
    wires = [examples.wire(0, address=node.name) for node in nodes]
    job = examples.job_on_nodes(JOB.trial, nodes, wires=wires, network="emulated", tools="dlscale/base:tools")
    specs = launch(job)
    lines = container_group.made(job, specs)
    assert sorted(lines) == sorted(spec.name for spec in specs if "worker" in spec.name or "daemon" in spec.name)
    assert sorted("id" in json.loads(line) for line in lines.values()) == [False, True]


def test_a_job_on_one_node_gets_none():
    job = examples.job(examples.trial())
    assert container_group.made(job, launch(job)) == {}


def test_containers_find_them_where_ssh_and_sshd_look():
    assert horovod.KEYS == "/dlscale/keys"
    config = (examples.ROOT / "workloads" / "sshd_config").read_text()
    assert "HostKey /dlscale/keys/host\n" in config
    assert "AuthorizedKeysFile /dlscale/keys/authorized_keys\n" in config
    template = (examples.ROOT / "images" / "templates" / "horovod.Dockerfile.j2").read_text()
    assert "Include /dlscale/keys/ssh_config" in template
