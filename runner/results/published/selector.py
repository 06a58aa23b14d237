"""Which figures, or which runs, a finding or a ratio speaks of: conditions, each with one value or several that are allowed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PositiveInt

from runner.core.frozen import Frozen


def _several(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


Names = Annotated[tuple[str, ...], BeforeValidator(_several, json_schema_input_type=str | tuple[str, ...])]
Counts = Annotated[tuple[int, ...], BeforeValidator(_several, json_schema_input_type=int | tuple[int, ...])]


class Selector(Frozen):
    """Conditions that all hold; one with several values holds for each of them, one that is None for any.

    Attributes:
        gpus_above, nodes_above: more than so many.
        epoch: after so many.
        state: `training` or `idle`.
        case: one of those that a block of the run matrix lists.
        others: as in `model.Conditions`.
    """

    framework: Names | None = None
    build: Names | None = None
    technique: Names | None = None
    model: Names | None = None
    mode: Names | None = None
    gpu: Names | None = None
    device: Names | None = None
    gpus: Counts | None = None
    gpus_above: PositiveInt | None = None
    nodes: Counts | None = None
    nodes_above: PositiveInt | None = None
    system: Names | None = None
    network: Names | None = None
    batch_per_gpu: Counts | None = None
    batch: Counts | None = None
    precision: Names | None = None
    data: Names | None = None
    epoch: PositiveInt | None = None
    state: Literal["training", "idle"] | None = None
    case: Names | None = None

    @property
    def stated(self) -> dict[str, tuple[Any, ...]]:
        """The allowed values of each condition that is named, without `..._above`."""
        return {name: value for name in type(self).model_fields if isinstance(value := getattr(self, name), tuple)}


Axis = Literal[
    "framework",
    "model",
    "model_size",
    "mode",
    "gpu",
    "gpu_index",
    "gpus",
    "nodes",
    "batch",
    "batch_per_gpu",
    "precision",
    "learning_rate",
    "iterations",
]
"""What a finding lets vary; `model_size` is the number of parameters."""
