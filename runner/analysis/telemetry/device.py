"""The samples of one device of one node, and the questions put to them: each answer that is missing is kept with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from runner.analysis.telemetry.series import Floats, Found, Series
from runner.analysis.telemetry.stretches import Stretches
from runner.core.telemetry import Missing, Range

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

Value = TypeVar("Value")

# Of GPM or DCGM, all means since the sample before.
PIPES: Final = (
    "fp32_percent",
    "sm_active_percent",
    "sm_occupancy_percent",
    "tensor_percent",
    "fp16_percent",
    "fp64_percent",
    "dram_percent",
)
OF_COUNTERS: Final = (*PIPES, "pcie_rx_rate", "pcie_tx_rate", "nvlink_rx_rate", "nvlink_tx_rate")
NEVER: Final = "the sampler told nothing of it"
# Seconds between samples of what the sampler asks more seldom than all else (`workloads/monitor_nvml.py`, `monitor_host.py`).
SELDOM_S: Final = (
    dict.fromkeys(("clock_mhz", "ecc_corrected", "ecc_uncorrected"), 1.0)
    | dict.fromkeys(("energy_j", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes"), 0.5)
    | dict.fromkeys(OF_COUNTERS, 0.1)
)

# Seconds that energy and power take: sensors tell what was up to a second before, and counters are read twice a second.
SHORTEST_S: Final = 2.0


class Device:
    """One device's rows of table `telemetry`, asked column by column; `missing` is what could not be answered.

    Attributes:
        node, device: its names.
        measured: when figures were measured.
        t: (rows,) seconds of the node's clock.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        *,
        node: str,
        device: str,
        hz: float,
        measured: Stretches,
        told: Mapping[str, str],
        fell_silent: str | None = None,
    ) -> None:
        """Take the rows of one device.

        Args:
            frame: table `telemetry`, all devices of all nodes.
            node: the node's name.
            device: `gpu0`, ..., or `host`.
            hz: samples a second that were asked for.
            measured: when figures were measured, on the node's clock.
            told: by column, why the sampler says that it has none, or no more.
            fell_silent: why the sampler did not go on; counts where there is no sample after the span.
        """
        self.node, self.device, self.measured = node, device, measured
        self._rows = frame[(frame["node"] == node) & (frame["device"] == device)]
        self.t: Floats = self._rows["t"].to_numpy(dtype=np.float64)
        self._period_s = 1 / hz
        self._told = told
        self._fell_silent = fell_silent
        self._lacking: dict[str, list[str]] = {}

    def lists(self, column: str) -> list[list[Any] | npt.NDArray[Any] | None]:
        """Lists of a column that holds lists, one a row; None where there is none. Parquet gives them back as arrays."""
        return [cell if isinstance(cell, list | np.ndarray) else None for cell in self._rows[column]]

    def series(self, column: str) -> Series:
        """A column of numbers as a series."""
        values = self._rows[column].to_numpy(dtype=np.float64, na_value=np.nan)
        return Series(self.t, values, max(self._period_s, SELDOM_S.get(column, 0)))

    def series_of(self, values: Floats) -> Series:
        """Numbers, one a row, as a series."""
        return Series(self.t, values, self._period_s)

    def ask(self, column: str, question: Callable[[Series], Found[Value]]) -> Value | None:
        """Put a question to a column's series, and keep why where the answer is none or not of the whole span."""
        return self.answer(column, self.series(column), question)

    def answer(self, column: str, series: Series, question: Callable[[Series], Found[Value]]) -> Value | None:
        """The same for a series that was made from the column."""
        found = question(series)
        if found.why is not None:
            self.lack(column, found.why if np.isfinite(series.values).any() else NEVER)
        return found.value

    def lack(self, column: str, why: str) -> None:
        """Keep that something of a column can't be had; what the sampler said of it goes before what was found."""
        if self._fell_silent and not (self.t > self.measured.whole.end).any():
            why = self._fell_silent
        columns = self._lacking.setdefault(self._told.get(column, why), [])
        if column not in columns:
            columns.append(column)

    def gauge(self, column: str) -> Range | None:
        """Range of a gauge over the measured span."""
        return self.ask(column, lambda series: self.measured.overall(series.gauge))

    def mean(self, column: str) -> Range | None:
        """Range of means since the row before over the measured span."""
        return self.ask(column, lambda series: self.measured.overall(series.mean))

    def long_enough(self, *columns: str) -> bool:
        """Whether the measured span is long enough for energy and power; keeps of these columns that it is not."""
        seconds = self.measured.seconds
        if seconds < SHORTEST_S:
            for column in columns:
                self.lack(column, f"{seconds:.3g} s were measured; energy and power take {SHORTEST_S:g} s")
        return seconds >= SHORTEST_S

    def power(self, energy_j: float | None, samples: Range | None) -> Range | None:
        """Energy ÷ time over the measured span, between the smallest and the largest of samples in watts; None without both."""
        if energy_j is None or samples is None:
            return None
        return samples.model_copy(update={"avg": energy_j / self.measured.seconds})

    def risen(self, column: str) -> int | None:
        """Whole units by which a counter rose in the measured span."""
        return whole(self.ask(column, lambda series: self.measured.total(series.risen)))

    @property
    def missing(self) -> tuple[Missing, ...]:
        """What could not be answered so far, one entry a reason."""
        return tuple(
            Missing(node=self.node, device=self.device, fields=tuple(columns), reason=reason)
            for reason, columns in self._lacking.items()
        )


def whole(value: float | None) -> int | None:
    """A count that was read between two samples, rounded."""
    return None if value is None else round(value)


def reasons(columns: Iterable[str], why: str | None) -> dict[str, str]:
    """One reason for several columns; none without one."""
    return dict.fromkeys(columns, why) if why else {}
