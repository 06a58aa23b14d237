"""The provenance of a figure.

Prevents: a field that differs from what the machine reports through another tool; a guess if the machine reports nothing; a commit of the
wrong checkout, or a modified one called clean; a training program that changes without its hash; instructions that a processor
lacks.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_machine import FakeNvml, write_tree

import runner
from runner.cluster.machine.local_node import inspect_local
from runner.cluster.machine.provenance import collect, programs_sha256, read_host, read_processor, tree_sha256
from runner.core.events import Env
from runner.core.node import Processor
from runner.core.provenance import Git, Provenance
from runner.engines.process import read_git


def tool(*argv: str, cwd: Path | None = None) -> str:
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    return subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    # Neither the user's own settings (signing, hooks) nor the variables of a surrounding repository may affect this one.
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    path = tmp_path / "suite"
    write_tree(path, {"runner.py": "print()", ".gitignore": "ignored/"})
    tool("git", "init", "-q", "-b", "trunk", cwd=path)
    tool("git", "add", ".", cwd=path)
    tool("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first", cwd=path)
    return path


def test_git_reports_commit_and_branch_or_nothing(checkout, tmp_path, monkeypatch):
    commit = tool("git", "rev-parse", "HEAD", cwd=checkout)
    assert read_git(checkout) == Git(commit=commit, dirty=False, branch="trunk")
    tool("git", "checkout", "-q", "--detach", cwd=checkout)
    assert read_git(checkout).branch is None
    nothing = Git(commit=None, dirty=None, branch=None)
    assert read_git(tmp_path) == nothing
    monkeypatch.setenv("PATH", "")  # no git
    assert read_git(checkout) == nothing


@pytest.mark.parametrize(
    ("file", "dirty"), [("runner.py", True), ("new.py", True), ("ignored/a", False), ("results/record.json", False)]
)
def test_git_is_dirty_by_changed_and_new_files_but_not_by_ignored_ones_or_records(checkout, file, dirty):
    """git does not ignore a vouched-for results directory, so a run's record made the next run's commit look modified."""
    write_tree(checkout, {file: "changed"})
    assert read_git(checkout).dirty is dirty


def test_host_against_the_python_library_and_psutil():
    host = read_host(inspect_local())
    assert host.hostname == socket.gethostname() == platform.node()
    assert host.kernel == os.uname().release
    assert host.architecture == os.uname().machine
    assert host.memory_mib == psutil.virtual_memory().total // 2**20
    assert host.threads == psutil.cpu_count(logical=True)
    assert host.usable_threads <= len(os.sched_getaffinity(0))
    assert host.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    frequency = psutil.cpu_freq()
    if frequency is not None and frequency.max:
        assert host.cpu_max_mhz == pytest.approx(frequency.max, rel=0.01)


def test_host_against_lscpu():
    host = read_host(inspect_local())
    lines = [
        line.split(",") for line in tool("lscpu", "-p=CPU,CORE,SOCKET,NODE").splitlines() if not line.startswith("#")
    ]
    assert host.threads == len(lines)
    assert host.cores == len({(core, socket) for _, core, socket, _ in lines})
    assert host.sockets == len({socket for _, _, socket, _ in lines})
    assert host.numa_nodes == len({node for *_, node in lines})
    assert (host.virtualization not in ("none", None)) is ("Hypervisor vendor" in tool("lscpu"))
    assert host.os == tool("sh", "-c", ". /etc/os-release; echo $PRETTY_NAME")
    model = tool("sh", "-c", "grep -m1 'model name' /proc/cpuinfo || true")
    assert (host.cpu_model or "") == model.partition(": ")[2]


SERVER = {
    "proc/cpuinfo": "model name\t: Xeon\nflags\t\t: fpu vme\ncpu MHz\t\t: 1000.0",
    "proc/meminfo": "MemTotal:       1048576 kB",
    "proc/loadavg": "0.25 0.5 0.75 1/100 4711",
    "proc/sys/kernel/random/boot_id": "6a1f",
    "etc/os-release": 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"',
    "sys/class/dmi/id/product_name": "PowerEdge C4140",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet",
    "sys/devices/system/cpu/online": "0-3",
    "sys/devices/system/node/node0/cpulist": "0,2",
    "sys/devices/system/node/node1/cpulist": "1,3",
} | {
    f"sys/devices/system/cpu/cpu{cpu}/{name}": value
    for cpu, siblings, package, current_khz in (
        (0, "0,2", 0, 1_000_000),
        (1, "1,3", 1, 2_000_000),
        (2, "0,2", 0, 3_000_000),
        (3, "1,3", 1, 4_000_000),
    )
    for name, value in {
        "topology/thread_siblings_list": siblings,
        "topology/physical_package_id": str(package),
        "cpufreq/scaling_governor": "performance" if cpu else "powersave",
        "cpufreq/scaling_cur_freq": str(current_khz),
        "cpufreq/cpuinfo_max_freq": "4100000",
    }.items()
}


def test_host_of_a_server_with_two_sockets_and_hyperthreads(tmp_path):
    write_tree(tmp_path, SERVER)
    host = read_host(inspect_local(sys_root=tmp_path, nvml=FakeNvml([]), affinity=[0, 1, 2]), tmp_path)
    assert (host.sockets, host.cores, host.threads, host.usable_threads, host.numa_nodes) == (2, 2, 4, 3, 2)
    assert host.governors == ("performance", "powersave")
    assert (host.cpu_current_mhz, host.cpu_max_mhz) == (2500.0, 4100.0)  # (1 + 2 + 3 + 4) GHz / 4
    assert (host.product, host.virtualization, host.clocksource) == ("PowerEdge C4140", "none", "hpet")
    assert (host.os, host.boot_id, host.load_average_1min) == ("Debian GNU/Linux 12 (bookworm)", "6a1f", 0.25)


def test_host_of_a_guest_names_its_hypervisor(tmp_path):
    write_tree(tmp_path, SERVER | {"proc/cpuinfo": "flags\t\t: fpu hypervisor", "sys/class/dmi/id/sys_vendor": "QEMU"})
    host = read_host(inspect_local(sys_root=tmp_path, nvml=FakeNvml([])), tmp_path)
    assert host.virtualization == "hypervisor (QEMU)"


def test_unknown_facts_are_not_guessed(tmp_path):
    host = read_host(inspect_local(sys_root=tmp_path, nvml=FakeNvml([]), affinity=[0]), tmp_path)
    known = {"hostname", "kernel", "architecture", "usable_threads"}
    assert {name for name, value in host.model_dump().items() if value is not None} == known


def test_collect_contains_its_arguments_and_the_machines_facts(checkout):
    write_tree(checkout, {"workloads/train.py": "pass"})
    node = inspect_local()
    before = datetime.now(timezone.utc)
    found = collect(node=node, command=("dlscale", "bench"), suite_root=checkout)
    assert before <= found.recorded_at <= datetime.now(timezone.utc)
    assert found.git.commit == tool("git", "rev-parse", "HEAD", cwd=checkout)
    assert found.command == ("dlscale", "bench")
    assert (found.suite_version, found.suite_python) == (runner.__version__, platform.python_version())
    assert (found.gpus, found.driver, found.cuda_driver) == (node.gpus, node.driver, node.cuda_driver)
    assert found.workloads_sha256 == tree_sha256(checkout / "workloads")
    assert (found.framework, found.framework_version, found.python, found.cuda, found.cudnn, found.nccl) == (None,) * 6
    assert Provenance.model_validate_json(found.model_dump_json()) == found


def test_the_training_programs_facts_are_added(checkout):
    env = Env(
        event="env",
        rank=0,
        t=0.0,
        received=0.0,
        container="w0",
        python="3.11.2",
        framework="pytorch",
        framework_version="2.6.0",
        device="gpu",
        device_names=("NVIDIA H200",),
        threads=2,
        cpus=(0, 1),
        cuda="12.4",
        cudnn="9.1.0",
        nccl="2.21.5",
    )
    found = collect(node=inspect_local(), command=("dlscale",), suite_root=checkout)
    added = found.with_environment(env)
    assert (added.python, added.framework, added.framework_version) == ("3.11.2", "pytorch", "2.6.0")
    assert (added.cuda, added.cudnn, added.nccl) == ("12.4", "9.1.0", "2.21.5")
    assert added.host == found.host
    assert found.framework is None


def test_tree_hash_equals_one_computed_by_hand(tmp_path):
    """Two files: 3:a/b:2:x\\n then 1:c:2:y\\n, in the order of their names."""
    write_tree(tmp_path, {"c": "y", "a/b": "x"})
    expected = tool("sh", "-c", r"printf '3:a/b:2:x\n1:c:2:y\n' | sha256sum").split()[0]
    assert tree_sha256(tmp_path) == expected


def test_tree_hash_ignores_compiled_files_and_times(tmp_path):
    write_tree(tmp_path, {"train.py": "pass"})
    before = tree_sha256(tmp_path)
    write_tree(tmp_path, {"__pycache__/train.cpython-311.pyc": "junk"})
    os.utime(tmp_path / "train.py", (1, 1))
    assert tree_sha256(tmp_path) == before


def test_studies_are_not_part_of_the_programs_hash(tmp_path):
    (tmp_path / "train.py").write_text("train()\n")
    before = programs_sha256(tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "dell-p100.yaml").write_text("id: dell-p100\n")
    assert programs_sha256(tmp_path) == before == tree_sha256(tmp_path, without="studies")
    (tmp_path / "cnn" / "studies").mkdir(parents=True)
    (tmp_path / "cnn" / "studies" / "net.py").write_text("net()\n")
    assert programs_sha256(tmp_path) != before


@given(
    trees=st.lists(
        st.dictionaries(st.text("ab:1", min_size=1, max_size=4), st.text("ab:1", max_size=4), min_size=1, max_size=3),
        min_size=2,
        max_size=2,
        unique_by=lambda tree: tuple(sorted(tree.items())),
    )
)
def test_different_trees_have_different_hashes(trees, tmp_path_factory):
    """Without lengths in the hash, the files {a: b:} and {a:b: } would hash alike."""
    first, second = (tree_sha256(write_tree(tmp_path_factory.mktemp("tree"), tree)) for tree in trees)
    assert first != second


# Two cores with two threads each, numbered as on servers: all first threads, then all second ones.
CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480+
stepping\t: 8
flags\t\t: fpu sse sse2 avx fma avx2 avx512f avx512_bf16 amx_bf16 amx_tile

processor\t: 1
vendor_id\t: GenuineIntel
cpu family\t: 5
model\t\t: 1
flags\t\t: fpu"""
TREE = {"proc/cpuinfo": CPUINFO, "sys/devices/system/cpu/online": "0-3"} | {
    f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"{cpu % 2},{cpu % 2 + 2}" for cpu in range(4)
}


def test_the_first_processor_is_read_with_its_vector_instructions(tmp_path):
    assert read_processor(write_tree(tmp_path, TREE)) == Processor(
        vendor="GenuineIntel",
        family=6,
        model=143,
        flags=("sse2", "avx", "fma", "avx2", "avx512f", "avx512_bf16", "amx_bf16"),
        core_threads=("0,2", "1,3"),
    )
    assert read_processor(write_tree(tmp_path / "no topology", {"proc/cpuinfo": CPUINFO})).core_threads == ()


@pytest.mark.parametrize("cpuinfo", ["", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40"])
def test_a_processor_without_vendor_and_family_is_not_guessed(tmp_path, cpuinfo):
    assert read_processor(write_tree(tmp_path, {"proc/cpuinfo": cpuinfo})) is None


def test_this_machines_processor_against_lscpu():
    told = {
        key.strip(): value.strip()
        for key, _, value in (line.partition(":") for line in tool("env", "LC_ALL=C", "lscpu").splitlines())
    }
    found = read_processor()
    if "CPU family" not in told:
        pytest.skip("lscpu names no family here")
    assert (found.vendor, found.family, found.model) == (told["Vendor ID"], int(told["CPU family"]), int(told["Model"]))
