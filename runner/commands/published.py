"""`dlscale published`: published figures as tables, JSON or a plot."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from runner.core.console import in_user_terms, open_console
from runner.core.errors import RequestError, nearest
from runner.core.units import ABSENT
from runner.core.units import figure as in_figures
from runner.report.table import plain_table
from runner.results.published.derive import Contradiction, Scaled, contradictions, scaled
from runner.results.published.load import load_all
from runner.results.published.model import Conditions, Figure, Published

_MOST_SUGGESTED: Final = 5
# With several sources, single figures are printed only if there are at most this many.
_MOST_FIGURES: Final = 20


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The figures to show; None matches any."""

    model: str | None = None
    framework: str | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class Listed:
    """The selected part of a source: figures, their speedups, and their contradictions."""

    published: Published
    figures: tuple[Figure, ...]
    scaled: tuple[Scaled, ...]
    contradictions: tuple[Contradiction, ...]

    @property
    def gpus(self) -> dict[str, str]:
        """GPU model names, by the ids that the figures use."""
        return {gpu.id: gpu.model for gpu in self.published.hardware.gpus}


def show_published(wanted: Wanted, *, as_json: bool, plot: Path | None) -> None:
    """Print the matching sources and figures; with `plot`, draw their scaling curves as a PNG.

    Several sources are also listed one per line; their single figures are printed only if there are at most `_MOST_FIGURES`.

    Raises:
        RequestError: nothing matches, the matches have no scaling, or a file of `results/published` is wrong.
    """
    listed = select(load_all(), wanted)
    if as_json:
        sys.stdout.write(
            json.dumps([entry for each in listed for entry in _entries(each)], indent=1, default=float) + "\n"
        )
    else:
        console = open_console()
        several = len(listed) > 1
        if not several or sum(len(each.figures) for each in listed) <= _MOST_FIGURES:
            for each in listed:
                _print_source(console, each)
        if several:
            _print_overview(console, listed, wanted)
    if plot is not None:
        _draw(plot, listed, wanted)


def select(sources: Iterable[Published], wanted: Wanted) -> tuple[Listed, ...]:
    """The wanted figures, by source; sources without any are dropped. Raises RequestError, with the nearest names, if nothing matches."""
    chosen = tuple(sources)
    if wanted.source is not None:
        _require_known("source", wanted.source, {each.id for each in chosen})
        chosen = tuple(each for each in chosen if each.id == wanted.source)
    where = f" in {wanted.source}" if wanted.source else ""
    every = [figure.conditions for each in chosen for figure in each.figures]
    if wanted.model is not None:
        _require_known("model", wanted.model, {of.model for of in every if of.model}, where=where)
    if wanted.framework is not None:
        _require_known("framework", wanted.framework, {of.framework for of in every if of.framework}, where=where)
    listed = tuple(found for each in chosen if (found := _listed(each, wanted)).figures)
    if not listed:
        both = f"model {wanted.model!r} and framework {wanted.framework!r}"
        raise RequestError(f"no published figure has both {both}; leave one of them out")
    return listed


def _require_known(what: str, name: str, names: set[str], *, where: str = "") -> None:
    """Refuse a name that no figure has."""
    if name not in names:
        suggested = ", ".join(nearest(name, names).split(", ")[:_MOST_SUGGESTED]) or "none"
        raise RequestError(f"no published figure{where} has the {what} {name!r}; nearest: {suggested}")


def _listed(published: Published, wanted: Wanted) -> Listed:
    figures = tuple(
        figure
        for figure in published.figures
        if wanted.model in (None, figure.conditions.model) and wanted.framework in (None, figure.conditions.framework)
    )
    ids = {figure.id for figure in figures}
    return Listed(
        published=published,
        figures=figures,
        scaled=tuple(each for each in scaled(published) if each.figure.id in ids),
        contradictions=tuple(each for each in contradictions(published) if ids & {each.figure, *each.against}),
    )


def _entries(listed: Listed) -> Iterable[dict[str, object]]:
    """One object per figure, for programs."""
    speedups = {each.figure.id: each for each in listed.scaled}
    for figure in listed.figures:
        speedup = speedups.get(figure.id)
        yield {
            "source": listed.published.id,
            "title": listed.published.source.title,
            "year": listed.published.source.year,
            **figure.model_dump(exclude_none=True),
            "baseline": speedup.baseline.id if speedup else None,
            "scaling": speedup.scaling if speedup else None,
            "speedup": speedup.speedup if speedup else None,
            "efficiency_percent": speedup.efficiency_percent if speedup else None,
            "contradictions": [asdict(each) for each in listed.contradictions if each.figure == figure.id],
        }


def _print_overview(console: Console, listed: Sequence[Listed], wanted: Wanted) -> None:
    """Print one line per source: its title or, if a model was requested, its highest throughput per device; long lines are cut."""
    table = plain_table()
    table.add_column("source", no_wrap=True)
    table.add_column("figures", justify="right", no_wrap=True)
    table.add_column("most of a device" if wanted.model else "what", overflow="ellipsis")
    for each in listed:
        what = (_fastest(each) or ABSENT) if wanted.model else each.published.source.title
        table.add_row(each.published.id, str(len(each.figures)), Text(what, no_wrap=True))
    console.print(table)
    contradicted = ", ".join(f"{each.published.id} {n}" for each in listed if (n := len(each.contradictions)))
    console.print(f"\nfigures contradicted by others of their source: {contradicted or 'none'}", style="dim")
    total = sum(len(each.figures) for each in listed)
    found = sum(len(each.published.findings) for each in listed)
    console.print(
        in_user_terms(
            f"{total} figures and {found} findings of {len(listed)} sources; narrow them down by --source, --model or --framework"
        )
    )


