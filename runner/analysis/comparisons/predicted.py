"""Records on file → the inputs of the model in `analysis/prediction.py`: one-device trainings, probed wires, measured points. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from runner.analysis.comparisons.grouping import trial_of
from runner.analysis.grading import metrics
from runner.analysis.prediction import FEWEST_POINTS, OneDevice, Point, PredictedRow, Wire, held_out, others, predict
from runner.analysis.summarize import between, machine, usable_windows
from runner.core.errors import RequestError, nearest
from runner.core.frozen import Frozen
from runner.core.measurement import Backward
from runner.core.record import RunRecord
from runner.core.trial import Trial, title

_MODELLED: Final = ("single", "ddp")


class Prediction(Frozen):
    """A training predicted at several scales over one wire.

    `errors` are by point, of throughputs that a fit to the other networks predicts; `unfitted` counts those whose other networks have too few
    points for a fit.
    """

    title: str
    unit: str
    wire: Wire
    rows: tuple[PredictedRow, ...]
    errors: tuple[tuple[str, float], ...]
    unfitted: int
    notes: tuple[str, ...]


def predicted(run: RunRecord, records: Sequence[RunRecord], *, wire: str | None, devices: Sequence[int]) -> Prediction:
    """Predict a one-device run at some scales over a wire, from all usable records.

    Raises RequestError: the run cannot be predicted, no run on file reports when its gradients are ready, or no single probed wire matches.
    """
    usable = [record for record in records if _trains(record)]
    own = [record for record in usable if record.trial.key == run.trial.key and record.trial.world_size == 1]
    _refuse(run, own)
    timed = _timed(usable, wire, run)
    chosen = _probed_wire(timed)
    beside = [
        record
        for record in usable
        if record.trial.key == run.trial.key and record.trial.world_size > 1 and _label(record) == chosen.label
    ]
    # A run on one device has no techniques of an exchange.
    joined = beside[0] if beside else run
    beside = [record for record in beside if _trial(record).techniques == _trial(joined).techniques]
    one = _one_device(own, [record for record in usable if record.measurement.backward], joined=joined)
    if one is None:
        raise RequestError(
            f"{run.run_id}: its program does not report when gradients are ready, and neither does any run of {_trial(run).model} at this "
            "precision on file; run it again on one device with PyTorch, without cuda-graphs"
        )
    points = tuple(_points(usable))
    windows = usable_windows(own)
    measured = [
        (scale, metrics.pooled_rate(found))
        for scale in {record.trial.world_size for record in beside}
        if (found := usable_windows([record for record in beside if record.trial.world_size == scale]))
    ]
    rows = predict(
        one,
        chosen,
        points,
        devices=devices,
        throughput=metrics.pooled_rate(windows),
        ci95=metrics.rate_interval(windows),
        measured=measured,
    )
    unit = next(record.measurement.throughput.unit for record in own if record.measurement.throughput)
    return Prediction(
        title=f"{title(run.trial)}, {machine(run)}",
        unit=unit,
        wire=chosen,
        rows=rows,
        errors=tuple((_point_label(point), error) for point, error in held_out(points)),
        unfitted=sum(len(others(points, point.one)) < FEWEST_POINTS for point in points),
        notes=tuple(_notes(own, timed, joined=joined, devices=devices)),
    )


def _trains(record: RunRecord) -> bool:
    """Whether the record is a usable PyTorch training of a modelled strategy, at a fixed batch per device, that ran alone."""
    return next(_unfit(record), None) is None


def _unfit(record: RunRecord) -> Iterator[str]:
    """Yield why the record is no such training: what it is, and what can be predicted instead."""
    trial = record.trial
    if not isinstance(trial, Trial):
        yield "is of a program of yours; name a training of the suite's own program"
        return
    for variable, value, needed in (
        ("FRAMEWORK", trial.framework, "pytorch"),
        ("MODE", trial.mode, "train"),
        ("SCALING", trial.scaling, "weak"),
    ):
        if value != needed:
            yield f"has {variable}={value}; name a run with {variable}={needed}"
    if trial.concurrent is not None:
        yield "ran under CONCURRENT; name a run without it"
    if trial.strategy not in _MODELLED:
        yield f"has STRATEGY={trial.strategy}; name a run with STRATEGY={' or '.join(_MODELLED)}"
    if record.profiled:
        yield "is a pass under a profiler; name a measured run"
    if record.validity.status not in ("valid", "degraded"):
        yield f"is {record.validity.status}; name a run that is valid or degraded"
    if not record.measurement.step_parts:
        yield "has no times of the parts of a step; run it again"


def _trial(record: RunRecord) -> Trial:
    """The trial of a record that passed `_trains`."""
    return trial_of((Path(), record))


def _refuse(run: RunRecord, own: Sequence[RunRecord]) -> None:
    if run.trial.world_size > 1:
        raise RequestError(
            f"{run.run_id} ran on {run.trial.world_size} devices; name its one-device baseline, {run.scaling.baseline_run_id}"
        )
    if not own:
        raise RequestError(
            f"{run.run_id} {next(_unfit(run), 'is not among the runs on file; name one that is')}; `dlscale ls` lists the runs"
        )


def _kind(record: RunRecord) -> tuple[object, ...]:
    """What runs must share to have the same gradient-ready times as shares of a step, on any device and at any batch."""
    trial = _trial(record)
    return trial.model, trial.image_shape, trial.precision, "compile" in trial.techniques


def _one_device(own: Sequence[RunRecord], with_backward: Sequence[RunRecord], *, joined: RunRecord) -> OneDevice | None:
    """A one-device training whose gradients are exchanged like those of `joined`; None if no run has gradient-ready times.

    If its own runs have none, those of another run of the same network are used, as shares of a step.
    """
    step_s, techniques = _step_s(own), _trial(joined).techniques
    like = [record for record in with_backward if _kind(record) == _kind(own[0])]
    source = next((record for record in (*own, *like) if record.measurement.backward), None)
    if source is None or not source.measurement.backward:
        return None
    size = (joined.measurement.gradient_bytes or 0) / (source.measurement.gradient_bytes or 1)
    return OneDevice(
        network=_trial(joined).model,
        step_s=step_s,
        backward=_scaled(source.measurement.backward, time=step_s / _step_s([source]), size=size),
        overlap="one message" if "one-message" in techniques else "buckets",
        wire_share=0.5 if "bf16-gradients" in techniques else 1.0,
    )


def _step_s(records: Sequence[RunRecord]) -> float:
    return statistics.fmean(parts.step_s for record in records if (parts := record.measurement.step_parts))


def _scaled(backward: Backward, *, time: float, size: float) -> Backward:
    return Backward(
        forward_s=time * backward.forward_s,
        backward_s=time * backward.backward_s,
        gradients=tuple((round(size * own), time * ready) for own, ready in backward.gradients),
    )


def _points(records: Sequence[RunRecord]) -> Iterable[Point]:
    """Yield a point for each training on several devices with a probe, a baseline on file, and gradient-ready times.

    Repeats are one point: they share their error, so that each of them as a point would narrow the interval.
    """
    by_id = {record.run_id: record for record in records}
    with_backward = [record for record in records if record.measurement.backward]
    repeats: dict[tuple[str, int, str], list[RunRecord]] = {}
    for record in records:
        if record.trial.world_size > 1 and record.scaling.baseline_run_id in by_id and record.measurement.probe:
            repeats.setdefault((record.trial.key, record.trial.world_size, _label(record)), []).append(record)
    for own in repeats.values():
        bases = {base: by_id[base] for record in own if (base := record.scaling.baseline_run_id)}
        if one := _one_device([*bases.values()], with_backward, joined=own[0]):
            yield Point(one=one, wire=_probed_wire(own[0]), devices=own[0].trial.world_size, step_s=_step_s(own))


def _probed_wire(record: RunRecord) -> Wire:
    trial = _trial(record)
    return Wire(label=_label(record), devices=trial.world_size, nodes=trial.nodes, probe=record.measurement.probe)


def _label(record: RunRecord) -> str:
    """`nvlink`, or `ethernet eth0, emulated 10gbit, 2 nodes`."""
    nodes = record.trial.nodes if isinstance(record.trial, Trial) else 1
    return between(record) + (f", {nodes} nodes" if nodes > 1 else "")


def _timed(records: Sequence[RunRecord], wanted: str | None, run: RunRecord) -> RunRecord:
    """The run that probed the wire of that label or prefix, or the only one, among the most devices, preferably of the machine and network of `run`.

    Raises RequestError: no wire was probed, none has this prefix, or several do.
    """
    probed = [record for record in records if record.trial.world_size > 1 and record.measurement.probe]
    labels = list(dict.fromkeys(_label(record) for record in probed))
    if not labels:
        raise RequestError("no run on file timed an exchange between devices; run any training on two devices first")
    if wanted is None and len(labels) > 1:
        raise RequestError(f"several wires were timed; name one with --wire: {', '.join(map(repr, labels))}")
    found = [label for label in labels if wanted in (None, label)] or [
        one for one in labels if one.startswith(wanted or "")
    ]
    if not found:
        raise RequestError(f"--wire={wanted}: no such wire was timed; nearest: {nearest(wanted or '', labels)}")
    if len(found) > 1:
        raise RequestError(f"--wire={wanted}: several wires match; name one of {', '.join(map(repr, found))}")
    own = [record for record in probed if _label(record) == found[0]]

    def preferred(record: RunRecord) -> tuple[bool, int, bool]:
        return machine(record) == machine(run), record.trial.world_size, _trial(record).model == _trial(run).model

    return max(own, key=preferred)


def _point_label(point: Point) -> str:
    return f"{point.one.network} on {point.devices}, {point.wire.label}"


def _notes(own: Sequence[RunRecord], timed: RunRecord, *, joined: RunRecord, devices: Sequence[int]) -> Iterable[str]:
    wire = _probed_wire(timed)
    if not any(record.measurement.backward for record in own):
        yield "the times at which gradients are ready come from another run of the same network and precision, as shares of a step"
    if joined.trial.world_size == 1:
        yield "modelled as buckets of gradients in fp32: no run on several devices over this wire says otherwise"
    if machine(timed) != machine(own[0]):
        yield f"the wire was timed on {machine(timed)}, not on {machine(own[0])}"
    if any(scale > wire.devices for scale in devices):
        yield (
            f"the wire was timed among {wire.devices} devices: predictions beyond are extrapolated, and the interval does not account for that"
        )
    if wire.nodes > 1:
        yield f"more devices are predicted as more nodes on the same wire, with {wire.devices // wire.nodes} devices each"
