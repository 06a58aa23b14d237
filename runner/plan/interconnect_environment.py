"""Trial → environment: the variables that bind each library that carries gradients to the chosen wire. Pure.

All variables that the suite sets for wires are in this file, except the list of all nodes' interfaces for mpirun (launch/horovod.py).
Rendezvous (addresses, ports, roles) is up to the launchers. On one host there is no wire: sockets are bound to the loopback.

Sources, by library:
NCCL        its user guide, "Environment Variables"; NCCL_HOSTID is `getHostHash` in its src/misc/utils.cc; NCCL_IBEXT_DISABLE belongs
            to the plugin in NVIDIA's containers, which ignores NCCL_IB_DISABLE (github.com/NVIDIA/nccl/issues/676)
Gloo        pytorch.org/docs/stable/distributed.html, "Choosing the network interface to use"
Horovod     `horovodrun --network-interfaces` sets HOROVOD_GLOO_IFACE (horovod/runner/gloo_run.py)
ps-lite     mxnet.apache.org/versions/1.9.1/api/faq/distributed_training
gRPC        github.com/grpc/grpc, doc/environment_variables.md
Open MPI    open-mpi.org/faq/?category=tcp, ?category=sm; docs.open-mpi.org, "InfiniBand / RoCE support"
UCX         openucx.readthedocs.io and `ucx_info -c -f`: UCX_NET_DEVICES, UCX_TLS
"""

from __future__ import annotations

from typing import Final

from runner.core.strategies import STRATEGIES
from runner.core.transport import carrier
from runner.core.trial import Horovod, Trial
from runner.core.wire import Wire

# NCCL does not count reductions in the NVLink switches as peer-to-peer: NCCL_P2P_DISABLE alone leaves them on.
_NO_NVLS: Final = {"NCCL_NVLS_ENABLE": "0"}


def environment(trial: Trial, wire: Wire | None, *, node: str | None = None) -> dict[str, str]:
    """Return the variables for the libraries that carry a trial's gradients.

    Args:
        trial: the trial.
        wire: how the other nodes reach this one; None if there is only one.
        node: the runner's name for this node; None if there is only one.
    """
    iface = wire.iface if wire else "lo"
    found: dict[str, str] = {}
    # MPI is used only by Horovod, and gRPC is bound by the addresses in TF_CONFIG or DLSCALE_SERVERS.
    match carrier(trial):
        case "nccl":
            found = _nccl(trial, wire, node)
        case "gloo" if not trial.horovod:
            found = {"GLOO_SOCKET_IFNAME": iface}
        case "ps-lite":
            found = {"DMLC_INTERFACE": iface}
        case _:
            pass
    if trial.horovod and trial.world_size > 1:
        found |= _horovod(trial.horovod, wire, iface)
    if wire and STRATEGIES[trial.strategy].between_cpus == "grpc":
        # The engine's client may set a proxy in every container, which would receive the workers' traffic.
        found["no_grpc_proxy"] = ",".join(placed.wire.address for placed in trial.placement if placed.wire)
    return found


def _nccl(trial: Trial, wire: Wire | None, node: str | None) -> dict[str, str]:
    """NCCL's variables. NCCL_NET stays unset: NCCL chooses, and the record takes the choice from evidence, not from a variable.

    NCCL_IB_GID_INDEX stays unset too: since 2.21 NCCL finds the RoCE v2 entry itself, and an index has a different meaning on each host.
    """
    found = {
        # NCCL writes one log per process, which the program reports; standard output stays clean.
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH",
        "NCCL_DEBUG_FILE": "/tmp/nccl.%h.%p.log",  # noqa: S108 - the one writable place of a read-only container
        # "=" makes the match exact; eth1 alone would match eth10 too.
        "NCCL_SOCKET_IFNAME": f"={wire.iface}" if wire else "lo",
        "GLOO_SOCKET_IFNAME": wire.iface if wire else "lo",
    }
    if node:
        # Otherwise, two emulated nodes on one machine would reach each other's GPUs directly and bypass the wire.
        found["NCCL_HOSTID"] = node
    if wire and wire.hcas:
        found["NCCL_IB_HCA"] = "=" + ",".join(wire.hcas)
    elif wire:
        found |= {"NCCL_IB_DISABLE": "1", "NCCL_IBEXT_DISABLE": "1"}
    match trial.interconnect:
        case "shm":
            found |= {"NCCL_P2P_DISABLE": "1", **_NO_NVLS}
        case "loopback":
            found |= {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1", **_NO_NVLS}
        case "nvlink":
            found["NCCL_P2P_LEVEL"] = "NVL"
        case _:
            pass
    return found


def _horovod(horovod: Horovod, wire: Wire | None, iface: str) -> dict[str, str]:
    """Horovod's variables: its controller's interface, the library that carries tensors in host memory, and Open MPI's if MPI is the controller."""
    found = {"HOROVOD_GLOO_IFACE": iface}
    if horovod.operations != "nccl":
        found["HOROVOD_CPU_OPERATIONS"] = horovod.operations
    if horovod.controller != "mpi":
        return found
    if wire and wire.hcas and horovod.operations == "mpi":
        # Open MPI over UCX, which Debian's build includes: verbs between nodes, mapped memory within one.
        return found | {
            "OMPI_MCA_pml": "ucx",
            "OMPI_MCA_btl": "self",
            "OMPI_MCA_oob_tcp_if_include": iface,
            "UCX_NET_DEVICES": ",".join(wire.hcas),
            "UCX_TLS": "ib,mm,self",
        }
    # TCP between nodes and shared memory within one, without direct reads of other processes' memory, which Docker's seccomp filter
    # forbids.
    found |= {
        "OMPI_MCA_btl": "self,vader",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
        "OMPI_MCA_oob_tcp_if_include": iface,
    }
    if wire:
        found |= {
            # By default, Open MPI uses UCX, which chooses interfaces itself (github.com/open-mpi/ompi/issues/8489).
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_btl": "self,vader,tcp",
            "OMPI_MCA_btl_tcp_if_include": iface,
        }
    return found
