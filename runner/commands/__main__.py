"""Entry point of `dlscale` and `python -m runner.commands`; if stopped while modules load, it prints one line and exits."""

import os
import signal
from types import FrameType


def main() -> None:
    """Load the command line, which takes half a second, and run it."""
    # Do not raise: during an import the exception can land in a callback of the import system, which prints it and continues.
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
