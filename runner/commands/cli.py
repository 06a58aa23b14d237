"""The command line: parse options, call one of the suite's stages, return an exit code. It takes no decisions.

Exit codes: 0 ok · 1 bug · 2 the request can't be met · 3 a run failed · 4 a run is invalid, or slower than allowed · 128 + the number of
the signal that ended the command, except that Ctrl-C during a run exits with 3, and the run's record says so.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text as Shown
from typer.exceptions import TyperException

from runner import __version__
from runner.commands.bench import baseline, bench, collect, diagnose, plan
from runner.commands.catalog import AS_JSON, list_names, models
from runner.commands.data import data_app
from runner.commands.images import images_app
from runner.commands.options import Commands, Text, complete_run, flag, run_argument, takes, usage_message
from runner.commands.runs import ls, rerun, show
from runner.core import console, interrupts, parsing
from runner.core.console import in_user_terms, open_console
from runner.core.errors import DlscaleError, RequestError, file_error_sentence, is_utf8, readable
from runner.core.request import Request
from runner.experiments.studies.model import SHARED, Scale, StudyRequest
from runner.results.find import PASS

# Fields of `Request` that `overhead` and `ablate` share; batch and threads are per device.
COMMON_FIELDS = (
    *("framework", "model", "gpus", "batch", "image_size", "precision", "threads", "iterations", "warmup", "repeat"),
    *("engine", "image", "mounts", "out"),
)
OVERHEAD_FIELDS = (*COMMON_FIELDS, "version", "preset", "techniques", "seed", "telemetry_hz")
ABLATE_FIELDS = (*COMMON_FIELDS, "workers", "data")

EXAMPLES = """\
Examples:
  dlscale doctor                               what this machine has
  dlscale bench                                a first measurement, in minutes
  dlscale bench pytorch resnet50 --gpus=1,2,4  a scaling sweep
  dlscale show last                            the result of the newest run
  dlscale compare last~1 last                  what the last command changed
