"""Write or check the generated files that are committed: tables between two marks in docs/, such as the support matrix, and JSON Schemas."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from runner.analysis.comparisons.identity import Cell, cells, gpus_of
from runner.analysis.comparisons.transports import across
from runner.core.errors import DlscaleError
from runner.core.measurement import FEWEST_RUNS
from runner.core.provenance import SUITE_ROOT
from runner.core.record import RunRecord
from runner.core.request import StrategyName
from runner.core.trial import Trial
from runner.core.units import figure
from runner.experiments.overhead.figures import overhead_schema
from runner.experiments.studies import coverage
from runner.experiments.studies.study import load_study, study_names
from runner.images.catalog import load_images
from runner.images.spec import ImageSpec
from runner.plan.strategy import offered
from runner.report import matrix, transports
from runner.report.comparisons import UUID_CHARACTERS
from runner.report.page import overview
from runner.report.page import runs as lines
from runner.report.publish import Measured
from runner.report.table import escaped
from runner.results.find import records_under
from runner.results.published.load import published_schema
from runner.results.store import folders_under, record_schema

if TYPE_CHECKING:
    from typer._click.core import Command, Parameter  # typer's own copy of click; only this module has these names


DOCS: Final = SUITE_ROOT / "docs"
RESULTS: Final = SUITE_ROOT / "results"
H200: Final = RESULTS / "h200"
FASTEST: Final = ("network", "devices", "cell", "runs", "throughput ±", "speedup ±", "validity")


def export(command: Command, *, check: bool) -> None:
    """Write every generated table; with `check`, only compare it with its page. Raises DlscaleError if a page lacks its marks or is out of date."""
    runs = [run for folder in folders_under(RESULTS) for run in records_under(folder)]
    records = [record for _, record in runs]
    _update("images.md", "support matrix", support_matrix(load_images(SUITE_ROOT).all_images, records), check=check)
    _update("results-h200.md", "wires", _wires(), check=check)
    on_gpus = [record for path, record in runs if path.is_relative_to(H200) and record.trial.device == "gpu"]
    _update("results-h200.md", "repeated", _repeated(on_gpus), check=check)
    _update("results-h200.md", "fastest", _fastest(cells(on_gpus)), check=check)
    studies = [load_study(name)[0] for name in study_names()]
    _update("studies.md", "coverage", _table(coverage.COLUMNS, coverage.rows(studies)), check=check)
    variables = make_variables((SUITE_ROOT / "Makefile").read_text("utf-8"))
    _update("options.md", "options", "\n".join(options(command, variables)), check=check)


def export_schemas(*, check: bool) -> None:
    """Write the schemas; with `check`, only compare them. Raises DlscaleError if a committed schema differs."""
    schemas = {"record": record_schema(), "published": published_schema(), "overhead": overhead_schema()}
    for name, current in schemas.items():
        path = RESULTS / "schema" / f"{name}.schema.json"
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(current, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != current:
            raise DlscaleError(f"{path} differs from the code; run `dlscale schema` and commit it")


def _update(page: str, name: str, table: str, *, check: bool) -> None:
    path = DOCS / page
    text = path.read_text("utf-8")
    begin, end = f"<!-- {name}, written by `dlscale matrix`: do not edit -->\n", f"<!-- end of {name} -->\n"
    before, opened, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed:
        raise DlscaleError(f"{path}: lacks the marks {begin.strip()!r} and {end.strip()!r}; restore them")
    current = f"{before}{begin}{table.rstrip()}\n{end}{after}"
    if current == text:
        return
    if check:
        raise DlscaleError(f"{path}: its table `{name}` is out of date; run `dlscale matrix`")
    path.write_text(current, "utf-8")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the cells must be escaped already."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, [":--"] * len(columns), *rows))


def _wires() -> str:
    """VGG-16 on four GPUs over each transport."""
    comparisons = across(list(records_under(H200 / "wires")))
    (runs,) = [runs for name, runs in comparisons.items() if "vgg16" in name and "4gpu" in name]
    comparison = Measured.of(runs, of_one_matrix=False).comparison
    if comparison is None:
        raise DlscaleError(f"{H200 / 'wires'}: fewer than two transports of VGG-16 on four GPUs; restore the records")
    return "\n".join([f"{escaped(comparison.setting)}.", "", *transports.table(comparison).markdown()])


def _repeated(records: Sequence[RunRecord]) -> str:
    """Every cell with enough runs for an interval on the same GPUs, all valid, by network and number of GPUs, then the fastest first.

    Runs on different GPUs are not pooled: an interval over them, as if they were independent, excluded the rates of the GPUs themselves.
    """
    same_gpus: dict[frozenset[str], list[RunRecord]] = defaultdict(list)
    for record in records:
        same_gpus[frozenset(gpus_of(record))].append(record)
    every = [cell for own in same_gpus.values() for cell in cells(own)]
    found = [cell for cell in every if len(cell.runs) >= FEWEST_RUNS and cell.row.status == "valid"]
    columns: dict[str, Callable[[Cell], str]] = {
        "network": lambda cell: overview.network(cell.record),
        "devices": lambda cell: lines.devices(cell.record),
        "software": lambda cell: lines.framework(cell.record),
        "setting": lambda cell: cell.setting,
        "on": lambda cell: _named(gpus_of(cell.record)),
        "runs": lambda cell: matrix.runs(cell.row),
        "throughput ±": lambda cell: f"{matrix.rate(cell.row)} {cell.row.unit}",
        "MFU (%)": lambda cell: figure(cell.row.mfu_percent),
    }
    ordered = sorted(found, key=lambda cell: (overview.network(cell.record), cell.row.scale, cell.setting, -cell.rate))
    return _table(tuple(columns), ([escaped(text(cell)) for text in columns.values()] for cell in ordered))


def _named(uuids: Sequence[str]) -> str:
    """The first of some GPUs, and the number of the others."""
    more = f" and {len(uuids) - 1} more" if len(uuids) > 1 else ""
    return f"{uuids[0][:UUID_CHARACTERS]}{more}"


def _fastest(every: Sequence[Cell]) -> str:
    table = overview.fastest(every)
    chosen = [table.columns.index(name) for name in FASTEST]
    rows = _table(FASTEST, ([escaped(row[at]) for at in chosen] for row in table.rows))
    return f"{rows}\n\n{escaped(table.legend)}"


def make_variables(makefile: str) -> dict[str, tuple[str, ...]]:
    """The variables that each target of the Makefile takes."""
    lists = {
        name: words.split()
        for name, words in re.findall(r"^([\w.-]+) := (.*)$", makefile.replace("\\\n", " "), re.MULTILINE)
    }

    def expanded(words: Sequence[str]) -> Iterator[str]:
        for word in words:
            if listed := re.fullmatch(r"\$\(([\w.-]+)\)", word):
                yield from expanded(lists[listed[1]])
            else:
                yield word

    return {name.removeprefix("TAKES."): tuple(expanded(lists[name])) for name in lists if name.startswith("TAKES.")}


def options(command: Command, variables: Mapping[str, Sequence[str]], *, name: str = "dlscale") -> Iterator[str]:
    """A section for each command: its help, and its arguments and options with their Make variables."""
    subcommands: Mapping[str, Command] = getattr(command, "commands", {})
    for word, one in sorted(subcommands.items()):
        yield from options(one, variables, name=f"{name} {word}")
    if subcommands:
        return
    taken = variables.get(name.rpartition(" ")[2], ())
    yield f"### {name}\n"
    yield f"{' '.join((command.help or '').split())}\n"
    if rows := list(_rows(command, taken)):
        yield _table(("option", "Make variable", "meaning"), rows) + "\n"


def _rows(command: Command, taken: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Rows of a command's table. An option has the variable of its name; arguments get the remaining variables, in the Makefile's order."""
    named = {_variable(one) for one in command.params if one.param_type_name == "option"}
    left = iter([variable for variable in taken if variable not in named])
    for one in command.params:
        if one.param_type_name == "argument":
            names, variable = [one.metavar or (one.name or "").upper()], next(left, "")
        else:
            names, variable = sorted(one.opts, key=len, reverse=True), _variable(one)
            names[0] += f" {one.metavar}" if one.metavar else ""
        shown = ", ".join(f"`{name}`" for name in names).replace("|", "\\|")
        meaning = (getattr(one, "help", None) or "").replace("|", "\\|")
        yield shown, f"`{variable}`" if variable in taken else "", meaning


