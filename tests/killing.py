"""`dlscale` that kills itself with SIGKILL at a counted, not timed, moment: in a separate process, `python killing.py N DELAY WORDS...`.

The moment is DELAY seconds after the runner's N-th external action (a request to an engine, a file or folder created, renamed or removed, a
process started), so a seed yields the same moments on fast and slow machines. With N = 0 nothing is killed, and
the last line on standard error is the number of actions.
"""

import itertools
import os
import signal
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).parents[1]
# https://docs.python.org/3/library/audit_events.html; without those of `import` and of reading, which change nothing.
DEEDS = {
    "http.client.send",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.truncate",
    "socket.connect",
    "subprocess.Popen",
}


def is_deed(name, told):
    """Whether an audit event is an action that a kill could leave half done."""
    if name == "open":
        _, mode, flags = told
        return bool(flags & (os.O_WRONLY | os.O_RDWR)) or bool(mode and set(mode) & set("wax+"))
    return name in DEEDS


def main():
    number, delay = int(sys.argv[1]), float(sys.argv[2])
    sys.path.insert(0, str(ROOT))
    from runner.commands.cli import main as dlscale

    deeds = itertools.count(1)
    last = [0]

    def kill():
        os.kill(os.getpid(), signal.SIGKILL)

    def count(name, told):
        if not is_deed(name, told):
            return
        last[0] = next(deeds)
        if last[0] == number:
            if not delay:
                kill()
            threading.Timer(delay, kill).start()

    sys.argv = ["dlscale", *sys.argv[3:]]
    sys.addaudithook(count)
    try:
        dlscale()
    finally:
        if not number:
            os.write(2, f"{last[0]}\n".encode())


if __name__ == "__main__":
    main()
