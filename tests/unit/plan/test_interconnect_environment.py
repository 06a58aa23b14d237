"""Prevents a library that is not bound to the chosen wire and uses another: tests all variables, by library and kind of wire."""

import examples
import pytest
from wires import DDP, ON_GPU, gpu_trial, on_nodes, wire

from runner.core.transport import carrier
from runner.plan import interconnect_environment

ETHERNET = wire(1)
INFINIBAND = wire(1, kind="infiniband", iface="ib0", hcas=("mlx5_0:1", "mlx5_1:1"))
IPOIB = wire(1, kind="infiniband", iface="ib0")
ROCE = wire(1, kind="roce", iface="eth2", hcas=("mlx5_2:1",))
NCCL = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH", "NCCL_DEBUG_FILE": "/tmp/nccl.%h.%p.log"}
ON_LO = {**NCCL, "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
NO_P2P = {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
TWO = {"world_size": 2, "processes": 2, "global_batch": 64}
STORE = {"strategy": "kvstore", "kvstore": "dist_sync"}


def horovod(**changes):
    return {"strategy": "horovod", "horovod": examples.horovod(**changes)}


MPI = horovod(controller="mpi", operations="mpi")
GLOO = horovod()
SHARED_MEMORY = {"OMPI_MCA_btl": "self,vader", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        (examples.trial(), {}),
        (examples.trial(**ON_GPU), {}),
        (examples.trial(**TWO, **DDP), {"GLOO_SOCKET_IFNAME": "lo"}),
        (examples.trial(**TWO, **DDP, **ON_GPU), ON_LO),
        (examples.trial(**TWO, **DDP, **ON_GPU, interconnect="shm"), {**ON_LO, **NO_P2P}),
        (
            examples.trial(**TWO, **DDP, **ON_GPU, interconnect="loopback"),
            {**ON_LO, **NO_P2P, "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1"},
        ),
        (examples.trial(**TWO, **DDP, **ON_GPU, interconnect="nvlink"), {**ON_LO, "NCCL_P2P_LEVEL": "NVL"}),
        (examples.trial(**TWO, **STORE), {"DMLC_INTERFACE": "lo"}),
        (examples.trial(strategy="kvstore", kvstore="device", world_size=2), {}),
        (examples.trial(strategy="multiworker", **TWO), {}),
        (examples.trial(strategy="mirrored", world_size=2), {}),
        (examples.trial(**TWO, **GLOO), {"HOROVOD_GLOO_IFACE": "lo", "HOROVOD_CPU_OPERATIONS": "gloo"}),
        (
            examples.trial(**TWO, **MPI),
            {
                "HOROVOD_GLOO_IFACE": "lo",
                "HOROVOD_CPU_OPERATIONS": "mpi",
                "OMPI_MCA_oob_tcp_if_include": "lo",
                **SHARED_MEMORY,
            },
        ),
        (examples.trial(**TWO, **ON_GPU, **horovod(operations="nccl")), {**ON_LO, "HOROVOD_GLOO_IFACE": "lo"}),
    ],
)
def test_on_one_node_everything_stays_on_the_loopback(trial, expected):
    assert interconnect_environment.environment(trial, None) == expected


@pytest.mark.parametrize(
    ("wire_chosen", "expected"),
    [
        (ETHERNET, {"NCCL_SOCKET_IFNAME": "=eth0", "NCCL_IB_DISABLE": "1", "NCCL_IBEXT_DISABLE": "1"}),
        (INFINIBAND, {"NCCL_SOCKET_IFNAME": "=ib0", "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"}),
        (ROCE, {"NCCL_SOCKET_IFNAME": "=eth2", "NCCL_IB_HCA": "=mlx5_2:1"}),
    ],
)
def test_nccl_between_nodes_is_bound_to_the_interface_and_its_adapters(wire_chosen, expected):
    """NCCL_NET is never set, because the variable would then replace evidence."""
    found = interconnect_environment.environment(gpu_trial(), wire_chosen, node="n1")
    assert found == {**NCCL, **expected, "GLOO_SOCKET_IFNAME": wire_chosen.iface, "NCCL_HOSTID": "n1"}


@pytest.mark.parametrize("wire_chosen", [ETHERNET, IPOIB])
def test_libraries_that_use_ip_are_bound_to_the_interface(wire_chosen):
    iface = wire_chosen.iface
    for settings, expected in (
        (DDP, {"GLOO_SOCKET_IFNAME": iface}),
        (STORE, {"DMLC_INTERFACE": iface}),
        (GLOO, {"HOROVOD_GLOO_IFACE": iface, "HOROVOD_CPU_OPERATIONS": "gloo"}),
        ({"strategy": "multiworker"}, {"no_grpc_proxy": "10.77.0.11,10.77.0.12"}),
    ):
        assert interconnect_environment.environment(on_nodes(2, **settings), wire_chosen, node="n1") == expected


def test_mpi_between_nodes_is_limited_to_tcp_on_the_interface():
    """By default, Open MPI uses UCX, which uses any interface."""
    assert interconnect_environment.environment(on_nodes(2, **MPI), ETHERNET, node="n1") == {
        "HOROVOD_GLOO_IFACE": "eth0",
        "HOROVOD_CPU_OPERATIONS": "mpi",
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,vader,tcp",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
        "OMPI_MCA_btl_tcp_if_include": "eth0",
        "OMPI_MCA_oob_tcp_if_include": "eth0",
    }


def test_mpi_over_verbs_uses_ucx():
    found = interconnect_environment.environment(on_nodes(2, **MPI), INFINIBAND, node="n1")
    assert (found["OMPI_MCA_pml"], found["OMPI_MCA_btl"]) == ("ucx", "self")
    assert (found["UCX_NET_DEVICES"], found["UCX_TLS"]) == ("mlx5_0:1,mlx5_1:1", "ib,mm,self")
    assert found["OMPI_MCA_oob_tcp_if_include"] == "ib0"


def test_mpi_as_controller_of_nccl_stays_on_tcp():
    found = interconnect_environment.environment(
        on_nodes(2, **ON_GPU, **horovod(controller="mpi", operations="nccl")), INFINIBAND, node="n1"
    )
    assert found["OMPI_MCA_pml"] == "ob1"
    assert found["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:1"
    assert "HOROVOD_CPU_OPERATIONS" not in found


@pytest.mark.parametrize(
    ("settings", "carries"),
    [
        ({"strategy": "kvstore", "kvstore": "dist_sync_device"}, "ps-lite"),
        ({"strategy": "kvstore", "kvstore": "nccl", "processes": 1, **ON_GPU}, "nccl"),
        ({"strategy": "kvstore", "kvstore": "device", "processes": 1, **ON_GPU}, "memory"),
        ({"strategy": "multiworker"}, "grpc"),
        ({"strategy": "multiworker", **ON_GPU}, "nccl"),
        ({"strategy": "mirrored", "processes": 1}, "memory"),
        ({"strategy": "mirrored", "processes": 1, **ON_GPU}, "nccl"),
        ({"strategy": "caffe", "processes": 1, **ON_GPU}, "nccl"),
        (MPI, "mpi"),
        (GLOO, "gloo"),
        ({"strategy": "single", "world_size": 1, "processes": 1}, "none"),
    ],
)
def test_the_library_that_carries_the_gradients_is_known(settings, carries):
    assert carrier(examples.trial(**{**TWO, **settings})) == carries
