"""Horovod on several nodes: exact command lines against golden files, and what ssh is told.

Prevents: ranks that meet on another interface than the job's, an sshd that listens to everybody, a node whose ranks run in the first
one's name, and a key in a plan that is kept.
"""

import examples
import pytest
from unit.plan.test_launch import GPU, cpu_nodes, gpu_nodes, infiniband, on_file, program, ranks, two

from runner.cluster.cluster import emulated_nodes
from runner.plan.launch import horovod, launch


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
def test_command_lines_are_those_on_file(name):
    held, lines = on_file(name, CASES[name], "nvidia", named=True)
    assert lines == held
    started = [(spec.role, spec.node, spec.processes) for spec in launch(CASES[name])]
    assert started == [("daemon", "n2", 0), ("worker", "n1", CASES[name].trial.processes)]


def test_ranks_on_another_node_have_all_that_those_on_the_first_have():
    there, here = launch(CASES["pytorch-horovod-8-gpus-2-nodes-infiniband"])
    assert (there.verbs, there.gpus, there.mounts, there.memory_mib) == (True, here.gpus, here.mounts, here.memory_mib)
    assert {**there.env, "DLSCALE_NODE": "", "NCCL_HOSTID": ""} == {**here.env, "DLSCALE_NODE": "", "NCCL_HOSTID": ""}
    assert there.env["DLSCALE_NODE"] == there.env["NCCL_HOSTID"] == "n2"


def test_an_sshd_listens_where_its_node_has_a_free_port_and_ssh_knows_where_that_is():
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


def test_open_mpis_daemons_find_their_own_interface_where_it_has_another_name():
    wires = [examples.wire(1, iface="eno1"), examples.wire(2, iface="ens2")]
    there, here = launch(examples.job_on_nodes(two(**by("mxnet", **MPI)), cpu_nodes(2), wires=wires))
    assert here.env["OMPI_MCA_oob_tcp_if_include"] == there.env["OMPI_MCA_oob_tcp_if_include"] == "eno1,ens2"
    assert (here.env["HOROVOD_GLOO_IFACE"], there.env["HOROVOD_GLOO_IFACE"]) == ("eno1", "ens2")
    assert "--network-interfaces=eno1" in here.argv
    assert "OMPI_MCA_plm" not in here.env


def test_whoever_runs_the_suite_ssh_has_a_user_with_a_name():
    job = on_two_nodes("mxnet")
    assert {spec.user for spec in launch(job)} == {"10001:10001"}
    assert {spec.user for spec in launch(examples.job_on_nodes(job.trial, cpu_nodes(2), user="1000:1000"))} == {
        "10001:10001"
    }


def test_on_emulated_nodes_launcher_and_sshd_live_in_the_containers_that_stand_for_them():
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
