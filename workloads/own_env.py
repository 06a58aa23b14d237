"""Runs a rank in the environment of its own container, whichever process started it.

    python3 own_env.py PROGRAM ARGS...

Launchers that reach other nodes by ssh (horovodrun, mpirun) pass the environment of their own node to every rank. This program overrides it
with the variables of the rank's own container (the node's name, interface, adapters), which it reads from the container's lease: the
first process, unless the engine has an init of its own.

The exit code is the program's, 128 + signal number if a signal ended it: ssh would turn a signal into 255, which also means a broken
connection. SIGTERM and SIGINT are passed on; when this process dies, so does the program. Standard library and syntax of
Python 3.6 only.
"""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def lease():
    """Process id of this process' lease: the nearest ancestor that runs lease.py, else process 1."""
    pid = os.getpid()
    while pid > 1 and b"lease.py" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return max(pid, 1)


def of_container(path=None):
    """Environment of the container's lease (proc(5)), which the same user may read."""
    path = path or f"/proc/{lease()}/environ"
    words = [word.partition(b"=") for word in Path(path).read_bytes().split(b"\0") if word]
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in words}


def main(argv):
    program = subprocess.Popen(
        argv,
        env=dict(os.environ, **of_container()),
        preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 - there are no threads
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _frame: program.send_signal(got))
    code = program.wait()
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
