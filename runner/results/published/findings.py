"""Quantities of published sources with their units, and their findings as predicates on figures, published or measured.

Units are checked: a throughput in percent is a slip. Tolerances are this project's: no source states one.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, model_validator

from runner.core.frozen import Frozen

RateUnit = Literal["images/s", "sequences/s", "sentences/s", "tokens/s"]
TimeUnit = Literal["us", "ms", "s", "min", "h", "days", "weeks"]
BytesUnit = Literal["MB", "GB", "MiB", "GiB"]
Other = Literal[
    "GB/s", "Gb/s", "TFLOP/s", "SMs", "cores", "images", "classes", "pixels", "epochs", "iterations", "nats", "°C"
]
Unit = Literal[RateUnit, TimeUnit, "%", "x", "W", "MHz", BytesUnit, Other, "unstated"]
"""`x` is a ratio; `unstated` means that the source prints no unit and none can be inferred from it."""

RATE: Final[tuple[Unit, ...]] = get_args(RateUnit)
TIME: Final[tuple[Unit, ...]] = get_args(TimeUnit)
BYTES: Final[tuple[Unit, ...]] = get_args(BytesUnit)

_METRICS: Final[tuple[tuple[tuple[Unit, ...], str], ...]] = (
    # of a whole job, or of each of its devices
    (RATE, "throughput throughput_per_gpu"),
    (TIME, "training_time total_time full_training_time iteration_time inference_time time_per_batch"),
    (TIME, "time_forward time_backward time_forward_backward"),
    (TIME, "time_to_train_runs time_to_train_score time_to_train_median"),
    (("%",), "steady_time_share accuracy"),
    (("nats",), "train_loss val_loss"),
    (("epochs",), "epochs_to_converge"),
    (("unstated",), "perf"),
    # one configuration relative to another
    (("x",), "speedup speed_ratio throughput_ratio time_ratio"),
    (("%",), "throughput_gain scaling_efficiency"),
    # telemetry of the devices
    (("%",), "gpu_utilisation gpu_utilisation_min gpu_utilisation_avg gpu_utilisation_max"),
    (("%",), "gpu_compute_utilisation fp32_utilisation fp32_utilisation_unweighted"),
    (BYTES, "gpu_memory"),
    (("W",), "power_idle power_min power_avg power_max node_power_mean_per_run"),
    (("°C",), "temperature_min temperature_avg temperature_max"),
    (("TFLOP/s",), "achievable_matmul_tflops"),
    # from a profiler
    (("%",), "kernel_concurrency compute_time_share nccl_broadcast_time_share winograd_time_share"),
    (("%",), "maxpoolbackward_time_share memory_api_time_shares cudaLaunchKernel_api_time_share"),
    (("%",), "cudaEventDestroy_api_time_share kernel_fp32_utilisation"),
    (("%",), "memory_copy_throughput_figure kernel_time_share copy_overlap"),
    (TIME, "concurrent_kernel_time profiled_time"),
    (("x",), "average_flop_count average_flop_count_of_model"),
    (BYTES, "copy_size"),
    (("GB/s",), "copy_throughput"),
    # hardware, settings and lengths of runs
    (("TFLOP/s",), "fp64_peak fp32_peak"),
    (BYTES, "memory last_level_cache"),
    (("GB/s",), "memory_bandwidth host_gpu_bus_bandwidth"),
    (("Gb/s",), "ethernet_bandwidth infiniband_bandwidth"),
    (("MHz",), "memory_clock clock"),
    (("W",), "tdp"),
    (("SMs",), "multiprocessors"),
    (("cores",), "cores tensor_cores cpu_cores_total"),
    (("pixels",), "image_size"),
    (("images",), "training_images validation_images inference_images samples_per_run"),
    (("classes",), "classes"),
    (("epochs",), "training_epochs full_training_epochs"),
    (("iterations",), "profile_start_after profiled_iterations"),
    (TIME, "profiler_timeout job_time_limit"),
)
METRICS: Final[Mapping[str, tuple[Unit, ...]]] = {name: units for units, names in _METRICS for name in names.split()}
"""Every quantity that a figure or a finding may name, with its units."""


def _known(metric: str) -> str:
    if metric not in METRICS:
        raise ValueError(f"no such metric; known: {', '.join(sorted(METRICS))}")
    return metric


Metric = Annotated[str, AfterValidator(_known)]


Level = str | int
Comparison = Literal["<", "<=", ">", ">="]
_IN_WORDS: Final = {"<": "less than", "<=": "at most", ">": "more than", ">=": "at least", "in": "between"}


def _as_tuple(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple, json_schema_input_type=str | tuple[str, ...])]
Counts = Annotated[tuple[int, ...], BeforeValidator(_as_tuple, json_schema_input_type=int | tuple[int, ...])]


class Selector(Frozen):
    """Selects figures by conditions, as in `model.Conditions`; all must hold. Several values are alternatives; None allows any value.

    Attributes:
        gpus_above, nodes_above: exclusive lower limits.
        epoch: number of completed epochs.
        case: one of the cases of a block of the run matrix.
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
        """The allowed values of each stated condition, without those that are no lists (`..._above`, `epoch`, `state`)."""
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
"""Conditions that a finding varies; `model_size` is the number of parameters."""


