"""Runs a rank in the environment of its own container, whoever started it.

    python3 own_env.py PROGRAM ARGS...

Launchers that reach other nodes by ssh (horovodrun, mpirun) hand every rank the environment of the node that they run on themselves.
What the rank's own container was given (the node's name, its interface, its adapters) is known to the container's lease, its first process
but where an engine has one of its own before it, and goes before that here.

The exit code is the program's, 128 + signal number if a signal ended it: ssh would make 255 of that, which is also its word for a
connection that broke. SIGTERM and SIGINT are passed on; when this process dies, so does the program. Standard library and syntax of
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
    """Id of the lease that this process is under: of its ancestors the one that runs lease.py, or the first of all."""
    pid = os.getpid()
    while pid > 1 and b"lease.py" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return max(pid, 1)


def of_container(path=None):
    """Read what the container's lease was started with (proc(5)); it is of the same user, and may be read."""
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
