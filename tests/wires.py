"""Events of ranks on several nodes about their networks, for tests: nodes n1, n2, ... with eth0 and eth1, and the bytes that each sent."""

import examples
from program_events import program_event

from runner.core.events import Nccl, Net, RunStart, Window
from runner.core.trial import Placed, Trial
from runner.core.wire import Wire

# Iterations measured by the example trial.
ITERATIONS = 40
DDP = {"framework": "pytorch", "strategy": "ddp"}
ON_GPU = {"device": "gpu", "cpus_per_worker": None}


def wire(number, **changes):
    return Wire.model_validate({"kind": "ethernet", "iface": "eth0", "address": f"10.77.0.1{number}"} | changes)


def on_nodes(nodes=2, *, ranks=None, wires=None, **changes):
    """A trial with equally many ranks on each node: one by default."""
    ranks = ranks or nodes
    wires = wires or [wire(number) for number in range(1, nodes + 1)]
    values = {
        "world_size": ranks,
        "processes": ranks,
        "nodes": nodes,
        "global_batch": 32 * ranks,
        "placement": tuple(
            Placed(node=f"n{number}", devices=ranks // nodes, wire=own) for number, own in enumerate(wires, start=1)
        ),
    }
    return examples.trial(**(values | changes))


def start(gradient_bytes=1_000_000, parameters=250_000, **changes):
    """Rank 0's event about its model: by default a megabyte of gradients."""
    usual = {"world_size": 2, "batch_per_device": 32, "global_batch": 64}
    model = {"image_shape": (3, 32, 32), "num_classes": 10, "parameters": parameters, "gradient_bytes": gradient_bytes}
    return program_event(RunStart, **(usual | model | {"iterations": ITERATIONS, "warmup": 4, "seed": 1} | changes))


def counted(tx, rx=None):
    return {"rx_bytes": tx if rx is None else rx, "tx_bytes": tx}


def net(where, tx, *, rank=0, node=None, **fields):
    """Counters as read by one rank; `tx` by interface."""
    interfaces = {name: counted(count) for name, count in tx.items()}
    return program_event(Net, rank=rank, where=where, interfaces=interfaces, node=node, **fields)


def sent(node, tx, *, rank=0, before=10**9, ports=None, layer="InfiniBand", peers=None):
    """A node's counters before and after the measured windows: `tx` bytes were sent in between, by interface and by port."""

    def at(added):
        return {name: {**counted(before + added * count), "link_layer": layer} for name, count in (ports or {}).items()}

    return [
        net("start", dict.fromkeys(tx, before), rank=rank, node=node, ports=at(0)),
        net("stop", {k: before + v for k, v in tx.items()}, rank=rank, node=node, ports=at(1), peers=peers),
    ]


def counts(*, nvlink=(), lo=0, ports=None, layer="InfiniBand", before=10**9, **said):
    """Rank 0's events on the only node: its model, and counters before and after the measured windows.

    `nvlink` has (received, sent) of GPU-0, GPU-1, ...; `lo` and `ports` the bytes sent.
    """

    def at(added):
        return {
            "nvlink": {
                f"GPU-{number}": {"rx_bytes": before + added * rx, "tx_bytes": before + added * tx}
                for number, (rx, tx) in enumerate(nvlink)
            },
            "ports": {k: {**counted(before + added * v), "link_layer": layer} for k, v in (ports or {}).items()},
        }

    return [
        start(**said),
        net("start", {"lo": before}, **at(0)),
        net("stop", {"lo": before + lo}, **at(1)),
    ]


def window(rank, *, iterations):
    """All measured iterations of a rank in one window."""
    values = {"index": 0, "start": 0.0, "iterations": iterations, "samples": 32 * iterations, "seconds": 1.0}
    return program_event(Window, rank=rank, **values)


def nccl(*lines, rank=0):
    return program_event(Nccl, rank=rank, lines=lines)


def gpu_trial(nodes=2, **changes) -> Trial:
    return on_nodes(nodes, **{**DDP, **ON_GPU, **changes})
