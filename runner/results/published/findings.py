"""What a source concluded, as predicates that can be held against figures: its own, or measured ones.

Each says over which quantity it speaks, what it compares, and for which runs it claims to hold. Tolerances are this project's: no
source states one.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, field_validator

from runner.core.frozen import Frozen
from runner.results.published.selector import Axis, Selector
from runner.results.published.units import METRICS, Unit

Level = str | int
Comparison = Literal["<", "<=", ">", ">="]


class _OfMetric(Frozen):
    """Speaks of one quantity, in the runs that `for_all` allows; each combination of its values is a case of its own."""

    metric: str
    for_all: Selector = Selector()

    @field_validator("metric")
    @classmethod
    def _is_known(cls, metric: str) -> str:
        if metric not in METRICS:
            raise ValueError(f"no such metric; known: {', '.join(sorted(METRICS))}")
        return metric


class Monotonic(_OfMetric):
    """Goes one way only along an axis, at its `levels` or wherever there are figures."""

    type: Literal["monotonic"]
    over: Axis
    direction: Literal["increasing", "decreasing"]
    levels: tuple[Level, ...] = ()


class Compare(_OfMetric):
    """Every figure of `lhs` stands so to every one of `rhs` that agrees with it in the conditions of `same`."""

    type: Literal["compare"]
    lhs: Selector
    op: Comparison
    rhs: Selector
    same: tuple[str, ...] = ()


class Ratio(_OfMetric):
    """`num` ÷ `den` is `value`, give or take the share `rel_tol` of it."""

    type: Literal["ratio"]
    num: Selector
    den: Selector
    value: Decimal
    rel_tol: float


class Bound(_OfMetric):
    """Stays on one side of a value, or with `in` between two; `limit_by` says whose the value is."""

    type: Literal["bound"]
    op: Comparison | Literal["in"]
    value: Decimal | tuple[Decimal, Decimal]
    unit: Unit
    select: Selector = Selector()
    limit_by: Literal["source", "project"] = "source"


class Approximately(_OfMetric):
    """Is `value`, give or take `abs_tol` in the same unit."""

    type: Literal["approximately"]
    select: Selector
    value: Decimal
    unit: Unit
    abs_tol: float


class Order(_OfMetric):
    """Falls from each of `descending` to the next."""

    type: Literal["order"]
    over: Axis
    descending: tuple[str, ...]


class Ends(_OfMetric):
    """Is largest at `first` and smallest at `last`."""

    type: Literal["ends"]
    over: Axis
    first: str
    last: str


class Extreme(_OfMetric):
    """Is largest, or smallest, at one place of an axis."""

    type: Literal["largest", "smallest"]
    over: Axis
    at: Level


class NoDifference(_OfMetric):
    """Does not differ significantly along any of these axes, at their `levels` or at all."""

    type: Literal["no_difference"]
    over: tuple[Axis, ...]
    levels: tuple[Level, ...] = ()


class Differs(_OfMetric):
    """Is another at `lhs` than at each of `rhs`, in a direction that is not stated."""

    type: Literal["differs"]
    over: Axis
    lhs: str
    rhs: tuple[str, ...]


class Hump(_OfMetric):
    """First rises and then falls along the levels (`hump`), or the other way round (`valley`)."""

    type: Literal["hump", "valley"]
    over: Axis
    levels: tuple[Level, ...]
    near: int | None = None


class Steady(_OfMetric):
    """Does not change any more after so many iterations (None: after a while), looked at over a `window` of them."""

    type: Literal["steady"]
    after_iterations: int | None = None
    window: int | None = None


class RunsKernel(Frozen):
    """A kernel of this name runs on this GPU."""

    type: Literal["runs_kernel"]
    gpu: str
    kernel: str


class Top(_OfMetric):
    """These are the largest."""

    type: Literal["top"]
    names: tuple[str, ...]


class Flags(Frozen):
    """The profiler raises these remarks."""

    type: Literal["flags"]
    names: tuple[str, ...]
    select: Selector = Selector()


class Product(Frozen):
    """The product of these settings is the same along an axis."""

    type: Literal["constant_product"]
    of: tuple[Literal["batch", "iterations"], ...]
    over: Axis
    for_all: Selector = Selector()


class Quotient(Frozen):
    """`whole` is `numerator` ÷ `denominator`, give or take the share `rel_tol` of it."""

    type: Literal["quotient"]
    whole: str
    numerator: str
    denominator: str
    rel_tol: float


Simple = (
    Monotonic
    | Compare
    | Ratio
    | Bound
    | Approximately
    | Order
    | Ends
    | Extreme
    | NoDifference
    | Differs
    | Hump
    | Steady
    | RunsKernel
    | Top
    | Flags
    | Product
    | Quotient
)


class All(Frozen):
    """All of them hold."""

    type: Literal["all"]
    of: tuple[Annotated[Simple, Field(discriminator="type")], ...]


Predicate = Annotated[Simple | All, Field(discriminator="type")]


class Finding(Frozen):
    """One conclusion.

    Attributes:
        says: in our words.
        basis: `stated` by the source, `table` or `computed` from figures that it prints, `assumed` by its method, `extrapolated` by
            it, or a `reading`: it says it in words that leave the exact comparison to the reader.
        where: where in the document.
    """

    id: str
    says: str
    basis: Literal["stated", "table", "computed", "assumed", "extrapolated", "reading"]
    where: str
    predicate: Predicate
