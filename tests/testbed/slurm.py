"""A Slurm with several nodes on one machine, each node with its own network, host name and slurmd.

Everything lives in namespaces whose first process is this program: `python -m testbed.slurm DIRECTORY NODES`. It exits when its standard input
closes, which happens when the process with the other end exits, even by kill -9; the kernel then removes everything else: processes,
networks, mounts.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.errors import RequestError

PACKAGES = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge", "ip": "iproute2"}
HEAD = "10.88.0.1"
_TESTS = Path(__file__).parents[1]
_READY_S = 60.0
CONF = """\
ClusterName=testbed
SlurmctldHost=head({head})
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={directory}/munge/socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile={directory}/run/slurmctld.pid
SlurmdPidFile={directory}/run/%n.pid
SlurmctldLogFile={directory}/log/slurmctld.log
SlurmdLogFile={directory}/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=300
KillWait=30
OverTimeLimit=0
SlurmdParameters=config_overrides
NodeName=n[1-{nodes}] NodeAddr=10.88.0.1[1-{nodes}] CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=n[1-{nodes}] Default=YES MaxTime=INFINITE State=UP
"""


def refuse_unfit() -> None:
    """Refuse a machine that can't run it. RequestError names the packages to install."""
    if os.getuid():
        raise RequestError("a Slurm of several nodes needs root; run the tests as root")
    lacking = sorted({package for program, package in PACKAGES.items() if shutil.which(program) is None})
    if lacking:
        raise RequestError(
            f"a Slurm of several nodes needs {', '.join(lacking)}; type apt-get install {' '.join(lacking)}"
        )


@dataclass(frozen=True)
class Slurm:
    """A running Slurm.

    Attributes:
        pid: of its first process, in this machine's namespace.
    """

    directory: Path
    pid: int

    def inside(self, *argv: str) -> tuple[str, ...]:
        """The argv that runs a command in the namespaces of its head node."""
        spaces = ("--mount", "--net", "--pid", "--uts")
        return (
            "nsenter",
            f"--target={self.pid}",
            *spaces,
            f"--wd={Path.cwd()}",
            "env",
            f"SLURM_CONF={self.directory}/slurm.conf",
            *argv,
        )

    def ask(self, *argv: str) -> str:
        """Run a command there and return its output."""
        return subprocess.run(self.inside(*argv), capture_output=True, text=True, check=True, timeout=60).stdout

    def daemon(self, name: str) -> str:
        """Process id of `n1`, `n2`, ... or `slurmctld`, in its namespace."""
        return (self.directory / "run" / f"{name}.pid").read_text(encoding="ascii").strip()

    def log(self, name: str) -> str:
        """Return a daemon's log."""
        return (self.directory / "log" / f"{name}.log").read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def running(directory: Path, *, nodes: int) -> Iterator[Slurm]:
    """Bring a Slurm up in an empty directory; it goes down with the context, and with this process."""
    refuse_unfit()
    argv = ("unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable)
    process = subprocess.Popen(
        (*argv, "-m", "testbed.slurm", str(directory), str(nodes)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{_TESTS.parent}{os.pathsep}{_TESTS}"},
        start_new_session=True,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RequestError(f"the Slurm in {directory} did not come up; see its logs there")
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        yield Slurm(directory, int(child))
    finally:
        process.communicate()


def main(directory: Path, nodes: int) -> None:
    """Start everything, print `ready`, and wait until standard input closes."""
    spools = (f"spool/n{number}" for number in range(1, nodes + 1))
    for folder in ("state", "log", "run", "munge", "cgroup", *spools):
        (directory / folder).mkdir(parents=True)
    (directory / "slurm.conf").write_text(CONF.format(directory=directory, nodes=nodes, head=HEAD), encoding="utf-8")
    os.environ["SLURM_CONF"] = str(directory / "slurm.conf")
    _call(
        "hostname head",
        "ip link set lo up",
        "ip link add br0 type bridge",
        f"ip addr add {HEAD}/24 dev br0",
        "ip link set br0 up",
    )
    _start_munge(directory / "munge")
    _start(("slurmctld", "-D", "-c", "-f", os.environ["SLURM_CONF"]))
    for number in range(1, nodes + 1):
        _start_node(number, directory / "cgroup")
    deadline = time.monotonic() + _READY_S
    while _idle() < nodes:
        if time.monotonic() > deadline:
            sys.exit(1)
        time.sleep(0.2)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not (select.select([0], [], [], 0.5)[0] and not os.read(0, 1)):
        with contextlib.suppress(ChildProcessError):  # this process inherits orphans of the whole namespace
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _idle() -> int:
    said = subprocess.run(("sinfo", "-h", "-N", "-o", "%T"), capture_output=True, text=True, check=False).stdout
    return said.split().count("idle")


def _start_munge(folder: Path) -> None:
    """Start the authentication daemon as its own user, with a new key."""
    key = folder / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    for path in (folder, key):
        shutil.chown(path, "munge", "munge")
    folder.parent.chmod(0o755)
    options = {
        "key-file": key,
        "socket": folder / "socket",
        "pid-file": folder / "pid",
        "log-file": folder / "log",
        "seed-file": folder / "seed",
    }
    words = (f"--{name}={path}" for name, path in options.items())
    _start(("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged", "--foreground", *words))
    while not (folder / "socket").exists():
        time.sleep(0.05)


def _start_node(number: int, groups: Path) -> None:
    """Start a node: its namespaces, its link to the bridge, and its slurmd, which waits for the link.

    Only a newly mounted sysfs shows a network namespace's own interfaces; the control groups must then be mounted in it again.
    """
    name = f"n{number}"
    script = (
        f"hostname {name} && read -r _ && mount --rbind /sys/fs/cgroup {groups} && mount -t sysfs sysfs /sys && "
        f"mount --rbind {groups} /sys/fs/cgroup && umount -R -l {groups} && ip link set lo up && "
        f"ip addr add 10.88.0.1{number}/24 dev eth0 && ip link set eth0 up && exec slurmd -D -N {name}"
    )
    node = _start(("unshare", "--mount", "--net", "--uts", "sh", "-c", script), stdin=subprocess.PIPE)
    while Path(f"/proc/{node.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
        time.sleep(0.01)
    _call(f"ip link add {name} type veth peer name eth0 netns {node.pid}", f"ip link set {name} master br0 up")
    assert node.stdin is not None
    node.stdin.write(b"go\n")
    node.stdin.flush()


def _start(argv: Sequence[str], *, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)


def _call(*commands: str) -> None:
    for command in commands:
        subprocess.run(command.split(), check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
