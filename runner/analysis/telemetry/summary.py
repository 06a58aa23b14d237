"""Samples of all nodes → `Telemetry`: which devices there are, why something of them is missing, and what all of them come to."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from runner.analysis.telemetry.device import PIPES, Device, reasons
from runner.analysis.telemetry.gpu import gpu_figures
from runner.analysis.telemetry.host import host_figures
from runner.analysis.telemetry.stretches import stretches
from runner.core.events import Event
from runner.core.events.monitor import MonitoredGpu, MonitorStart, MonitorStop, Trouble
from runner.core.telemetry import GpuTelemetry, HostTelemetry, Missing, NodeSpans, Telemetry

if TYPE_CHECKING:
    import pandas as pd

HOST: Final = "host"
OF_PSUTIL: Final = (
    "core_percent",
    "memory_mib",
    "disk_read_bytes",
    "disk_write_bytes",
    "net_rx_bytes",
    "net_tx_bytes",
    "clock_mhz",
)


def summarize(
    frame: pd.DataFrame | None,
    events: Sequence[Event],
    *,
    spans: Sequence[NodeSpans],
    monitors: Mapping[str, str],
    samples: float,
    seconds: float,
    device: Literal["cpu", "gpu"],
    own: Collection[str] = (),
) -> Telemetry | None:
    """Compute every figure of the measured spans.

    Args:
        frame: table `telemetry`, with all columns of the contract and `node`, rows in the order in which they came; None for no table.
        events: all events of the run.
        spans: when each node was measured (`node_spans`).
        monitors: by the sampler's container, its node.
        samples: what throughput counts of all ranks in the windows that count.
        seconds: of those windows.
        device: what trained, and so whose energy counts.
        own: what the kernel tells the job's containers by (`Outcome.containers`): processes of others are foreign.

    Returns:
        None where nothing was measured, or nobody was to look.
    """
    if not spans:
        return None
    nodes = [_Node(frame, events, span, monitors) for span in spans]
    for node in nodes:
        node.look(own)
    gpus = tuple(gpu for node in nodes for gpu in node.gpus)
    hosts = tuple(host for node in nodes for host in node.hosts)
    energies = [one.energy_j for one in (gpus if device == "gpu" else hosts)]
    known = [energy for energy in energies if energy is not None]
    complete = bool(known) and len(known) == len(energies) and all(node.complete for node in nodes)
    energy = math.fsum(known) if complete else None
    return Telemetry(
        hz=min((node.sampler.hz for node in nodes if node.sampler), default=None),
        device=device,
        spans=tuple(spans),
        samples=samples,
        seconds=seconds,
        gpus=gpus,
        hosts=hosts,
        energy_j=energy,
        samples_per_joule=samples / energy if energy else None,
        missing=tuple(entry for node in nodes for entry in node.missing),
    )


class _Node:
    """What one sampler said, and the figures of its devices.

    Attributes:
        sampler: its first word; None when it never spoke.
        complete: whether every device that it was to look at has figures.
    """

    def __init__(
        self, frame: pd.DataFrame | None, events: Sequence[Event], span: NodeSpans, monitors: Mapping[str, str]
    ) -> None:
        self._frame, self._span = frame, span
        said = [event for event in events if monitors.get(event.container) == span.node]
        self.sampler = next((event for event in said if isinstance(event, MonitorStart)), None)
        self._stop = next((event for event in said if isinstance(event, MonitorStop)), None)
        self._troubles = [event for event in said if isinstance(event, Trouble)]
        # What the runner says of a sampler that it can't hear any more is of no column.
        self._fell_silent = next((event.reason for event in self._troubles if not event.fields), None)
        self.gpus: list[GpuTelemetry] = []
        self.hosts: list[HostTelemetry] = []
        self.missing: list[Missing] = []
        self.complete = True

    def look(self, own: Collection[str]) -> None:
        """Compute the figures of every device."""
        if self.sampler is None or self._frame is None:
            self.complete = False
            for name in ("gpu", HOST):
                self._miss(name, (), self._fell_silent or "its sampler told nothing")
            return
        if not self.sampler.gpus:
            self._miss("gpu", (), self.sampler.sources.get("nvml") or "no NVIDIA device")
        for gpu in self.sampler.gpus:
            device = self._device(self._frame, self.sampler, f"gpu{gpu.index}", _no_pipes(gpu, self.sampler))
            self.gpus.append(gpu_figures(device, gpu, idle=self._span.gpus_idle or self._span.idle, own=own))
            self.missing += device.missing
        sources = self.sampler.sources
        told = reasons(OF_PSUTIL, sources.get("psutil")) | reasons(["energy_j"], sources.get("rapl"))
        device = self._device(self._frame, self.sampler, HOST, told)
        self.hosts.append(host_figures(device, self.sampler, self._stop, idle=self._span.idle))
        self.missing += device.missing
        seen = {HOST, *(f"gpu{gpu.index}" for gpu in self.sampler.gpus)}
        for trouble in self._troubles:
            if trouble.device not in seen:
                self.complete = False
                self._miss(trouble.device, trouble.fields, trouble.reason)

    def _device(self, frame: pd.DataFrame, sampler: MonitorStart, name: str, told: Mapping[str, str]) -> Device:
        end = self._span.measured.end
        troubles = [event for event in self._troubles if event.device == name and event.t <= end]
        return Device(
            frame,
            node=self._span.node,
            device=name,
            hz=sampler.hz,
            measured=stretches(self._span),
            told={**told, **{field: event.reason for event in troubles for field in event.fields}},
            fell_silent=self._fell_silent,
        )

    def _miss(self, device: str, fields: tuple[str, ...], reason: str) -> None:
        self.missing.append(Missing(node=self._span.node, device=device, fields=fields, reason=reason))


def _no_pipes(gpu: MonitoredGpu, sampler: MonitorStart) -> dict[str, str]:
    """Why nothing counts the cycles of a GPU's pipes."""
    if gpu.counters is not None:
        return {}
    said = [why for name in ("gpm", "dcgm") if (why := sampler.sources.get(name))]
    return reasons(PIPES, "; ".join(dict.fromkeys(said)))