def _variable(option: Parameter) -> str:
    return max(option.opts, key=len).removeprefix("--").replace("-", "_").upper()


HEADERS = ("image", "device", "compute capability", "driver", "strategies", "ran on")
NOT_YET = "not yet"


def support_matrix(images: Sequence[ImageSpec], records: Iterable[RunRecord]) -> str:
    """A Markdown table with one row per image: its strategies, and for each that has run the devices it ran on.

    Args:
        images: in the order of the rows.
        records: all measured runs; invalid ones, passes under a profiler, and runs outside the suite's images are ignored.
    """
    ran: defaultdict[tuple[str, str], list[tuple[Trial, RunRecord]]] = defaultdict(list)
    for record in records:
        trial = record.trial
        usable = record.validity.status != "invalid" and not record.profiled and record.engine != "host"
        if isinstance(trial, Trial) and usable:
            ran[trial.framework, trial.version].append((trial, record))
    return _table(HEADERS, (_row(image, ran[image.framework, image.version]) for image in images))


def strategies_of(image: ImageSpec) -> tuple[StrategyName, ...]:
    """The strategies that an image can train with: an image built for Horovod has only that; a vendor's image may add Horovod to the others."""
    if image.extension:
        return (image.extension,)
    return tuple(name for name in offered(image) if name != "horovod" or name in image.brings)


