"""`python -m testbed.keeper NUMBER`: takes a rig down when its standard input ends, which it does with whoever holds the other end."""

from __future__ import annotations

import signal
import sys
import time

from runner.core.errors import DlscaleError
from testbed import remains

# What a killed process had just started may still be on its way.
_SETTLE_S = 0.5


def main(number: int) -> int:
    """Wait, then remove all of the rig.

    Returns:
        0, or 3 when something of it does not go, named on standard error.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a session that is ended as a whole must leave nothing
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.stdin.read()
    try:
        remains.remove(number)
        time.sleep(_SETTLE_S)
        remains.remove(number)
    except DlscaleError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
