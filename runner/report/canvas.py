"""What all plots share: the sheet, the colours, the grid, the small print under it, and a PNG that is the same each time.

Colours are Okabe and Ito's, told apart with any colour vision (https://jfly.uni-koeln.de/color/).
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patheffects import AbstractPathEffect

BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
SERIES: Final = (BLUE, VERMILION, "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Colours of curves beside each other, in the order to take them."""
INK: Final = "#222222"
QUIET: Final = "#767676"
GRID: Final = "#E4E4E4"
SMALL_PRINT: Final = "#555555"
DPI: Final = 160


def sheet(width: float, height: float, *, top: float) -> Figure:
    """An empty sheet, `DPI` pixels to an inch, whose panels lay themselves out below a title, in the share `top` of its height."""
    # The object interface alone: pyplot would look for a display and keep every figure alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (matplotlib takes half a second to import)
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), facecolor="white")
    figure.set_layout_engine("constrained", rect=(0, 0, 1, top), w_pad=0.16, h_pad=0.1, wspace=0.06, hspace=0.06)
    FigureCanvasAgg(figure)
    return figure


def png(figure: Figure | None) -> bytes | None:
    """The sheet as a PNG, the same bytes for the same sheet; None for none."""
    if figure is None:
        return None
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=DPI, metadata={"Software": None})
    return held.getvalue()


def title(figure: Figure, *lines: str) -> None:
    """The first line in bold, the others below it, in the part of the sheet that panels leave free."""
    height = figure.get_figheight()
    for number, line in enumerate(lines):
        style = {"fontsize": 14, "fontweight": "bold"} if number == 0 else {"fontsize": 10.5}
        below = 0.15 if number == 0 else 0.24 + 0.21 * number  # inches from the top
        figure.text(0.02, 1 - below / height, line, color=INK, va="top", **style)


def footer(figure: Figure, lines: Iterable[str], *, characters: int) -> None:
    """Small print under the panels, wrapped at so many characters."""
    figure.supxlabel(
        "\n".join(part for line in lines for part in textwrap.wrap(line, characters)),
        x=0.02,
        ha="left",
        fontsize=8.5,
        color=SMALL_PRINT,
    )


def halo() -> list[AbstractPathEffect]:
    """What keeps a word readable where it crosses a line."""
    from matplotlib.patheffects import withStroke  # noqa: PLC0415

    return [withStroke(linewidth=3, foreground="white")]


def dress(axes: Axes, label: str, *, along: Literal["x", "y"], fontsize: float = 11) -> None:
    """Name the axis that values are read `along`, and keep of the frame only the line that they stand on."""
    getattr(axes, f"set_{along}label")(label, fontsize=fontsize, color=INK)
    axes.grid(visible=True, axis=along, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=fontsize - 1, colors=INK, length=0)
    stands_on = "bottom" if along == "y" else "left"
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(side == stands_on)
    axes.spines[stands_on].set_color(QUIET)
