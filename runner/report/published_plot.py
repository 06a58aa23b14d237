"""Published scaling curves as a PNG: speedup and efficiency against devices, a line each configuration, colours by source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

from runner.report import canvas
from runner.report.canvas import INK, QUIET, SERIES
from runner.results.published.derive import Scaled, Scaling
from runner.results.published.model import Published

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Sheet

_MARKERS: Final = "osD^vP*X<>"
_STYLES: Final = ("-", "--", ":", "-.")
_TELLING: Final[tuple[str, ...]] = (
    *("model", "variant", "framework", "build", "version", "strategy", "technique", "xla", "gpu", "system"),
    *("submitter", "batch_per_gpu", "batch", "sequence_length", "precision", "data"),
)
"""Conditions that tell a source's curves apart, in the order in which the legend names them."""
_SMALL_PRINT: Final = (
    "Computed again from the throughputs that each source prints. A curve that begins with n devices begins on the ideal line, at n: what "
    "those gain over one is not known. The ideal is as many times the speed as there are times the devices."
)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One configuration of a source.

    Attributes:
        source: its id.
        label: the source, and what tells this configuration from its others.
        scaling: whether the batch of a device stays, or that of all.
        points: (devices, speedup over one of them), rising.
    """

    source: str
    label: str
    scaling: Scaling
    points: tuple[tuple[int, float], ...]


def curves(published: Published, found: Sequence[Scaled]) -> tuple[Curve, ...]:
    """The curves of a source; where it has several figures of as many devices, the first of them is drawn."""
    groups: dict[tuple[str, Scaling], list[Scaled]] = {}
    for each in found:
        groups.setdefault((each.baseline.id, each.scaling), []).append(each)
    settings = [_settings(published, group[0]) for group in groups.values()]
    telling = _telling(settings)
    drawn = []
    for (_, scaling), group, setting in zip(groups, groups.values(), settings, strict=True):
        first = group[0].baseline.conditions.gpus or 1
        points = {first: float(first)}
        for each in group:
            points.setdefault(each.figure.conditions.gpus or 1, each.speedup * first)
        if len(points) > 1:
            details = [setting[name] for name in telling if name in setting]
            label = ": ".join([published.id, *([", ".join(details)] if details else [])])
            drawn.append(Curve(source=published.id, label=label, scaling=scaling, points=tuple(sorted(points.items()))))
    return tuple(drawn)


def _telling(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The conditions that tell curves apart; names of machines, which are long, only where nothing else does."""
    differ = [name for name in (*_TELLING, "scaling") if len({setting.get(name) for setting in settings}) > 1]
    short = [name for name in differ if name != "system"]
    told = {tuple(setting.get(name) for name in short) for setting in settings}
    return short if len(told) == len(settings) else differ


def _settings(published: Published, one: Scaled) -> dict[str, str]:
    stated = one.baseline.conditions.stated
    gpus = {gpu.id: gpu.model for gpu in published.hardware.gpus}
    words = {name: str(stated[name]) for name in _TELLING if name in stated}
    if "gpu" in words:
        words["gpu"] = gpus.get(words["gpu"], words["gpu"])
    if "batch_per_gpu" in words:
        words["batch_per_gpu"] += " each"
    if "xla" in words:
        words["xla"] = "XLA"
    return {**words, "scaling": one.scaling}


def curves_png(found: Sequence[Curve], *, title: str) -> bytes:
    """Draw curves on logarithmic axes, the legend beside them; as high as the legend needs."""
    return canvas.png(curves_figure(found, title=title)) or b""


def curves_figure(found: Sequence[Curve], *, title: str) -> Sheet:
    """The sheet of `curves_png`: speedup above, efficiency below."""
    height = max(8.0, 1.6 + 0.165 * (len(found) + 2))
    figure = canvas.sheet(14, height, top=1 - 0.5 / height, margins=(0.18, 0.1))
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[1.5, 1])
    most = max(devices for curve in found for devices, _ in curve.points)
    top.plot([1, most], [1, most], color=QUIET, linewidth=1.2, linestyle="--", label="ideal")
    bottom.axhline(100, color=QUIET, linewidth=1.2, linestyle="--")
    sources = list(dict.fromkeys(curve.source for curve in found))
    for source_number, source in enumerate(sources):
        for number, curve in enumerate(curve for curve in found if curve.source == source):
            look: _Look = {
                "color": SERIES[source_number % len(SERIES)],
                "linestyle": _STYLES[number // len(_MARKERS) % len(_STYLES)],
                # Sources beyond the colours begin them anew with other markers.
                "marker": _MARKERS[(number + 3 * (source_number // len(SERIES))) % len(_MARKERS)],
                "markersize": 4.5,
                "linewidth": 1.2,
            }
            scales = [devices for devices, _ in curve.points]
            top.plot(scales, [speedup for _, speedup in curve.points], label=curve.label, **look)
            bottom.plot(scales, [100 * speedup / devices for devices, speedup in curve.points], **look)
    ticks = [2**power for power in range(most.bit_length())]
    top.set_xscale("log", base=2)
    top.set_yscale("log", base=2)
    top.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    top.minorticks_off()
    canvas.dress(top, "speedup", along="y")
    bottom.set_ylim(0, bottom.get_ylim()[1])
    bottom.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    bottom.minorticks_off()
    bottom.set_xlabel("devices", fontsize=11, color=INK)
    canvas.dress(bottom, "efficiency (%)", along="y")
    figure.align_ylabels()
    figure.legend(loc="outside right upper", frameon=False, fontsize=7.5, labelspacing=0.35)
    canvas.title(figure, title)
    canvas.footer(figure, [_SMALL_PRINT], characters=150)
    return figure


class _Look(TypedDict):
    """How a curve is drawn, the same in both panels."""

    color: str
    linestyle: str
    marker: str
    markersize: float
    linewidth: float