def _row(image: ImageSpec, ran: Sequence[tuple[Trial, RunRecord]]) -> tuple[str, ...]:
    strategies = strategies_of(image)
    own = {name: [(trial, record) for trial, record in ran if trial.strategy == name] for name in strategies}
    return (
        image.name,
        "GPU" if image.device == "gpu" else "CPU",
        ", ".join(image.compute_capabilities) + (" and newer" if image.ptx else ""),
        f"≥ {image.minimum_driver}" if image.minimum_driver else "",
        ", ".join(strategies),
        "<br>".join(
            f"{_with_variants(name, [trial for trial, _ in runs])}: "
            + "; ".join(dict.fromkeys(_ran_on(record) for _, record in runs))
            for name, runs in own.items()
            if runs
        )
        or NOT_YET,
    )


def _with_variants(strategy: StrategyName, trials: Sequence[Trial]) -> str:
    """A strategy with the kvstores or controllers that its runs used, if any."""
    kinds: set[str] = {trial.kvstore for trial in trials if trial.kvstore}
    kinds |= {trial.horovod.controller for trial in trials if trial.horovod}
    return f"{strategy} ({', '.join(sorted(kinds))})" if kinds else strategy


def _ran_on(record: RunRecord) -> str:
    """The devices of a run: number and kind, on how many nodes, and whether these are emulated."""
    count = record.trial.world_size
    nodes = f" on {record.trial.nodes} nodes" if record.trial.nodes > 1 else ""
    if record.transport.emulated:
        nodes += " (emulated)"
    if record.trial.device == "gpu":
        names = [gpu.name for gpu in record.provenance.gpus[:1]]
        return f"{count} × {names[0] if names else 'unknown GPU'}{nodes}"
    workers = f"{count} CPU worker{'s' if count > 1 else ''}"
    return f"{workers}{nodes}, {record.provenance.host.cpu_model or 'unknown processor'}"
