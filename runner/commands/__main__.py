"""The command `dlscale`, and `python -m runner.commands`. Stopped while it loads, it says so in a line."""

import os
import signal
from types import FrameType


def main() -> None:
    """Load the command line, which takes half a second, and run it."""
    # No exception: raised while modules load it can fall into a callback of the import system, which prints it and goes on.
    defaults = (signal.default_int_handler, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in defaults:
            signal.signal(number, _end)
    from runner.commands.cli import main as run

    run()


def _end(number: int, _frame: FrameType | None) -> None:
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    os.write(2, f"dlscale: stopped by {name}\n".encode())
    os._exit(128 + number)


if __name__ == "__main__":
    main()