class _OfMetric(Frozen):
    """A predicate on one quantity of the runs that `for_all` selects, checked separately for each combination of the values in `for_all`."""

    metric: Metric
    for_all: Selector = Selector()

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """All its selectors of figures."""
        return tuple(value for name in type(self).model_fields if isinstance(value := getattr(self, name), Selector))


class Monotonic(_OfMetric):
    """Increases or decreases monotonically along an axis, at its `levels` or at all values with figures."""

    type: Literal["monotonic"]
    over: Axis
    direction: Literal["increasing", "decreasing"]
    levels: tuple[Level, ...] = ()


class Compare(_OfMetric):
    """`lhs` `op` `rhs` holds for every pair of their figures that agree in the conditions of `same`."""

    type: Literal["compare"]
    lhs: Selector
    op: Comparison
    rhs: Selector
    same: tuple[str, ...] = ()


class Ratio(_OfMetric):
    """`num` ÷ `den` is `value`, within the relative tolerance `rel_tol`."""

    type: Literal["ratio"]
    num: Selector
    den: Selector
    value: Decimal
    rel_tol: float


class Bound(_OfMetric):
    """Stays on one side of a value, or with `in` between two values, ends included; `limit_by` says who set them."""

    type: Literal["bound"]
    op: Comparison | Literal["in"]
    value: Decimal | tuple[Decimal, Decimal]
    unit: Unit
    select: Selector = Selector()
    limit_by: Literal["source", "project"] = "source"

    @property
    def limit(self) -> str:
        """The limit in words, such as `at least 80 %`."""
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        return f"{_IN_WORDS[self.op]} {' and '.join(map(str, values))} {self.unit}"


class Order(_OfMetric):
    """Decreases from each level in `descending` to the next."""

    type: Literal["order"]
    over: Axis
    descending: tuple[Level, ...]


class NoDifference(_OfMetric):
    """Does not differ significantly along any of these axes, at their `levels` or at all values; with `differs`, differs.

    `select` selects the figures on either side, which are pooled over its values.
    """

    type: Literal["no_difference"]
    over: tuple[Axis, ...]
    select: Selector = Selector()
    levels: tuple[Level, ...] = ()
    differs: bool = False


class Named(_OfMetric):
    """Each of `names` is part of the name of a kernel or call with a value: among the `largest` of each run, or among all."""

    type: Literal["names"]
    names: Annotated[tuple[str, ...], Field(min_length=1)]
    largest: PositiveInt | None = None


class Steady(_OfMetric):
    """Is constant after so many iterations (None: from some point on); with `window`, the first so many of them represent all that follow."""

    type: Literal["steady"]
    after_iterations: PositiveInt | None = None
    window: PositiveInt | None = None

    @model_validator(mode="after")
    def _window_has_a_beginning(self) -> Steady:
        if self.window is not None and self.after_iterations is None:
            raise ValueError("window needs after_iterations")
        return self


Simple = Monotonic | Compare | Ratio | Bound | Order | NoDifference | Named | Steady


class All(Frozen):
    """All of these predicates hold."""

    type: Literal["all"]
    of: tuple[Annotated[Simple, Field(discriminator="type")], ...]


Predicate = Annotated[Simple | All, Field(discriminator="type")]

_NOT_STATED: Final = {
    "computed": "computed from its figures",
    "assumed": "assumed by its method",
    "extrapolated": "extrapolated by it",
    "reading": "our reading of it",
}


class Finding(Frozen):
    """One conclusion.

    Attributes:
        says: the conclusion in our words.
        basis: `stated` by the source, in a `table` or `computed` from figures that it prints, `assumed` by its method, `extrapolated` by
            it, or a `reading`: its words leave the exact comparison to the reader.
        where: place in the document.
    """

    id: str
    says: str
    basis: Literal["stated", "table", "computed", "assumed", "extrapolated", "reading"]
    where: str
    predicate: Predicate

    @property
    def parts(self) -> tuple[Simple, ...]:
        """Its claims, one by one."""
        return self.predicate.of if isinstance(self.predicate, All) else (self.predicate,)

    @property
    def tested(self) -> str:
        """What it says, with what the source does not: its basis unless stated or in a table, and limits that the source left open."""
        notes = [_NOT_STATED[self.basis]] if self.basis in _NOT_STATED else []
        ours = [part.limit for part in self.parts if isinstance(part, Bound) and part.limit_by == "project"]
        notes += [f"judged by a limit of this project: {', '.join(ours)}"] if ours else []
        return f"{self.says} ({'; '.join(notes)})" if notes else self.says
