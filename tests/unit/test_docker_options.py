"""A dry run that prints something else than what runs, and a job with more rights than it needs."""

import examples
import pytest

from runner.core.container_spec import Mount
from runner.engines import docker, docker_options
from runner.plan.launch import launch

SINGLE = launch(examples.job(examples.trial()))[0]
GPU = launch(examples.job(examples.trial(device="gpu", cpus_per_worker=None), node=examples.gpu_node(2)))[0]


def test_a_job_has_no_rights_to_give_away():
    host = docker_options.create_options(SINGLE, None)["host"]
    assert host["cap_drop"] == ["ALL"]
    assert host["security_opt"] == ["no-new-privileges"]
    assert host["read_only"] is True
    assert host["network_mode"] == "none"
    assert all(mount["ReadOnly"] for mount in host["mounts"])
    assert not any("docker.sock" in mount["Source"] for mount in host["mounts"])
    assert "privileged" not in host
    assert docker_options.create_options(SINGLE, None)["user"] == "10001:10001"


@pytest.mark.parametrize("gpus_by", ["nvidia", "cdi"])
def test_printed_and_created_container_are_the_same(gpus_by):
    options = docker_options.create_options(GPU, gpus_by)
    argv = docker_options.docker_run(GPU, gpus_by)
    host = options["host"]

    def value(flag):
        return argv[argv.index(flag) + 1]

    assert value("--name") == options["name"]
    assert value("--user") == options["user"]
    assert value("--network") == host["network_mode"]
    assert value("--memory") == host["mem_limit"]
    assert value("--shm-size") == host["shm_size"]
    assert value("--cpuset-cpus") == host["cpuset_cpus"]
    assert value("--pids-limit") == str(host["pids_limit"])
    assert value("--tmpfs") == "/tmp:" + host["tmpfs"]["/tmp"]
    assert value("--log-driver") == host["log_config"]["type"]
    assert {argv[i + 1] for i, word in enumerate(argv) if word == "--env"} == {
        f"{k}={v}" for k, v in options["environment"].items()
    }
    assert list(argv[argv.index(options["image"]) + 1 :]) == options["command"]
    assert value("--entrypoint") == options["entrypoint"][0]
    (mount,) = host["mounts"]
    assert value("--mount") == f"type={mount['Type']},source={mount['Source']},target={mount['Target']},readonly"


def test_rdma_needs_the_adapters_and_locked_memory_and_nothing_else():
    spec = SINGLE.model_copy(update={"verbs": True, "network": "host", "hostname": "n1"})
    options = docker_options.create_options(spec, None)
    host = options["host"]
    assert (host["devices"], host["cap_add"]) == (["/dev/infiniband:/dev/infiniband:rwm"], ["IPC_LOCK"])
    assert [(limit.name, limit.hard) for limit in host["ulimits"]] == [("core", 0), ("memlock", -1)]
    assert options["hostname"] == "n1"
    line = " ".join(docker_options.docker_run(spec, None))
    assert "--hostname n1 --device /dev/infiniband --cap-add IPC_LOCK --ulimit memlock=-1:-1" in line
    alone = docker_options.create_options(SINGLE, None)
    assert "cap_add" not in alone["host"]
    assert "devices" not in alone["host"]


def test_a_sampler_sees_the_processes_of_the_host_and_nobody_else_does():
    spec = SINGLE.model_copy(update={"host_pids": True})
    assert docker_options.create_options(spec, None)["host"]["pid_mode"] == "host"
    assert "--pid host" in " ".join(docker_options.docker_run(spec, None))
    assert "pid_mode" not in docker_options.create_options(SINGLE, None)["host"]
    assert "--pid" not in docker_options.docker_run(SINGLE, None)


def test_a_source_that_is_no_path_is_a_named_volume():
    spec = SINGLE.model_copy(
        update={"mounts": (Mount(source="dlscale-x", target="/a"), Mount(source="/x", target="/b"))}
    )
    assert [mount["Type"] for mount in docker_options.create_options(spec, None)["host"]["mounts"]] == [
        "volume",
        "bind",
    ]


def test_nvidia_driver_is_asked_by_index():
    request = docker_options.create_options(GPU, "nvidia")["host"]["device_requests"][0]
    assert (request["Driver"], request["DeviceIDs"], request["Capabilities"]) == ("nvidia", ["0"], [["gpu"]])
    assert (
        docker_options.docker_run(GPU, "nvidia")[docker_options.docker_run(GPU, "nvidia").index("--gpus") + 1]
        == '"device=0"'
    )


def test_cdi_is_asked_by_name():
    request = docker_options.create_options(GPU, "cdi")["host"]["device_requests"][0]
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=0"])
    assert (
        docker_options.docker_run(GPU, "cdi")[docker_options.docker_run(GPU, "cdi").index("--device") + 1]
        == "nvidia.com/gpu=0"
    )


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"Runtimes": {"nvidia": {}, "runc": {}}, "CDISpecDirs": ["/etc/cdi"]}, "nvidia"),
        ({"Runtimes": {"runc": {}}, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, "cdi"),
        ({"Runtimes": {"runc": {}}}, None),
        ({"Runtimes": None, "CDISpecDirs": None}, None),
    ],
)
def test_how_gpus_are_asked_for_is_read_from_the_engine(info, expected):
    assert docker.gpu_request(info) == expected


def test_a_cdi_spec_on_disk_counts_for_engines_that_do_not_list_devices(tmp_path):
    (tmp_path / "nvidia.yaml").touch()
    assert docker.gpu_request({"Runtimes": {}, "CDISpecDirs": [str(tmp_path)]}) == "cdi"
