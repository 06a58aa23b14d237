"""Prevents a job with more rights than it needs: checked from inside a real container of the suite, not from its options."""

import json

import examples
import pytest

from runner.engines.docker import DockerEngine
from runner.plan.launch.job import leased, spec
from runner.run.execute import run_tool

PROBE = """
import json, os, socket
def can(action):
    try:
        action()
    except OSError as error:
        return error.strerror
    return True
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
mounts = {line.split()[4]: line.split()[5].split(",") for line in open("/proc/self/mountinfo")}
print(json.dumps({
    "uid": os.getuid(),
    "capabilities": int(status["CapEff"], 16) | int(status["CapBnd"], 16),
    "no_new_privileges": status["NoNewPrivs"].strip(),
    "write_root": can(lambda: open("/probe", "w")),
    "write_programs": can(lambda: open("/dlscale/workloads/probe", "w")),
    "write_tmp": can(lambda: open("/tmp/probe", "w")),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "reach_out": can(lambda: socket.create_connection(("192.0.2.1", 80), timeout=2)),
    "engine_socket": os.path.exists("/var/run/docker.sock") or os.path.exists("/run/docker.sock"),
    "home_of_the_runner": sorted(set(os.environ) & {"SSH_AUTH_SOCK", "LOGNAME", "SHELL", "VIRTUAL_ENV"}),
    "init": open("/proc/1/cmdline").read().replace(chr(0), " "),
    "cpus": sorted(os.sched_getaffinity(0)),
    "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
    "root": mounts["/"],
}))
"""


@pytest.fixture(scope="module")
def inside(client, ensure_image):
    ensure_image("dlscale/mxnet:1.9.1")
    engine = DockerEngine(client, examples.ROOT / "workloads")
    job = examples.job(examples.trial(), run_id="probe", mounts=engine.mounts(None), user=engine.user())
    lines = []
    run_tool(engine, spec(job, job.head, role="tool", argv=("python3", "-c", PROBE), cpus=(0,)), lines.append)
    return json.loads(lines[-1])


def test_it_is_unprivileged_and_can_not_gain_privileges(inside):
    assert inside["uid"] == 10001
    assert inside["capabilities"] == 0
    assert inside["no_new_privileges"] == "1"


def test_it_can_write_only_in_tmp(inside):
    assert inside["write_tmp"] is True
    assert inside["write_root"] in ("Read-only file system", "Permission denied")
    assert inside["write_programs"] in ("Read-only file system", "Permission denied")
    assert "ro" in inside["root"]


def test_it_has_only_a_loopback_network(inside):
    assert inside["interfaces"] == ["lo"]
    assert inside["reach_out"] == "Network is unreachable"


def test_it_sees_neither_the_engine_nor_the_runners_environment(inside):
    assert not inside["engine_socket"]
    assert inside["home_of_the_runner"] == []


def test_its_first_process_is_the_lease_and_its_limits_are_as_requested(inside):
    assert "/dlscale/workloads/lease.py" in inside["init"]
    assert inside["cpus"] == [0]
    assert inside["shm"] == 1024 * 2**20


def test_the_argv_starts_with_the_lease():
    argv = leased(examples.job(examples.trial()), "true")
    assert argv == ("python3", "/dlscale/workloads/lease.py", "true")
