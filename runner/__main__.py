"""The command `dlscale`, and `python -m runner`. Stopped while it loads, it says so in a line."""

import sys


def main() -> None:
    """Load the command line, which takes half a second, and run it."""
    try:
        from runner.cli import main as run  # noqa: PLC0415 - here, where Ctrl-C is no traceback
    except KeyboardInterrupt:
        sys.stderr.write("dlscale: stopped by Ctrl-C\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
