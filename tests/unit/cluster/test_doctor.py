"""Judgements on a machine.

Prevents: an ordinary machine called broken (no GPU, no cpufreq); a broken one called fine (no engine, a GPU whose driver does not
answer, containers that get no GPU); a warning without its next step.
"""

from __future__ import annotations

import io
from pathlib import Path

import examples
import pytest
from rich.console import Console

from runner.cluster.doctor import Finding, ImageFit, diagnose
from runner.cluster.machine.local_node import Disk, Vitals
from runner.cluster.machine.nvml import GpuHealth
from runner.commands.doctor import findings_table
from runner.core.node import Hca, Nic
from runner.engines.base import EngineFacts

DOCKER = EngineFacts(name="docker", available=True, version="26.1.3", gpu_request="nvidia", root_dir="/var/lib/docker")
VENV = EngineFacts(name="venv", available=True, version="3.11.7")
NO_DOCKER = EngineFacts(name="docker", available=False, reason="no Docker engine answers (connection refused)")
SMALL = ImageFit(name="mxnet 1.9.1", size_mib=610, misfit=None)
OLD = ImageFit(name="mxnet 1.9.1-cu112", size_mib=4000, misfit="it has no code for compute capability 9.0")


def vitals(**changes) -> Vitals:
    calm = {
        "disks": (),
        "memlock_mib": None,
        "shm_mib": 8192,
        "governors": ("performance",),
        "throttled_cores": 0,
        "load_average_1min": 0.1,
        "nvidia_pci": (),
        "gpus": (),
    }
    return Vitals.model_validate(calm | changes)


def judge(node=None, state=None, engines=(DOCKER, VENV), images=(SMALL,)) -> dict[str, Finding]:
    found = diagnose(node=node or examples.node(), vitals=state or vitals(), engines=engines, images=images)
    by_subject = {}
    for finding in found:
        by_subject.setdefault(finding.subject, finding)
        if finding.level != "ok":
            by_subject[finding.subject] = finding
    return by_subject


def test_engines_that_are_programs_are_distinguished_and_never_a_fallback():
    programs = {"podman": "4.3.1", "apptainer": "1.4.5", "slurm": "22.05.8"}
    found = judge(engines=(NO_DOCKER, *(EngineFacts(name=n, available=True, version=v) for n, v in programs.items())))
    said = {name: found[f"engine {name}"].sentence for name in programs}
    assert all(said[name].startswith(f"version {version}") for name, version in programs.items())
    assert (
        len(
            {sentence.partition(version)[2] for sentence, version in zip(said.values(), programs.values(), strict=True)}
        )
        == 3
    )
    assert found["engine docker"].level == "bad"
    assert found["engine docker"].sentence.endswith("nothing can run")


def test_an_ordinary_machine_without_gpus_is_ok():
    found = judge()
    assert {finding.level for finding in found.values()} == {"ok"}
    assert found["GPUs"].sentence == "none: no NVIDIA GPU on the PCI bus"
    assert found["engine docker"].sentence == "answers, version 26.1.3"
    assert found["engine venv"].sentence == "can run jobs without containers, Python 3.11.7"
    assert found["image mxnet 1.9.1"].sentence == "can run here, 610 MiB"


@pytest.mark.parametrize(
    ("node", "level"), [(examples.node(), "ok"), (examples.gpu_node(2), "bad")], ids=["CPU", "GPUs"]
)
def test_podman_behind_dockers_socket_is_named(node, level):
    """Podman ignored requests for GPUs on a machine whose doctor had reported that it provides them."""
    found = judge(node=node, engines=(DOCKER.model_copy(update={"podman": "Podman 4.3.1"}), VENV))["engine docker"]
    assert found.level == level
    assert "Podman 4.3.1" in found.sentence
    assert (level == "bad") == ("DOCKER_HOST" in str(found.next_step))


HOST = EngineFacts(name="host", available=True, version="torch 2.11.0 of /opt/torch/bin/python3")
NO_VENV = EngineFacts(name="venv", available=False, reason="no Python from 3.10 to 3.12")


@pytest.mark.parametrize(
    ("engines", "subject", "level", "sentence"),
    [
        ((NO_DOCKER, VENV), "docker", "warn", f"{NO_DOCKER.reason}; until then runs use venv"),
        ((NO_DOCKER, HOST), "docker", "bad", f"{NO_DOCKER.reason}; nothing can run"),
        ((VENV, HOST), "host", "ok", f"can run {HOST.version} as it is, if requested"),
        ((NO_DOCKER, NO_VENV), "venv", "bad", "no Python from 3.10 to 3.12; nothing can run"),
    ],
)
def test_the_fallback_is_named_and_is_never_the_hosts_python(engines, subject, level, sentence):
    found = judge(engines=engines)[f"engine {subject}"]
    assert (found.level, found.sentence) == (level, sentence)
    assert bool(found.next_step) == (subject == "docker")


@pytest.mark.parametrize(
    ("request_kind", "level", "words"),
    [("nvidia", "ok", "NVIDIA's runtime"), ("cdi", "ok", "CDI device names"), (None, "bad", "containers get no GPU")],
)
def test_how_docker_provides_gpus(request_kind, level, words):
    found = judge(examples.gpu_node(1), engines=(DOCKER.model_copy(update={"gpu_request": request_kind}),))[
        "engine docker"
    ]
    assert found.level == level
    assert words in found.sentence


