"""Prevents: a rig that kill -9 leaves behind, completely or partly; a rig that its user can't remove; half a rig that blocks the next."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from testbed import teardown
from testbed.layout import USERS, prefix, run_directory, uplink
from testbed.lease import leased
from testbed.rig import Rig
from waiting import is_running, wait_until

from runner.cluster.hosts.model import load_hosts
from runner.core.errors import RequestError
from runner.core.wire import Link

ROOT = Path(__file__).parents[2]


def left_of(number):
    """What is left of a rig, found by other means than its own."""
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
    found = [name for name in namespaces if name.startswith(prefix(number))]
    found += [f"link {path.name}" for path in Path("/sys/class/net").iterdir() if path.name == uplink(number)]
    found += [
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"dlscale-rig-{number}/" in line
    ]
    found += [
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"dlscale-rig/{number}/" in line
    ]
    # The machine's processes as listed by `ps`, which shows no arguments for exited ones.
    listed = subprocess.run(["ps", "-eo", "pid,stat,args"], capture_output=True, text=True, check=True).stdout
    paths = (f"/dlscale-rig/{number}/", f"/dlscale-rig-{number}/")
    found += [line for line in listed.splitlines() if any(path in line for path in paths)]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if prefix(number) in (process / "cgroup").read_text() and is_running(process.name):
                found.append(f"process {process.name} in a group")
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{prefix(number)}*")]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"{prefix(number)}*")]
    return found + ([str(run_directory(number))] if run_directory(number).exists() else [])


@pytest.mark.parametrize("killed", [(), ("dockerd",), ("dockerd", "containerd"), ("dockerd", "containerd", "sshd")])
def test_down_leaves_nothing_regardless_of_what_runs_or_was_killed(fit, engine, tiny_image, tmp_path, killed):
    """Also finds containers outside the node's network, paused ones, those whose engine is gone, and commands started over ssh."""
    with leased(nodes=2, parent=tmp_path) as rig:
        argv = ["/usr/bin/ssh", "-F", str(rig.layout.run / "ssh_config"), "n1", "sleep 1234 >/dev/null 2>&1 & echo $!"]
        told = subprocess.run(argv, check=True, timeout=10, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        for node in rig.nodes:
            client = engine(node)
            image = tiny_image(client)
            for mode in ("host", "none"):
                client.containers.run(image, ["/bin/sleep", "1000"], network_mode=mode, detach=True)
            client.containers.run(image, ["/bin/sleep", "1000"], network_mode="none", detach=True).pause()
        assert len(left_of(rig.layout.number)) > 20
        assert is_running(int(told.stdout))
        for process in teardown.find(rig.layout.number).processes:
            if process.name in killed:
                os.kill(process.pid, signal.SIGKILL)
        rig.down()
        assert left_of(rig.layout.number) == []
        assert not is_running(int(told.stdout))
        assert list(tmp_path.iterdir()) == []
        rig.down()


LEASE = """
import sys, time
from pathlib import Path
from testbed.lease import leased
with leased(nodes=2, parent=Path(sys.argv[1]), report=lambda text: print(text, flush=True)) as rig:
    print("up", rig.layout.number, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("reached", ["network", "engines", "up"])
def test_a_leased_rig_goes_down_with_its_process_at_kill_9(fit, tmp_path, reached):
    process = subprocess.Popen(
        [sys.executable, "-c", LEASE, str(tmp_path)], cwd=ROOT / "tests", stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if line.startswith(reached):
            break
    (data,) = tmp_path.iterdir()
    number = int(data.name.removeprefix("dlscale-rig-"))
    process.kill()
    process.communicate()
    assert wait_until(lambda: not left_of(number), 20)
    assert wait_until(lambda: list(tmp_path.iterdir()) == [], 5)


def test_taking_the_users_rig_down_removes_what_a_killed_reaper_left(free_number, tmp_path):
    """With the process and its reaper killed, only the user can clean up."""
    process = subprocess.Popen(
        [sys.executable, "-c", LEASE, str(tmp_path)], cwd=ROOT / "tests", stdout=subprocess.PIPE, text=True
    )
    number = next(int(line.split()[1]) for line in process.stdout if line.startswith("up"))
    reaper = subprocess.run(["pgrep", "-P", str(process.pid), "-f", f"testbed.lease {number}"], capture_output=True)
    os.kill(int(reaper.stdout), signal.SIGKILL)
    process.kill()
    process.communicate()
    assert left_of(number) != []
    down = rig_command("--nodes=0", f"--number={free_number}")
    assert down.returncode == 0, down.stderr
    assert f"taking rig {number} of a killed test down" in down.stderr
    assert left_of(number) == []
    assert list(tmp_path.iterdir()) == []


def rig_command(*words):
    return subprocess.run(
        [sys.executable, "-m", "testbed", *words],
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def free_number(fit):
    """A free number for a user's rig; removed after the test."""
    number = next(number for number in reversed(USERS) if not run_directory(number).exists())
    yield number
    teardown.remove(number)


def test_the_command_prints_only_the_path_and_takes_its_rig_down(free_number, tmp_path):
    which = (f"--number={free_number}", f"--dir={tmp_path}")
    done = rig_command("--nodes=2", "--rate=1gbit", *which)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"/run/dlscale-rig/{free_number}/hosts.yaml\n"
    hosts = load_hosts(done.stdout.strip())
    assert [host.name for host in hosts.hosts] == ["n1", "n2"]
    assert hosts.link == Link(rate_mbit=1000.0, emulated=True)
    again = rig_command("--nodes=1", *which)
    assert again.stdout == done.stdout, again.stderr
    assert [host.name for host in load_hosts(again.stdout.strip()).hosts] == ["n1"]
    assert sorted(path.name for path in Path("/run/netns").glob(f"{prefix(free_number)}*")) == [
        f"dlrig{free_number}-n1",
        f"dlrig{free_number}-sw",
    ]
    for _ in range(2):
        down = rig_command("--nodes=0", f"--number={free_number}")
        assert (down.returncode, down.stdout) == (0, "")
        assert left_of(free_number) == []
        assert list(tmp_path.iterdir()) == []


MILESTONES = ["", "n1/daemon.json", "n1/uts", "n1/containerd.log", "n1/dockerd.log", "n2/sshd.log"]


@pytest.mark.parametrize("milestone", MILESTONES)
def test_the_remains_of_a_command_killed_half_way_can_be_taken_down(free_number, tmp_path, milestone):
    argv = [sys.executable, "-m", "testbed", "--nodes=2", f"--number={free_number}", f"--dir={tmp_path}"]
    process = subprocess.Popen(argv, cwd=ROOT / "tests", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    reached = run_directory(free_number) / milestone
    while not reached.exists():
        assert process.poll() is None
    process.kill()
    process.wait()
    assert left_of(free_number) != []
    down = rig_command("--nodes=0", f"--number={free_number}")
    assert down.returncode == 0, down.stderr
    assert left_of(free_number) == []
    assert list(tmp_path.iterdir()) == []


def test_half_a_rig_does_not_block_the_next(free_number, engine, tmp_path):
    """The next rig comes up although a namespace, a file and the uplink were deleted by hand."""
    Rig.up(nodes=2, number=free_number, parent=tmp_path)
    subprocess.run(["ip", "netns", "delete", f"{prefix(free_number)}n1"], check=True)
    subprocess.run(["ip", "link", "delete", uplink(free_number)], check=True)
    (run_directory(free_number) / "n2" / "dockerd.pid").unlink()
    rig = Rig.up(nodes=2, number=free_number, parent=tmp_path)
    assert all(engine(node).ping() for node in rig.nodes)
    rig.down()
    assert left_of(free_number) == []


def test_an_engine_that_does_not_start_is_reported_with_its_own_error_and_nothing_is_left(
    free_number, tmp_path, monkeypatch
):
    monkeypatch.setattr("testbed.nodes.engine_config", lambda node, machine: "{")
    with pytest.raises(RequestError, match=r"^dockerd of node n1 did not start: .*daemon\.json"):
        Rig.up(nodes=2, number=free_number, parent=tmp_path)
    assert left_of(free_number) == []


def test_a_network_in_use_by_the_machine_is_refused(free_number, tmp_path):
    made = subprocess.run(["ip", "route", "add", "blackhole", f"10.77.{free_number}.128/25"], capture_output=True)
    assert made.returncode == 0
    try:
        with pytest.raises(
            RequestError, match=rf"would take the network 10\.77\.{free_number}\.0/24, which this machine has"
        ):
            Rig.up(nodes=1, number=free_number, parent=tmp_path)
    finally:
        subprocess.run(["ip", "route", "delete", "blackhole", f"10.77.{free_number}.128/25"], check=True)
    assert left_of(free_number) == []
