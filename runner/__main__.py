"""`python -m runner`: the same as `dlscale`."""

from runner.cli import main

main()
