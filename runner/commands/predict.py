"""`dlscale predict`: reads records on file, predicts a training on more devices, and prints it next to what was measured."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Final

from runner.analysis.comparisons.predicted import Prediction, predicted
from runner.analysis.prediction import FEWEST_POINTS
from runner.commands.options import runs_named
from runner.core.console import notify, open_screen
from runner.core.errors import RequestError
from runner.core.units import figure
from runner.report.matrix import with_interval
from runner.report.table import Table
from runner.results.find import RESULTS, newest_first, read_runs
from runner.results.store import read_record

DEVICES: Final = (8, 16, 32, 64, 128, 256, 512, 1024)


def show_prediction(
    word: str,
    *,
    wire: str | None,
    devices: tuple[int, ...] | None,
    place: Path | None,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Predict a run, given by any of its names, from the records at a place (default: `results/`), and print it; `plot` is the path of a PNG.

    Raises RequestError as `predicted` does, or if the plot can't be written.
    """
    path = runs_named(word, example="last")[0]
    run, on_file = read_record(path), read_runs(newest_first(place))
    notify(on_file.skipped)
    records = [record for _, record in on_file.runs]
    if run.run_id not in {record.run_id for record in records}:
        raise RequestError(f"{run.run_id} is not among the runs in {place or RESULTS}; add --in={path.parent}")
    found = predicted(run, records, wire=wire, devices=tuple(dict.fromkeys((1, *(devices or DEVICES)))))
    if plot is not None:
        _draw(found, plot)
    if as_json:
        sys.stdout.write(found.model_dump_json(indent=1) + "\n")
        return
    console = open_screen()
    console.print(found.title, style="bold")
    console.print(f"over {found.wire.label}, timed among {found.wire.devices} devices", style="dim")
    console.print(_table(found).terminal())
    console.print(_accuracy(found))
    for note in found.notes:
        console.print(note, style="dim")


def _table(found: Prediction) -> Table:
    return Table.without_empty_columns(
        found.rows,
        {
            "devices": lambda row: str(row.devices),
            f"predicted {found.unit}": lambda row: with_interval(row.throughput, row.ci95),
            "efficiency (%)": lambda row: figure(100 * row.efficiency),
            "exposed exchange (ms)": lambda row: figure(1e3 * row.exposed_s),
            f"measured {found.unit}": lambda row: figure(row.measured),
        },
    )


def _accuracy(found: Prediction) -> str:
    """The error of predictions at scales that were measured."""
    if not found.errors:
        return "No run on several devices is on file to check the prediction against: it has no interval."
    worst = max(found.errors, key=lambda one: abs(one[1]))
    median = statistics.median(abs(error) for _, error in found.errors)
    unfitted = (
        f" For {found.unfitted} of them no overhead was fitted: other networks have fewer than {FEWEST_POINTS} points on file."
        if found.unfitted
        else ""
    )
    return (
        f"Checked against {len(found.errors)} measured points, each predicted from other networks only: median error {100 * median:.1f} %, "
        f"the largest {100 * worst[1]:+.1f} % ({worst[0]}).{unfitted}"
    )


def _draw(found: Prediction, path: Path) -> None:
    from runner.report import picture
    from runner.report.published_plot import Curve, panels, save

    rate = found.rows[0].throughput
    curves = [Curve("predicted", tuple((row.devices, row.throughput / rate) for row in found.rows))]
    if measured := tuple((row.devices, row.measured / rate) for row in found.rows if row.measured):
        curves.append(Curve("measured", measured))
    save(path, picture.png(*panels(curves), title=found.title, lines=(f"over {found.wire.label}", _accuracy(found))))