"""
_RUNS = "run directory, folder of them, or glob; a run's id or a prefix of it; last or last~N: all runs of a command"

app = Commands(
    epilog=f"\b\n{EXAMPLES}",  # \b: keep the line breaks
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="print the version", is_eager=True)] = False,
) -> None:
    """Measures how fast deep-learning training runs and how well it scales, in a way somebody else can repeat."""
    if version:
        typer.echo(f"dlscale {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        commands = ", ".join(context.command.list_commands(context))  # type: ignore[attr-defined]  # of a group of commands
        names = f"Commands: {commands}. Each tells more with --help."
        typer.echo("\n".join((textwrap.fill(context.command.help or "", 80), "", EXAMPLES, textwrap.fill(names, 80))))


app.add_typer(images_app, name="images")
app.add_typer(data_app, name="data")
for command in (bench, plan, collect, diagnose, baseline, ls, show, rerun):
    app.command()(command)
app.command(name="list")(list_names)
app.command()(models)


@app.command()
def compare(
    a: Annotated[
        str, typer.Argument(help=f"before: {_RUNS}", metavar="A", autocompletion=complete_run, show_default=False)
    ] = "",
    b: Annotated[
        str, typer.Argument(help="after: the same", metavar="B", autocompletion=complete_run, show_default=False)
    ] = "",
    *,
    since: Annotated[
        Text,
        flag("--since", help="runs since this day against earlier ones: yesterday, or a date (UTC)", metavar="DAY"),
    ] = None,
    fail_on_regression: Annotated[
        Text,
        flag(
            "--fail-on-regression",
            help="exit with 4 if a trial is slower by more than this, e.g. 3%, and by more than chance",
            metavar="SHARE",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print it as JSON")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="print it as Markdown")] = False,
) -> None:
    """Compare runs of the same trials: which got slower or faster, how certain that is, and what else differs between them."""
    from runner.commands import compare_flow

    if as_json and as_markdown:
        raise RequestError("--json and --markdown exclude each other; leave one of them out")
    sides = compare_flow.since(since, place=a, more=b) if since else compare_flow.sides(a, b)
    form: Literal["json", "markdown", "table"] = "json" if as_json else "markdown" if as_markdown else "table"
    compare_flow.compare_runs(*sides, threshold=fail_on_regression, form=form)


@app.command()
def query(
    sql: Annotated[str, typer.Argument(help="one read-only statement in DuckDB's SQL", metavar="SQL")] = "",
    *,
    place: Annotated[
        Text, flag("--in", help="run directory, folder of them, or glob (default: all in results/)", metavar="DIR")
    ] = None,
    tables: Annotated[bool, typer.Option("--tables", help="list all tables and columns with their meanings")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="print the answer as CSV")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the answer as JSON")] = False,
) -> None:
    """Query everything on file by SQL: runs, windows, losses, epochs, telemetry, kernels, and published figures."""
    from runner.commands import query_flow

    if as_csv and as_json:
        raise RequestError("--csv and --json exclude each other; leave one of them out")
    form: query_flow.Form = "csv" if as_csv else "json" if as_json else "table"
    if tables:
        query_flow.list_tables(form=form)
    else:
        query_flow.query(sql, place=place, form=form)


ScaleOption = Annotated[
    Text, flag("--scale", help="full (default); short: fewer iterations; or small: smaller batches and images too")
]


ProgramOption = Annotated[
    Text,
    flag("--program", help="path in --image of the source's own program, to run it as the source did", metavar="PATH"),
]


@app.command()
@takes(*SHARED, as_command=("program", ProgramOption))
def reproduce(
    request: Request,
    *,
    study: Annotated[str, typer.Argument(help="study to run; `dlscale studies` lists all")],
    scale: ScaleOption = None,
    cells: Annotated[
        Text, flag("--cells", help="only runs whose names in the plan begin with this", metavar="NAME[,NAME]")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print what would run, and what can't; start nothing")
    ] = False,
) -> None:
    """Run a published study again, as far as this hardware can, and check its figures and findings; --framework replaces the source's."""
    from runner.experiments.studies.flow import reproduce as run

    only = tuple(name.strip() for name in cells.split(",")) if cells else ()
    at = parsing.choice("SCALE", scale, Scale) or "full"
    options = StudyRequest(study=study, scale=at, cells=only, bench=request, dry_run=dry_run)
    raise typer.Exit(run(options, command=tuple(sys.argv)))


@app.command()
@takes(*(field for field in SHARED if field not in ("cluster", "slurm_flags", "out")))
def studies(request: Request, *, scale: ScaleOption = None, as_json: Annotated[bool, AS_JSON] = False) -> None:
    """List the studies, and how many of their runs this hardware can run."""
    from runner.experiments.studies.flow import list_studies

    words = [word for word in sys.argv[2:] if word != "--json"]
    options = StudyRequest(scale=parsing.choice("SCALE", scale, Scale) or "full", bench=request)
    list_studies(options, words=words, as_json=as_json)


@app.command()
def doctor(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="print the findings as JSON")] = False,
    hosts: Annotated[Text, flag("--hosts", "-H", help="examine these instead", metavar="FILE|LIST")] = None,
    iface: Annotated[
        Text, flag("--iface", help="with --hosts: interface, or its role, over which pairs must connect")
    ] = None,
) -> None:
    """Report what this machine has, and for each image whether it can run here; with --hosts, what other machines have."""
    from runner.commands.doctor import examine_hosts, examine_machine

    if hosts:
        raise typer.Exit(examine_hosts(hosts, wire=iface or None, as_json=as_json))
    if iface:
        raise RequestError(f"--iface={iface} is of the wire between hosts; add --hosts=FILE, or leave it out")
    examine_machine(as_json=as_json)