def test_a_gpu_without_a_driver_is_bad_and_a_hidden_one_is_ok():
    asleep = examples.node(
        gpu_reason="an NVIDIA GPU is on the PCI bus (0000:01:00.0) and its driver does not answer (Driver Not Loaded)"
    )
    on_the_bus = vitals(nvidia_pci=("0000:01:00.0",))
    assert judge(asleep, on_the_bus)["GPUs"].level == "bad"
    assert judge(asleep, on_the_bus)["GPUs"].next_step
    hidden = examples.node(
        gpu_reason="CUDA_VISIBLE_DEVICES='' hides every GPU (1 here)", driver="580.159.03", cuda_driver="13.0"
    )
    assert judge(hidden, on_the_bus)["GPUs"].level == "ok"


def test_throttled_or_busy_gpus_are_warnings():
    health = (
        GpuHealth(index=0, slowdowns=("power cap",), processes=()),
        GpuHealth(index=1, slowdowns=(), processes=(4711, 4712)),
        GpuHealth(index=2, slowdowns=(), processes=()),
    )
    found = judge(examples.gpu_node(3), vitals(gpus=health))
    assert (found["GPU 0"].level, found["GPU 1"].level, found["GPU 2"].level) == ("warn", "warn", "ok")
    assert "reduced by power cap" in found["GPU 0"].sentence
    assert "4711, 4712" in found["GPU 1"].sentence
    assert found["GPU 2"].sentence == "NVIDIA H200, 143,771 MiB, compute capability 9.0"
    assert found["driver"].sentence == "NVIDIA 580.159.03, CUDA up to 13.0"


@pytest.mark.parametrize(
    ("changes", "subject", "level"),
    [
        ({"governors": ("powersave",)}, "clocks", "warn"),
        ({"governors": ("performance", "powersave")}, "clocks", "warn"),
        ({"governors": ()}, "clocks", "ok"),
        ({"throttled_cores": 3}, "clocks", "warn"),
        ({"throttled_cores": None}, "clocks", "ok"),
        ({"load_average_1min": 1.1}, "load", "warn"),  # two cores: above 0.5 each
        ({"shm_mib": 64}, "shared memory", "warn"),
        ({"shm_mib": None}, "shared memory", "warn"),
        ({"shm_mib": 65}, "shared memory", "ok"),
        ({"memlock_mib": 8}, "locked memory", "ok"),
    ],
)
def test_conditions_that_would_spoil_a_measurement(changes, subject, level):
    assert judge(state=vitals(**changes))[subject].level == level


def test_findings_cover_only_existing_hardware_and_load():
    """An idle machine gets no finding about load, and an interface without hardware gets none at all."""
    nic = Nic(name="eth0", state="up", speed_mbit=25000, mtu=9000, kind="ethernet")
    bridge = nic.model_copy(update={"name": "docker0", "kind": "virtual"})
    found = judge(examples.node(nics=(nic, bridge)), vitals(load_average_1min=1.0), images=(OLD,))
    assert found["interface eth0"].sentence == "ethernet, up, 25,000 Mbit/s, MTU 9000"
    assert not {"load", "interface docker0"} & set(found)
    assert found["image mxnet 1.9.1-cu112"].sentence == "can't run here: it has no code for compute capability 9.0"
    assert judge(examples.node(memory_mib=2048))["memory"].level == "ok"


def test_rdma_needs_its_port_up_and_memory_to_lock():
    up = Hca(name="mlx5_0", port=1, state="ACTIVE", link_layer="InfiniBand", rate="200 Gb/sec (4X HDR)")
    down = up.model_copy(update={"port": 2, "state": "DOWN"})
    found = judge(examples.node(hcas=(up, down)), vitals(memlock_mib=8))
    assert found["locked memory"].level == "warn"
    assert found["adapter mlx5_0 port 1"].level == "ok"
    assert found["adapter mlx5_0 port 1"].sentence == "InfiniBand, ACTIVE, 200 Gb/sec (4X HDR)"
    assert found["adapter mlx5_0 port 2"].level == "warn"


@pytest.mark.parametrize(
    ("purpose", "free_mib", "level"),
    [
        ("images", 609, "warn"),
        ("images", 610, "ok"),
        ("cache", 609, "warn"),
        ("results", 511, "warn"),
        ("results", 512, "ok"),
    ],
)
def test_free_disk_is_compared_with_the_images_that_can_run(purpose, free_mib, level):
    """The 4,000 MiB image that can't run here is no reason to free disk space."""
    disks = (Disk(purpose=purpose, path=Path("/somewhere"), free_mib=free_mib),)
    assert judge(state=vitals(disks=disks), images=(SMALL, OLD))[f"disk for {purpose}"].level == level


def test_every_warning_has_a_next_step():
    sick = vitals(
        governors=("powersave",),
        throttled_cores=1,
        load_average_1min=9,
        shm_mib=1,
        memlock_mib=1,
        nvidia_pci=("0000:01:00.0",),
        disks=(Disk(purpose="results", path=Path("/"), free_mib=1),),
    )
    hca = Hca(name="mlx5_0", port=1, state="DOWN", link_layer="InfiniBand", rate="10 Gb/sec")
    found = diagnose(node=examples.node(memory_mib=1, hcas=(hca,)), vitals=sick, engines=(NO_DOCKER, VENV), images=())
    assert {finding.subject for finding in found if finding.level != "ok"} == {
        *("engine docker", "GPUs", "load", "clocks", "memory", "shared memory", "locked memory"),
        *("adapter mlx5_0 port 1", "disk for results"),
    }
    assert all(finding.next_step for finding in found if finding.level != "ok")
    assert not any(finding.next_step for finding in found if finding.level == "ok")


def test_the_table_is_readable_without_colour():
    found = (
        Finding(level="ok", subject="CPU", sentence="fast"),
        Finding(level="bad", subject="GPUs", sentence="none [at all]", next_step="buy one"),
    )
    console = Console(width=60, file=io.StringIO())
    console.print(findings_table(found))
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert lines == ["ok   CPU   fast", "bad  GPUs  none [at all]", "           → buy one"]