def _fastest(listed: Listed) -> str | None:
    """The highest throughput per device, and its conditions; None if the source has no throughput."""
    rates = [
        (float(figure.value) / figure.conditions.gpus, figure)
        for figure in listed.figures
        if figure.metric == "throughput" and not isinstance(figure.value, tuple) and figure.conditions.gpus
    ]
    if not rates:
        return None
    rate, figure = max(rates, key=lambda one: one[0])
    of = figure.conditions
    facts = (of.gpus != 1 and f"one of {of.gpus}", listed.gpus.get(of.gpu or "", of.device), of.precision, of.mode)
    return f"{in_figures(rate)} {figure.unit}: {', '.join(str(one) for one in facts if one)}"


def _print_source(console: Console, listed: Listed) -> None:
    """Print a source's figures: conditions that all share once, the rest in each row."""
    published, source = listed.published, listed.published.source
    console.print(f"{source.title} ({source.year or 'no date'})", style="bold")
    who = ", ".join((*source.authors, *([source.organisation] if source.organisation else [])))
    where = source.repository or (source.url[0] if source.url else source.kind)
    console.print(f"{published.id}: {who}; {where}", style="dim")
    conditions = [_conditions(figure.conditions, listed.gpus) for figure in listed.figures]
    common = [one for one in conditions[0] if len(conditions) > 1 and all(one in other for other in conditions)]
    if common:
        console.print(f"all of them: {'; '.join(common)}")
    speedups = {each.figure.id: each for each in listed.scaled}
    doubtful = {each.figure for each in listed.contradictions}
    table = plain_table()
    table.add_column("figure", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    if speedups:
        table.add_column("speedup", justify="right", no_wrap=True)
    table.add_column("of", overflow="fold")
    for figure, facts in zip(listed.figures, conditions, strict=True):
        value = _value(figure, doubtful=figure.id in doubtful)
        speedup = [_speedup(speedups.get(figure.id))] if speedups else []
        of = "; ".join(one for one in facts if one not in common)
        table.add_row(figure.metric, value, *speedup, of or ABSENT)
    console.print(Padding(table, (1, 0), expand=False))
    for each in listed.contradictions:
        console.print(contradiction_text(each, published), style="yellow")
    for note in published.notes:
        console.print(note, style="dim")
    console.print()


def contradiction_text(found: Contradiction, published: Published) -> str:
    """One contradiction in words: both figures, their difference, and the file's explanation."""
    why = next((f"; {each.why}" for each in published.contradictions if found.figure in each.figures and each.why), "")
    return (
        f"contradiction ({found.check}): {found.figure} is printed as {found.printed:.8g} {found.unit}, by {' and '.join(found.against)} it "
        f"is {found.recomputed:.6g} ({100 * found.difference:+.1f} %){why}"
    )


def _conditions(of: Conditions, gpus: Mapping[str, str]) -> list[str]:
    """The conditions of a figure: network, hardware, software, devices, batch, precision, and the baseline it is relative to."""
    on = f" on {of.nodes} nodes" if of.nodes and of.nodes > 1 else ""
    devices = f"{of.gpus} GPU{'' if of.gpus == 1 else 's'}{on}" if of.gpus else None
    each = of.batch_per_gpu and f"batch {of.batch_per_gpu} each"
    batch = each or (of.global_batch and f"batch {of.global_batch} in all") or (of.batch and f"batch {of.batch}")
    versus = of.versus.stated.items() if of.versus else ()
    against = ", ".join(f"{name} {'/'.join(map(str, values))}" for name, values in versus)
    parts = (
        (of.model, of.variant, of.mode, of.technique),
        (gpus.get(of.gpu or "", of.device or ("cpu" if of.gpus == 0 else None)), of.system, of.network),
        (of.framework, of.build, of.version, of.strategy, of.container, of.xla and "XLA"),
        (devices,),
        (batch,),
        (of.precision, of.data),
        (against and f"against {against}",),
    )
    return [", ".join(str(one) for one in part if one) for part in parts if any(part)]


def _value(figure: Figure, *, doubtful: bool) -> str:
    values = figure.value if isinstance(figure.value, tuple) else (figure.value,)
    sign = "about " if figure.approx else f"{figure.bound} " if figure.bound else ""
    unit = "" if figure.unit == "unstated" else f" {figure.unit}"
    return f"{sign}{', '.join(map(str, values))}{unit}{' (!)' if doubtful else ''}"


def _speedup(found: Scaled | None) -> str:
    if found is None:
        return ABSENT
    ideal = ", above the ideal" if found.efficiency_percent > 100 else ""  # noqa: PLR2004 - the ideal
    return f"{found.speedup:.2f} ({found.efficiency_percent:.0f} %{ideal})"


def _draw(path: Path, listed: Sequence[Listed], wanted: Wanted) -> None:
    from runner.report.published_plot import curves, curves_png, save

    found = tuple(curve for each in listed for curve in curves(each.published, each.scaled))
    what = ", ".join(name for name in (wanted.model, wanted.framework, wanted.source) if name) or "all sources"
    if not found:
        raise RequestError(
            f"published figures of {what} do not cover several numbers of devices; choose others, e.g. --model resnet50"
        )
    save(path, curves_png(found, title=f"Published scaling: {what}"))
