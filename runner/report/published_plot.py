"""Published scaling curves as a PNG: speedup and efficiency against devices, one line per configuration."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from runner.core.errors import RequestError
from runner.report import picture
from runner.report.page.model import Figure, Series
from runner.results.published.derive import Scaled, Scaling
from runner.results.published.model import Published

_DISTINGUISHING: Final[tuple[str, ...]] = (
    *("model", "variant", "framework", "build", "version", "strategy", "technique", "xla", "gpu", "system"),
    *("submitter", "batch_per_gpu", "batch", "sequence_length", "precision", "data"),
)
"""Conditions that can distinguish a source's curves, in the order of the legend."""
_SMALL_PRINT: Final = (
    "Computed again from the throughputs that each source prints. A curve that begins with n devices begins on the ideal line, at n: what "
    "those gain over one is not known. The ideal is as many times the speed as there are times the devices."
)


class Curve(NamedTuple):
    """One configuration of a source: its label, and (devices, speedup over one device), by devices ascending."""

    label: str
    points: tuple[tuple[int, float], ...]


def curves(published: Published, found: Sequence[Scaled]) -> tuple[Curve, ...]:
    """The curves of a source; of several figures at the same number of devices, the first is drawn."""
    groups: dict[tuple[str, Scaling], list[Scaled]] = {}
    for each in found:
        groups.setdefault((each.baseline.id, each.scaling), []).append(each)
    settings = [_conditions(published, group[0]) for group in groups.values()]
    distinguishing = _distinguishing(settings)
    drawn = []
    for group, setting in zip(groups.values(), settings, strict=True):
        first = group[0].baseline.conditions.gpus or 1
        points = {first: float(first)}
        for each in group:
            points.setdefault(each.figure.conditions.gpus or 1, each.speedup * first)
        if len(points) > 1:
            details = [setting[name] for name in distinguishing if name in setting]
            label = ": ".join([published.id, *([", ".join(details)] if details else [])])
            drawn.append(Curve(label, tuple(sorted(points.items()))))
    return tuple(drawn)


def _distinguishing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The conditions that distinguish the curves; names of systems, which are long, only if nothing else does."""
    differ = [name for name in (*_DISTINGUISHING, "scaling") if len({setting.get(name) for setting in settings}) > 1]
    short = [name for name in differ if name != "system"]
    distinct = {tuple(setting.get(name) for name in short) for setting in settings}
    return short if len(distinct) == len(settings) else differ


def _conditions(published: Published, one: Scaled) -> dict[str, str]:
    stated = one.baseline.conditions.stated
    gpus = {gpu.id: gpu.model for gpu in published.hardware.gpus}
    words = {name: str(stated[name]) for name in _DISTINGUISHING if name in stated}
    if "gpu" in words:
        words["gpu"] = gpus.get(words["gpu"], words["gpu"])
    if "batch_per_gpu" in words:
        words["batch_per_gpu"] += " each"
    if "xla" in words:
        words["xla"] = "XLA"
    return {**words, "scaling": one.scaling}


def curves_png(found: Sequence[Curve], *, title: str) -> bytes:
    """Draw curves with the legend next to them; the picture is as high as the legend needs."""
    return picture.png(*panels(found), title=title, lines=(_SMALL_PRINT,)) or b""


def save(path: Path, made: bytes | None) -> None:
    """Write a picture to the file given by --plot, and say so. Raises RequestError if it can't be written."""
    try:
        path.write_bytes(made or b"")
    except OSError as error:
        raise RequestError(
            f"{path}: can't be written ({error.strerror}); give another file with --plot FILE.png"
        ) from error
    sys.stderr.write(f"plot: {path}\n")


def panels(found: Sequence[Curve]) -> tuple[Figure, Figure]:
    """Speedup against the ideal, and efficiency below it."""
    most = float(max(devices for curve in found for devices, _ in curve.points))
    ideal = Series(name="ideal", kind="ideal", x=(1.0, most), y=(1.0, most))

    def drawn(name: str, y: str, value: Callable[[int, float], float], *more: Series) -> Figure:
        series = tuple(
            Series(
                name=curve.label,
                x=tuple(float(devices) for devices, _ in curve.points),
                y=tuple(value(devices, speedup) for devices, speedup in curve.points),
            )
            for curve in found
        )
        percent = name == "efficiency"
        return Figure(name=name, title=y, x="devices", y=y, log=True, percent=percent, series=(*series, *more))

    return (
        drawn("speedup", "speedup", lambda _, speedup: speedup, ideal),
        drawn("efficiency", "efficiency (%)", lambda devices, speedup: 100 * speedup / devices),
    )
