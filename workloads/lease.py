"""First process of every container: runs the job, reaps its processes, and ends it when standard input closes.

    python3 lease.py [--heartbeat=SECONDS] [--keys=FOLDER] [--pod=NAME,NAME] PROGRAM ARGS...

The runner holds the other end of standard input open. However the runner dies, the kernel closes that end,
and the lease terminates the whole job (SIGTERM, five seconds, SIGKILL), so that no orphan keeps a GPU. SIGTERM and SIGINT to the lease do the
same. The exit code is the program's (128 + signal number if a signal ended it), or 143 if the lease ended the job.

This is not enough if the runner is on another host: if the network between them fails, its end never closes. With --heartbeat, the
runner writes a byte now and then, and the lease also expires after SECONDS without one, which it reports on standard error.

With --keys, the runner's first line is a JSON object of files by name. The lease writes them to FOLDER, which is in memory, readable by this
user only, before the program starts, and removes them last.

Podman restarts an exited container if another one that joins its network starts; nobody then holds its standard input. If
DLSCALE_LEASE_BEGIN is set, the runner writes one byte first, and the lease exits with 143 unless it arrives within that many seconds.

In a Kubernetes pod nobody holds standard input: with --pod, only the kubelet's SIGTERM ends the job. The program starts once every NAME
resolves: a cluster's DNS learns the names of pods only once they run.
"""

import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path

GRACE_S = 5.0
RETRY_S = 0.5
LEASE_ENDED = 143
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def spawn(argv):
    """Start the program in its own session, with /dev/null as standard input; it dies with this process."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"lease: {argv[0]}: {error.strerror}\n".encode())
    os._exit(127)


def descendants():
    """Process ids of all descendants; orphans are included, since this process is their subreaper."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = []
    level = {os.getpid()}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found.extend(level)
    return found


def signal_all(number):
    """Signal every descendant; ignore those that have just exited."""
    for pid in descendants():
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def reap():
    """Reap exited children: {pid: exit code}."""
    ended = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def end_all():
    """Terminate all descendants, wait up to the grace time, then kill the rest."""
    signal_all(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while descendants() and time.monotonic() < deadline:
        reap()
        time.sleep(0.02)
    while descendants():
        signal_all(signal.SIGKILL)
        reap()
        time.sleep(0.02)


def arguments(argv):
    """Split the command line: (options by name, program and its arguments)."""
    options = {}
    while argv[0].startswith("--"):
        name, _, value = argv[0][2:].partition("=")
        options[name] = value
        argv = argv[1:]
    return options, argv


def receive_keys(folder, wakeup, timeout):
    """Write the files that the runner sends first; False if standard input closes, nothing comes for `timeout`, or a signal does."""
    received = b""
    while not received.endswith(b"\n"):
        ready, _, _ = select.select([0, wakeup], [], [], timeout)
        data = b"" if wakeup in ready or not ready else os.read(0, 65536)
        if not data:
            return False
        received += data
    import json  # deferred: few jobs have keys

    for name, content in json.loads(received.decode()).items():
        path = Path(folder, name)
        path.touch(0o600)
        path.write_text(content)
    return True


def wait_for_names(names, wakeup):
    """Wait until every name resolves, reporting each wait once on standard error; False if a signal came first."""
    import socket  # deferred: few jobs have names

    for name in names:
        reported = False
        while True:
            try:
                socket.getaddrinfo(name, None)
                break
            except OSError as error:
                if not reported:
                    os.write(2, f"lease: waiting for {name} ({error.strerror})\n".encode())
                reported = True
            if select.select([wakeup], [], [], RETRY_S)[0]:
                return False
    return True


def main(argv):
    options, argv = arguments(argv)
    timeout = float(options["heartbeat"]) if "heartbeat" in options else None
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    wakeup, wakeup_end = os.pipe()
    os.set_blocking(wakeup_end, False)
    signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
    signals = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _frame: signals.append(got))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    if "pod" in options:
        names = filter(None, options["pod"].split(","))
        return run(argv, None, wakeup, signals, runner_fd=wakeup) if wait_for_names(names, wakeup) else LEASE_ENDED
    begin = os.environ.pop("DLSCALE_LEASE_BEGIN", None)
    if begin and not (0 in select.select([0, wakeup], [], [], float(begin))[0] and os.read(0, 1)):
        return LEASE_ENDED
    if "keys" not in options:
        return run(argv, timeout, wakeup, signals)
    try:
        return run(argv, timeout, wakeup, signals) if receive_keys(options["keys"], wakeup, timeout) else LEASE_ENDED
    finally:
        for path in Path(options["keys"]).iterdir():
            path.unlink()


def run(argv, timeout, wakeup, signals, runner_fd=0):
    """Run the program until it exits or the lease ends it; `runner_fd` is 0, or `wakeup` in a pod, where nobody holds standard input."""
    program = spawn(argv)
    last_heard = time.monotonic()
    while True:
        left = None if timeout is None else max(0.0, last_heard + timeout - time.monotonic())
        ready, _, _ = select.select([runner_fd, wakeup], [], [], left)
        if wakeup in ready:
            os.read(wakeup, 4096)
        code = reap().get(program)
        if code is not None:
            end_all()
            return code
        if signals or (0 in ready and not os.read(0, 4096)):
            end_all()
            return LEASE_ENDED
        if 0 in ready:
            last_heard = time.monotonic()
        elif timeout is not None and time.monotonic() >= last_heard + timeout:
            os.write(2, f"lease: nothing heard from the runner for {timeout:g} s\n".encode())
            end_all()
            return LEASE_ENDED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
