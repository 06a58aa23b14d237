"""What a record keeps of its raw files as it is, counted: files that give less than that have lost something since the run ended.

Figures that are computed are not counted: another version of the suite may give fewer of them from the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from runner.analysis.telemetry.series import GAP_PERIODS
from runner.core.record import EVENTS, RunRecord
from runner.core.telemetry import Telemetry

if TYPE_CHECKING:
    import pandas as pd

_OF_EVENTS: Final = (
    *("windows", "losses", "evaluations", "parameter_norms", "used", "probe", "epochs", "accuracy", "batch", "latency"),
    *("first_step_s", "parameters", "gradient_bytes", "images_decoded", "input_alone_per_s", "compiled"),
)
# Figures and columns that older versions had of spans too short for them.
_OF_LONG_SPANS: Final = frozenset({"power_w", "energy_j", "energy_method", "integrated_power_j"})
_KERNELS: Final = "its table kernels"
_TELEMETRY: Final = "its table telemetry"


def lost(old: RunRecord, new: RunRecord, samples: pd.DataFrame | None) -> str | None:
    """Say which raw file no longer gives what a record was made from; None where all do.

    `new` is the record as its raw files give it now, `samples` the table `telemetry` as it is now.
    """
    now = dict(_counts(new))
    for (file, field), then in _counts(old):
        if now[file, field] < then:
            return f"{file} no longer holds what the record was made from ({field}: {now[file, field]} of {then})"
    fewer = _figures_known(new.telemetry) < _figures_known(old.telemetry)
    if old.telemetry and fewer and _has_gaps(old.telemetry, samples):
        return (
            f"{_TELEMETRY} no longer holds what the record was made from (telemetry: samples of the time that it is of)"
        )
    return None


def _counts(record: RunRecord) -> Iterator[tuple[tuple[str, str], int]]:
    """How much a record has, by the raw file that it is from and the field that it is in."""
    for name in _OF_EVENTS:
        yield (EVENTS, f"measurement.{name}"), _count(getattr(record.measurement, name))
    profile, telemetry = record.profile, record.telemetry
    yield (EVENTS, "profile"), _count(profile)
    yield (EVENTS, "profile.steps"), _count(profile and profile.steps)
    yield (EVENTS, "profile.memory"), _count(profile and profile.memory)
    yield (EVENTS, "profile.flop"), _count(profile and profile.flop)
    yield (_KERNELS, "profile.categories"), sum(one.count for one in profile.categories) if profile else 0
    yield (_KERNELS, "profile.calls"), sum(one.count for one in profile.calls) if profile else 0
    gpus, hosts = (telemetry.gpus, telemetry.hosts) if telemetry else ((), ())
    yield (_TELEMETRY, "telemetry.gpus"), len(gpus)
    yield (_TELEMETRY, "telemetry.hosts"), len(hosts)
    yield (EVENTS, "telemetry.hosts.sampler_percent"), sum(_count(host.sampler_percent) for host in hosts)


def _count(value: Any) -> int:
    """How many there are of a list, or of all lists by their ranks; else whether there is a value."""
    if isinstance(value, Mapping):
        return sum(len(one) if isinstance(one, tuple) else 1 for one in value.values())
    return len(value) if isinstance(value, tuple) else int(value is not None)


def _figures_known(telemetry: Telemetry | None) -> int:
    """How many figures all devices have together, less those that are missing or of a part of the time only."""
    if telemetry is None:
        return 0
    told = [name for device in (*telemetry.gpus, *telemetry.hosts) for name, value in device if value is not None]
    lacking = [field for entry in telemetry.missing for field in entry.fields]
    return sum(name not in _OF_LONG_SPANS for name in told) - sum(name not in _OF_LONG_SPANS for name in lacking)


def _has_gaps(telemetry: Telemetry, samples: pd.DataFrame | None) -> bool:
    """Whether a device of a record has no samples in some stretch of the time that its figures are of."""
    if samples is None or not telemetry.hz:
        return True
    devices = [(gpu.node, f"gpu{gpu.index}") for gpu in telemetry.gpus]
    devices += [(host.node, "host") for host in telemetry.hosts]
    for node in telemetry.spans:
        for device in (name for where, name in devices if where == node.node):
            own = samples[(samples["node"] == node.node) & (samples["device"] == device)]
            t = np.sort(own["t"].to_numpy(float))
            for span in filter(None, (node.idle, node.gpus_idle, node.measured)):
                near = t[max(0, np.searchsorted(t, span.start, side="right") - 1) : np.searchsorted(t, span.end) + 1]
                if len(near) == 0 or near[0] > span.start or near[-1] < span.end:
                    return True
                if np.diff(near).max(initial=0) > GAP_PERIODS / telemetry.hz:
                    return True
    return False
