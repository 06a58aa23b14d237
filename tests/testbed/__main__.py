"""`python -m testbed`, called by `make rig`: a user error is one sentence and an exit code, as in `dlscale`."""

import typer

from runner.commands.cli import main
from testbed.cli import rig

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(rig)
main(app)
