"""A machine's snapshot, taken by the nodes' program and read again.

Prevents: a node's description that differs from this machine's own; a module that can't be sent as an argument; NVML answers that
change on the way; a node whose files are written outside of their folder.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from made_up_machine import Card, FakeNvml
from pydantic import ValidationError

from runner.cluster.hosts import connectivity_probe
from runner.cluster.hosts.survey import Snapshot, packed_pynvml
from runner.cluster.machine import snapshot
from runner.cluster.machine.local_node import inspect_local
from runner.cluster.machine.nvml import ask_nvml, read_gpus, read_health
from runner.cluster.machine.provenance import read_host

ROOT = Path(__file__).parents[3]


def take(*arguments):
    """The program's output, started as on a node: from its text, with nothing of the suite to import."""
    source = Path(snapshot.__file__).read_text(encoding="utf-8")
    argv = [sys.executable, "-I", "-S", "-c", source, *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd="/", timeout=60)
    return done.stdout


def test_a_snapshot_describes_this_machine_as_it_describes_itself(tmp_path):
    found = Snapshot.model_validate_json(take(64))
    found.write_to(tmp_path)
    node, here = found.node(socket.gethostname(), tmp_path, no_gpus="its engine hands out none"), inspect_local()
    assert (found.nvml, node.gpus) == (None, ())  # without the module that queries GPUs
    assert "its engine hands out none" in node.gpu_reason
    differ = {"ports", "gpu_reason", "gpus", "driver", "cuda_driver"}  # ports vary with time; no NVML was sent
    assert node.model_dump(exclude=differ) == here.model_dump(exclude=differ)
    facts, ours = read_host(node, tmp_path), read_host(here)
    moving = {"os", "cpu_current_mhz", "load_average_1min"}  # the first comes from the engine, the others change
    assert facts.model_dump(exclude=moving) == ours.model_dump(exclude=moving)
    assert (facts.load_average_1min is None) == (ours.load_average_1min is None)


def test_a_snapshots_addresses_and_ports_are_the_machines():
    found = Snapshot.model_validate_json(take(8))
    asked = {
        name: [entry.address for entry in entries if entry.family == socket.AF_INET]
        for name, entries in psutil.net_if_addrs().items()
    }
    assert found.addresses == {name: addresses[0] for name, addresses in asked.items() if addresses}
    assert set(found.local) >= {address for addresses in asked.values() for address in addresses}
    assert len(set(found.ports)) == 8
    with socket.create_server(("", found.ports[0])):
        pass
    assert set(found.affinity) == os.sched_getaffinity(0)


def test_the_nvml_module_travels_in_arguments():
    """Without a driver its answer is an error; any answer shows that it arrived intact."""
    packed = packed_pynvml()
    assert max(map(len, packed)) < 131_072
    found = Snapshot.model_validate_json(take(1, *packed))
    assert found.nvml is not None
    assert found.nvml.gpus or found.nvml.error


class FakePairs(FakeNvml):
    """Two GPUs on NVLink."""

    # ruff: noqa: N802

    def nvmlDeviceGetP2PStatus(self, first, second, index):
        assert index in (0, 2)
        return 0

    def nvmlDeviceGetTopologyCommonAncestor(self, first, second):
        return 50


EMPTY = {"folders": [], "files": {}, "affinity": [0], "addresses": {}, "local": [], "ports": [1], "nvml": None}


def test_nvmls_answers_survive_the_journey():
    cards = [
        Card("GPU-a", links=(1, 1, 0), pids=(7, 8), reasons=0x8),
        Card("GPU-b", name="Tesla P100-PCIE-16GB", capability=(6, 0), memory_bytes=17_071_734_784, reasons=-1),
    ]
    nvml = FakePairs(cards)
    answers = json.loads(json.dumps(snapshot.nvml_answers(nvml, pairs=True)))
    assert answers["pairs"] == [{"first": 0, "second": 1, "read": 0, "nvlink": 0, "ancestor": 50}]
    there, here = Snapshot.model_validate_json(json.dumps(EMPTY | {"nvml": answers})).nvml, ask_nvml(nvml)
    gpus, _ = read_gpus(here)
    assert read_gpus(there) == read_gpus(here)
    assert [gpu.nvlinks for gpu in gpus] == [2, 0]
    assert read_health(there, gpus) == read_health(here, gpus)


@pytest.mark.parametrize("path", ["/etc/passwd", "proc/meminfo", "/proc/../etc/passwd", "/", "/sysx/y", "../x"])
@pytest.mark.parametrize("place", ["files", "folders"])
def test_a_snapshot_may_name_only_files_of_proc_and_sys(path, place):
    with pytest.raises(ValidationError, match="is no file of /proc or /sys"):
        Snapshot.model_validate(EMPTY | {place: {path: "x"} if place == "files" else [path]})


def test_secondary_addresses_of_an_interface_are_found(monkeypatch):
    trie = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     +-- 10.79.0.0/24 2 0 2
        |-- 10.79.0.0
           /24 link UNICAST
        |-- 10.79.0.11
           /32 host LOCAL
        |-- 10.79.0.99
           /32 host LOCAL
        |-- 10.79.0.255
           /32 link BROADCAST
Local:
        |-- 127.0.0.1
           /32 host LOCAL
"""
    monkeypatch.setattr(snapshot, "read", lambda path: trie)
    assert snapshot.local_addresses() == ["10.79.0.11", "10.79.0.99", "127.0.0.1"]


def test_the_nodes_programs_import_nothing_of_the_suite():
    """They are sent as text to a machine that has only Python."""
    for module in (snapshot, connectivity_probe):
        lines = Path(module.__file__).read_text(encoding="utf-8").splitlines()
        imported = {line.split()[1].partition(".")[0] for line in lines if line.startswith(("import ", "from "))}
        assert "runner" not in imported
