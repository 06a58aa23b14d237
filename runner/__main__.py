"""The command `dlscale`, and `python -m runner`. Stopped while it loads, it says so in a line."""

import os
import signal
from types import FrameType


def main() -> None:
    """Load the command line, which takes half a second, and run it."""
    # No exception: raised while modules load it can fall into a callback of the import system, which prints it and goes on.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from runner.cli import main as run  # noqa: PLC0415 - here, where Ctrl-C ends it

    run()


def _end(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"dlscale: stopped by Ctrl-C\n")
    os._exit(130)


if __name__ == "__main__":
    main()
