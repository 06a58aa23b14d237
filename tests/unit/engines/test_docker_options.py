"""Prevents: a dry run that prints something other than what runs, and a job with more rights than it needs."""

from itertools import pairwise

import examples
import pytest
from docker import APIClient

from runner.core.container_spec import Mount
from runner.engines import docker, docker_options
from runner.plan.launch import launch

SINGLE = launch(examples.job(examples.trial()))[0]
GPU = launch(examples.job(examples.trial(device="gpu", cpus_per_worker=None), node=examples.gpu_node(2)))[0]


def test_a_job_has_no_capabilities_and_a_read_only_root():
    host = docker_options.create_options(SINGLE, None)["host"]
    assert host["cap_drop"] == ["ALL"]
    assert host["security_opt"] == ["no-new-privileges"]
    assert host["read_only"] is True
    assert host["network_mode"] == "none"
    assert all(mount["ReadOnly"] for mount in host["mounts"])
    assert not any("docker.sock" in mount["Source"] for mount in host["mounts"])
    assert "privileged" not in host
    assert docker_options.create_options(SINGLE, None)["user"] == "10001:10001"


@pytest.mark.parametrize("gpu_request", ["nvidia", "cdi"])
def test_the_printed_command_line_creates_the_same_container(gpu_request):
    """Rights, limits and mounts come from one table; the other options do not."""
    options = docker_options.create_options(GPU, gpu_request)
    argv = docker_options.docker_run(GPU, gpu_request)
    named = {flag: argv[argv.index(f"--{flag}") + 1] for flag in ("name", "user", "entrypoint")}
    assert named == {"name": options["name"], "user": options["user"], "entrypoint": options["entrypoint"][0]}
    assert {argv[i + 1] for i, word in enumerate(argv) if word == "--env"} == {
        f"{k}={v}" for k, v in options["environment"].items()
    }
    assert list(argv[argv.index(options["image"]) + 1 :]) == options["command"]
    types = APIClient(version="1.41").create_host_config(**options["host"])  # as the SDK sends it
    (mount,), (request,) = types["Mounts"], types["DeviceRequests"]
    assert argv[argv.index("--mount") + 1] == f"type=bind,source={mount['Source']},target={mount['Target']},readonly"
    assert mount["ReadOnly"] is True
    word = {"nvidia": ("--gpus", '"device=0"'), "cdi": ("--device", "nvidia.com/gpu=0")}[gpu_request]
    assert word in pairwise(argv)
    asked = {"nvidia": ("nvidia", ["0"], [["gpu"]]), "cdi": ("cdi", ["nvidia.com/gpu=0"], [])}[gpu_request]
    assert (request["Driver"], request["DeviceIDs"], request["Capabilities"]) == asked
    assert (types["Memory"], types["CpusetCpus"], types["PidsLimit"], types["ShmSize"]) == (
        int(argv[argv.index("--memory") + 1].removesuffix("m")) * 2**20,
        argv[argv.index("--cpuset-cpus") + 1],
        int(argv[argv.index("--pids-limit") + 1]),
        int(argv[argv.index("--shm-size") + 1].removesuffix("m")) * 2**20,
    )


@pytest.mark.parametrize(
    ("right", "sdk", "words"),
    [
        (
            {"verbs": True, "network": "host", "hostname": "n1"},
            {"devices": ["/dev/infiniband:/dev/infiniband:rwm"], "cap_add": ["IPC_LOCK"]},
            "--hostname n1 --device /dev/infiniband --cap-add IPC_LOCK --ulimit memlock=-1:-1",
        ),
        ({"host_pids": True}, {"pid_mode": "host"}, "--pid host"),
        ({"net_admin": True, "verbs": True}, {"cap_add": ["IPC_LOCK", "NET_ADMIN"]}, "--cap-add NET_ADMIN"),
    ],
    ids=["RDMA", "a sampler", "tc"],
)
def test_a_right_is_granted_only_to_a_container_that_needs_it(right, sdk, words):
    spec = SINGLE.model_copy(update=right)
    host = docker_options.create_options(spec, None)["host"]
    assert {key: host[key] for key in sdk} == sdk
    assert words in " ".join(docker_options.docker_run(spec, None))
    assert [(limit["name"], limit["hard"]) for limit in host["ulimits"]] == [
        ("core", 0),
        *([("memlock", -1)] if spec.verbs else []),
    ]
    assert not set(sdk) & set(docker_options.create_options(SINGLE, None)["host"])


def test_a_mount_source_that_is_no_path_is_a_named_volume():
    mounts = (Mount(source="dlscale-x", target="/a"), Mount(source="/x", target="/b"))
    host = docker_options.create_options(SINGLE.model_copy(update={"mounts": mounts}), None)["host"]
    assert [mount["Type"] for mount in host["mounts"]] == ["volume", "bind"]


@pytest.mark.parametrize(
    ("info", "here", "elsewhere"),
    [
        ({}, (), ()),
        ({"Runtimes": None, "CDISpecDirs": None}, (), ()),
        ({"Runtimes": {"runc": {}}}, (), ()),
        ({"Runtimes": {"nvidia": {}, "runc": {}}}, ("nvidia",), ("nvidia",)),
        ({"CDISpecDirs": ["SPECS"]}, ("cdi",), ("cdi",)),  # version 26 knows names, but lists none
        ({"CDISpecDirs": ["/nowhere"]}, (), ("cdi",)),
        ({"CDISpecDirs": ["SPECS"], "DiscoveredDevices": [{"ID": "nvidia.com/gpu=0"}]}, ("cdi",), ("cdi",)),
        ({"CDISpecDirs": ["SPECS"], "DiscoveredDevices": [{"ID": "vendor.com/nic=0"}]}, (), ()),
        ({"Runtimes": {"nvidia": {}}, "CDISpecDirs": ["SPECS"]}, ("nvidia", "cdi"), ("nvidia", "cdi")),
    ],
)
def test_gpu_requests_that_an_engine_may_support(tmp_path, info, here, elsewhere):
    (tmp_path / "nvidia.yaml").touch()
    info = {key: [str(tmp_path)] if value == ["SPECS"] else value for key, value in info.items()}
    assert docker.gpu_requests(info, local=True) == here
    assert docker.gpu_requests(info, local=False) == elsewhere
