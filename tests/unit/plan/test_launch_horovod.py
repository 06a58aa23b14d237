"""Horovod on several nodes: compares the exact command lines with golden files, and checks the configuration of ssh.

Prevents: ranks that rendezvous on another interface than the job's, an sshd that listens on all addresses, a node whose ranks run under the
first node's name, and a key in a stored plan.

Of a run's keys, prevents: one that ssh cannot read, one for two runs, the key to all nodes on every node, one that a traceback or a plan
shows, and keys on a disk.
"""

import json
import shutil
import subprocess

import examples
import pytest
from unit.plan.test_launch import GPU, cpu_nodes, gpu_nodes, infiniband, on_file, program, ranks, two

from runner.cluster.cluster import emulated_nodes
from runner.engines import docker_options
from runner.plan.launch import horovod, launch
from runner.run import container_group


def by(framework, **settings):
    return {"strategy": "horovod", "horovod": examples.horovod(**settings), **program(framework)}


def on_two_nodes(framework, **settings):
    return examples.job_on_nodes(two(**by(framework, **settings)), cpu_nodes(2), image=f"dlscale/{framework}-horovod")


MPI = {"controller": "mpi", "operations": "mpi"}
CASES = {
    "mxnet-horovod-gloo-2-nodes": on_two_nodes("mxnet"),
    "pytorch-horovod-mpi-2-nodes": on_two_nodes("pytorch", **MPI, fusion_threshold_mib=32),
    "tensorflow-horovod-gloo-2-nodes": on_two_nodes("tensorflow"),
    "pytorch-horovod-8-gpus-2-nodes-infiniband": examples.job_on_nodes(
        ranks(8, interconnect="infiniband", **by("pytorch", operations="nccl"), **GPU),
        gpu_nodes(2),
        wires=infiniband(2),
        image="dlscale/pytorch-horovod",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_command_lines_equal_the_golden_files(name):
    held, lines = on_file(name, CASES[name], "nvidia", named=True)
    assert lines == held
    started = [(spec.role, spec.node, spec.processes) for spec in launch(CASES[name])]
    assert started == [("daemon", "n2", 0), ("worker", "n1", CASES[name].trial.processes)]


def test_an_sshd_listens_on_a_free_port_of_its_node_which_ssh_config_names():
    nodes = [examples.node(name=f"n{number}", ports=(40000 + number, 50000)) for number in (1, 2, 3)]
    job = examples.job_on_nodes(ranks(3, **by("mxnet")), nodes)
    assert [spec.argv[-4:] for spec in launch(job) if spec.role == "daemon"] == [
        ("-o", "ListenAddress=10.0.0.2", "-p", "40002"),
        ("-o", "ListenAddress=10.0.0.3", "-p", "40003"),
    ]
    assert horovod.logins(job) == (horovod.Login("n2", "10.0.0.2", 40002), horovod.Login("n3", "10.0.0.3", 40003))
    told = horovod.client_config(horovod.logins(job))
    assert told.startswith("Host 10.0.0.2\n  Port 40002\nHost 10.0.0.3\n  Port 40003\nHost *\n")
    assert "\n  StrictHostKeyChecking yes\n" in told
    assert horovod.known_hosts(horovod.logins(job), "ssh-ed25519 AAAA") == (
        "[10.0.0.2]:40002 ssh-ed25519 AAAA\n[10.0.0.3]:40003 ssh-ed25519 AAAA\n"
    )


def test_open_mpis_daemons_find_their_own_interface_by_its_own_name():
    wires = [examples.wire(1, iface="eno1"), examples.wire(2, iface="ens2")]
    there, here = launch(examples.job_on_nodes(two(**by("mxnet", **MPI)), cpu_nodes(2), wires=wires))
    assert here.env["OMPI_MCA_oob_tcp_if_include"] == there.env["OMPI_MCA_oob_tcp_if_include"] == "eno1,ens2"
    assert (here.env["HOROVOD_GLOO_IFACE"], there.env["HOROVOD_GLOO_IFACE"]) == ("eno1", "ens2")
    assert "--network-interfaces=eno1" in here.argv
    assert "OMPI_MCA_plm" not in here.env


def test_ssh_always_has_a_user_with_a_name():
    job = on_two_nodes("mxnet")
    assert {spec.user for spec in launch(job)} == {"10001:10001"}
    assert {spec.user for spec in launch(examples.job_on_nodes(job.trial, cpu_nodes(2), user="1000:1000"))} == {
        "10001:10001"
    }


def test_on_emulated_nodes_launcher_and_sshd_join_the_stand_in_containers():
    nodes = emulated_nodes(examples.node(), 2)
    wires = [examples.wire(0, address=node.name) for node in nodes]
    job = examples.job_on_nodes(two(**by("mxnet")), nodes, wires=wires, network="emulated", tools="dlscale/base:tools")
    *stand_ins, there, here = launch(job)
    assert (here.network, there.network) == tuple(f"container:{spec.name}" for spec in stand_ins)
    assert "--hosts=node1:1,node2:1" in here.argv
    assert "ListenAddress=node2" in there.argv
    assert len({spec.name for spec in launch(job)}) == 4


def test_other_strategies_and_a_single_node_need_no_keys():
    alone = ranks(2, **by("mxnet"))
    assert horovod.logins(examples.job(alone)) == ()
    assert horovod.logins(examples.job_on_nodes(two(strategy="ddp", **program("pytorch")), cpu_nodes(2))) == ()
    assert horovod.KEYS not in str(launch(examples.job(alone)))
    assert container_group.make_keys(examples.job(alone), launch(examples.job(alone))) == {}


JOB = CASES["mxnet-horovod-gloo-2-nodes"]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
def test_openssh_reads_a_key_pair_and_its_halves_match(tmp_path):
    pair = container_group.make_pair()
    path = tmp_path / "id"
    path.write_text(pair.private)
    path.chmod(0o600)
    found = subprocess.run(["ssh-keygen", "-y", "-P", "", "-f", path], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == pair.public
    assert pair.public.startswith("ssh-ed25519 ")


def test_key_pairs_differ_and_do_not_show_their_private_half():
    one, other = container_group.make_pair(), container_group.make_pair()
    assert one.private != other.private
    assert "PRIVATE" not in f"{one} {one!r}"


def test_each_container_gets_its_own_keys_and_no_disk_holds_any():
    """Prevents an engine's volume with private keys that is left after the runner was killed."""
    specs = launch(JOB)
    lines = container_group.make_keys(JOB, specs)
    told = {spec.node: json.loads(lines[spec.name]) for spec in specs}
    assert {node: sorted(found) for node, found in told.items()} == {
        "n1": ["id", "known_hosts", "ssh_config"],
        "n2": ["authorized_keys", "host"],
    }
    assert told["n1"]["id"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert told["n1"]["id"] != told["n2"]["host"]
    assert told["n2"]["authorized_keys"].startswith("ssh-ed25519 ")
    assert told["n2"]["authorized_keys"].strip() not in told["n1"]["known_hosts"]  # which has the host key
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines.values())
    for spec in specs:
        assert not [mount for mount in spec.mounts if horovod.KEYS in mount.target]
        tmpfs = docker_options.create_options(spec, None)["host"]["tmpfs"][horovod.KEYS]
        assert {"mode=700", "uid=10001", "gid=10001", "noexec"} <= set(tmpfs.split(","))
        assert f"--keys={horovod.KEYS}" in spec.argv
        assert "PRIVATE" not in spec.model_dump_json()


def test_nodes_of_one_engine_have_different_keys():
    """Prevents the key to all nodes in a volume that all emulated nodes share."""
    nodes = emulated_nodes(examples.node(), 2)
    wires = [examples.wire(0, address=node.name) for node in nodes]
    job = examples.job_on_nodes(JOB.trial, nodes, wires=wires, network="emulated", tools="dlscale/base:tools")
    specs = launch(job)
    lines = container_group.make_keys(job, specs)
    assert sorted(lines) == sorted(spec.name for spec in specs if "worker" in spec.name or "daemon" in spec.name)
    assert sorted("id" in json.loads(line) for line in lines.values()) == [False, True]


def test_keys_are_where_ssh_and_sshd_look():
    assert horovod.KEYS == "/dlscale/keys"
    config = (examples.ROOT / "workloads" / "sshd_config").read_text()
    assert "HostKey /dlscale/keys/host\n" in config
    assert "AuthorizedKeysFile /dlscale/keys/authorized_keys\n" in config
    template = (examples.ROOT / "images" / "templates" / "horovod.Dockerfile.j2").read_text()
    assert "Include /dlscale/keys/ssh_config" in template