@app.command()
def regrade(
    directory: Annotated[
        Path,
        run_argument(
            "; or a directory with runs at any depth",
            example="DIR=results/MACHINE with make, or dlscale regrade results/MACHINE",
        ),
    ],
) -> None:
    """Compute a run's figures again from its raw files, and say whether they match the record."""
    from runner.commands.regrade import regrade_all

    raise typer.Exit(regrade_all(directory))


@app.command()
def profile(
    directory: Annotated[
        Path,
        run_argument(
            " of the passes; or a directory with runs at any depth: its newest pass",
            example="RUN=results/MACHINE with make, or dlscale profile results/MACHINE",
            unit=PASS,
        ),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="print the profile as JSON")] = False,
) -> None:
    """Print what a pass under a profiler found: utilisation, kernels, copies, calls, memory."""
    from runner.commands.runs import show_profile

    show_profile(directory, as_json=as_json)


@app.command()
def report(
    directories: Annotated[
        list[Path] | None,
        run_argument(
            "; or directories with runs at any depth (default: results, the page alone)",
            metavar="[DIRECTORY...]",
            example="DIR=results/MACHINE with make, or leave it out for all of results",
        ),
    ] = None,
    *,
    out: Annotated[Text, flag("--out", help="where reports go (default: next to the runs)", metavar="DIR")] = None,
    form: Annotated[
        Text, flag("--format", help="mllog: MLPerf's :::MLLOG lines of each training instead of reports")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="fail if a directory's report.md is out of date; draw nothing"),
    ] = False,
) -> None:
    """Draw records on file: tables and plots of each matrix, pass and batch sweep, and report.html and report.md with all of them and the studies."""
    places, own = directories or [Path("results")], Path(out) if out else None
    if check and (out or form):
        raise RequestError("--check excludes --out and --format: it writes nothing; leave them out")
    logs = parsing.choice("FORMAT", form, Literal["mllog"])
    from runner.commands import report as drawing

    if logs:
        drawing.write_logs(places, out=own)
    elif check:
        drawing.check_pages(places)
    else:
        drawing.report(places, out=own, beside_runs=bool(directories or out))


@app.command()
def published(
    *,
    model: Annotated[Text, flag("--model", help="figures of this network, e.g. resnet50")] = None,
    framework: Annotated[Text, flag("--framework", help="figures of this framework, e.g. mxnet")] = None,
    source: Annotated[
        Text, flag("--source", help="figures of this source, e.g. dell-emc-2016-p100", metavar="ID")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print them as JSON")] = False,
    plot: Annotated[Text, flag("--plot", help="also draw their scaling curves", metavar="FILE.png")] = None,
) -> None:
    """List published figures, each with its source, its speedup computed again, and any contradiction within the source."""
    from runner.commands.published import Wanted, show_published

    wanted = Wanted(model=model or None, framework=framework or None, source=source or None)
    show_published(wanted, as_json=as_json, plot=Path(plot) if plot else None)


@app.command()
def predict(
    run: Annotated[
        str, typer.Argument(help="a run on one device: its id, a prefix of it, a path, or last", metavar="RUN")
    ] = "last",
    *,
    wire: Annotated[
        Text, flag("--wire", help="wire between the devices, as named in runs on several, e.g. nvlink")
    ] = None,
    gpus: Annotated[Text, flag("--gpus", help="scales, e.g. 8,64 (default: 8 to 1024)", metavar="N,...")] = None,
    place: Annotated[
        Text, flag("--in", help="take records from here (default: all in results/)", metavar="DIR")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print it as JSON")] = False,
    plot: Annotated[Text, flag("--plot", help="also draw it, with what was measured", metavar="FILE.png")] = None,
) -> None:
    """Predict the throughput of a one-device run on more devices, with an interval, from timed exchanges."""
    from runner.commands.predict import show_prediction

    show_prediction(
        run,
        wire=wire or None,
        devices=parsing.counts("GPUS", gpus),
        place=Path(place) if place else None,
        as_json=as_json,
        plot=Path(plot) if plot else None,
    )


@app.command()
def clean(
    *, hosts: Annotated[Text, flag("--hosts", "-H", help="clean these instead", metavar="FILE|LIST")] = None
) -> None:
    """Remove every container, volume, network and process that killed runs left, here or with --hosts on other machines; spares active runs."""
    from runner.cluster import cleanup

    cleanup.clean(hosts or None)


@app.command()
@takes(*OVERHEAD_FIELDS, defaults={"repeat": 5})
def overhead(
    request: Request,
    *,
    beside_host: Annotated[
        bool, typer.Option("--beside-host", help="also run it with ENGINE=host, to measure the container's overhead")
    ] = False,
) -> None:
    """Measure the suite's own overhead: the same training with the suite, without telemetry, and without the suite, in alternating rounds."""
    from runner.experiments.overhead.flow import measure_overhead

    if not request.gpus:
        request = request.model_copy(update={"device": "cpu", "workers": (1,)})
    measure_overhead(request, beside_host=beside_host, command=tuple(sys.argv))


@app.command()
@takes(*ABLATE_FIELDS, defaults={"framework": "pytorch"})
def ablate(
    request: Request,
    *,
    batches: Annotated[
        Text, flag("--batches", help="more batches for the last line, e.g. 512,1024; grow doubles it while it gains")
    ] = None,
) -> None:
    """Measure what each technique of PRESET=tuned is worth: train with none, then add one technique per line."""
    from runner.experiments.ablate import ablate as run

    grow = batches == "grow"
    given = () if grow else parsing.counts("BATCHES", batches) or ()
    raise typer.Exit(run(request, batches=given, grow=grow, command=tuple(sys.argv)))


@app.command()
def matrix(*, check: Annotated[bool, typer.Option("--check", help="fail if a table is out of date")] = False) -> None:
    """Write the generated tables of docs/: the support matrix, figures of the H200s, and the reference of options."""
    from runner.commands.documents import export

    export(typer.main.get_command(app), check=check)


@app.command()
def schema(
    *, check: Annotated[bool, typer.Option("--check", help="fail if the committed schema differs")] = False
) -> None:
    """Write the JSON Schemas of a run record, of a published source and of an overhead to results/schema/."""
    from runner.commands.documents import export_schemas

    export_schemas(check=check)


def main(command: typer.Typer = app) -> None:
    """Run a command line. A user's mistake prints one sentence and sets the exit code; a bug keeps its traceback."""
    console.discard_after_hangup()
    console.forget_no_width()
    interrupts.listen()
    code: int | str | None = 0
    try:
        _refuse_non_utf8(sys.argv[1:])
        try:
            code = command(prog_name="dlscale", standalone_mode=False) or 0
        finally:
            interrupts.ignore()
            sys.stdout.flush()  # here, where a failure to flush can still be reported
    except (DlscaleError, TyperException) as error:
        _print_error(usage_message(error) if isinstance(error, TyperException) else str(error))
        code = error.exit_code if isinstance(error, DlscaleError) else RequestError.exit_code
    except (OSError, UnicodeError) as error:
        message = file_error_sentence(error)
        if message is None:
            raise
        _print_error(message)
        code = RequestError.exit_code
    except KeyboardInterrupt:  # raised before Typer, which normally handles it, had built its commands
        code = interrupts.INTERRUPTED
    except SystemExit as end:
        code = end.code
    code, message = interrupts.exit_code(code)
    if message:
        _print_error(message)
    sys.exit(code)


def _print_error(message: str) -> None:
    """Print the one sentence that says why a command failed."""
    open_console(stderr=True, soft_wrap=True).print(
        Shown.assemble(("dlscale:", "bold red"), " ", in_user_terms(message))
    )


def _refuse_non_utf8(words: Iterable[str]) -> None:
    """Refuse arguments that are not UTF-8, because no record could hold them."""
    for word in words:
        if not is_utf8(word):
            raise RequestError(
                f"{readable(word)} on the command line is not UTF-8; write it in UTF-8, and rename the file if it is one"
            )
