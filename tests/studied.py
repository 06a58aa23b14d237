"""Made-up runs of the suite's studies: every cell that a made-up machine can run, with figures that follow one simple law."""

from __future__ import annotations

from datetime import datetime, timezone

import examples
import passes
import swept
from profile_rows import op, table
from records import events, record

from runner.analysis.grading.measure import measure
from runner.core import yamlfile
from runner.core.measurement import AccuracyFigures, EpochFigures, RawWindow
from runner.core.profile import CallClassShare, CallShare, CategoryShare
from runner.core.trial import Concurrent
from runner.experiments.studies.cells import cells
from runner.experiments.studies.flow import usable
from runner.experiments.studies.model import CellRun, Machine, Observation, Usable
from runner.experiments.studies.reproduction import judge
from runner.experiments.studies.study import DIRECTORY, Study
from runner.images.catalog import load_images
from runner.results.published import load as published

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
PROFILED = {"kernels": (0.2, 0.1)}


def machine(*, device="cpu", devices=(2,), device_name="Example CPU", gpu=None):
    """A machine of two cores, or with GPUs and nodes as in `devices`, that can run every image."""
    images = tuple(
        Usable(framework=image.framework, version=image.version, device=image.device)
        for image in load_images(examples.ROOT).images
    )
    return Machine(
        name="made-up",
        device=device,
        device_name=device_name,
        devices=devices,
        gpu=gpu,
        cores=16 if device == "gpu" else devices[0],
        engine="docker",
        may_emulate=True,
        hosts="hosts.yaml" if len(devices) > 1 else None,
        images=images,
    )


def cpu_machine(cores=2, **more):
    own = {"device": "cpu", "device_name": "Example CPU", "devices": (cores,), "cores": cores, "may_emulate": True}
    images = tuple(usable(image, misfit=None) for image in load_images(examples.ROOT).images)
    return Machine(name="here", engine="docker", images=images, **own | more)


def gpu_machine(*gpus, hosts=None, misfits=None, **more):
    """A machine of GPUs; `misfits` are by version."""
    own = {"device": "gpu", "device_name": "NVIDIA H200", "devices": gpus, "cores": 16, "may_emulate": hosts is None}
    images = tuple(
        usable(image, misfit=(misfits or {}).get(image.version)) for image in load_images(examples.ROOT).images
    )
    return Machine(name="gpus", engine="docker", hosts=hosts, images=images, **own | more)


def observation(value, *, metric="throughput", unit="images/s", ci95=None, device="gpu", **more):
    """A measured quantity of one run; names of conditions go to `where`; an interval, over three runs, is (low, high)."""
    own = {name: more.pop(name) for name in tuple(more) if name in Observation.model_fields}
    interval = {"low": ci95[0], "high": ci95[1]} if ci95 else None
    fields = {"device_name": "Example", "runs": (f"run-{value:g}",), "repeats": 3 if ci95 else 1} | own
    return Observation.model_validate(
        {"metric": metric, "unit": unit, "value": value, "ci95": interval, "where": more, "device": device} | fields
    )


def study_runs(name, here, *, scale="small", repeats=3):
    """A study with its source and all cells, run if possible."""
    study = yamlfile.load(DIRECTORY / f"{name}.yaml", Study)  # its programs need not exist
    source = published.load(published.DIRECTORY / f"{study.source}.yaml")
    planned = cells(study, source=source, machine=here, scale=scale)
    found = [ran(cell, here, repeats=repeats) for cell in planned]
    return study, source, found


def reproduced(name, here, *, scale="small", repeats=3):
    """The result of a whole study."""
    study, source, found = study_runs(name, here, scale=scale, repeats=repeats)
    return judge(study, published=source, runs=found, machine=here, scale=scale, made_at=NOW)


def ran(cell, here, *, repeats=3):
    """A cell as its runs would leave it; without runs if it has no request."""
    if cell.request is None or cell.pick is None:
        return CellRun(cell=cell)
    runs = [one for repeat in range(1, repeats + 1) for one in _repeat(cell, here, repeat)]
    runs += [_pass(cell, kind, here) for kind in cell.request.profile if kind == "kernels"]
    return CellRun(cell=cell, runs=tuple(runs))


def rate(devices, batch, repeat=1):
    """Images a second: each doubling gives nine tenths of the ideal, batch 32 half of the limit; repeats differ by 1 %."""
    return 100 * devices**0.85 * batch / (batch + 32) * (1 + 0.01 * repeat)


def _repeat(cell, here, repeat):
    cases = cell.pick.case
    if cases is None:
        if not cell.pick.measured:
            return []
        return [_run(cell, here, repeat, f"{cell.id}-r{repeat}")]
    count = {"one": 1, "sequential": 2, "together": 2}[cases]
    return [
        _run(cell, here, repeat, f"{cell.id}-n{number}-r{repeat}", number=number, count=count)
        for number in range(1, count + 1)
    ]


def _run(cell, here, repeat, run_id, *, number=1, count=1):
    batch, devices = cell.request.batch or 32, cell.pick.devices
    on_cpu = cell.where.device == "cpu" or here.device == "cpu"
    changes = {"framework": cell.request.framework, "version": cell.request.version, "mode": cell.request.mode}
    changes |= {"world_size": devices, "processes": 1, "repeat": repeat, "global_batch": batch * devices}
    if cell.pick.case:
        changes["concurrent"] = Concurrent(trainings=2, case=cell.pick.case, number=number)
    per_second = rate(devices, batch, repeat)
    if on_cpu:
        trial = examples.trial(**changes, batch_per_device=batch, model=cell.request.model)
        measurement = measure(events(trial, seconds=batch / per_second), started=0.0, unit="images/s")
        found = record(run_id=run_id, trial=trial)
    else:
        found = swept.measured(batch, per_second, run_id=run_id, model=cell.request.model, **changes)[1]
        measurement = found.measurement
    update = {"step_time_s": measurement.step_time_s}
    if cell.request.mode == "converge":
        update["epochs"] = tuple(_epoch(number, repeat) for number in (1, 2))
    if cell.request.mode == "infer":
        update["accuracy"] = AccuracyFigures(
            precision="fp32",
            samples=100,
            percent=70,
            reference="fp32",
            reference_percent=70,
            agree_percent=100,
            fit_iterations=4,
        )
    if cell.pick.case == "together":  # both start together, and share the devices
        update["windows"] = tuple(
            RawWindow(**{**window.model_dump(), "start": window.start + 100 + number}) for window in measurement.windows
        )
    return found.model_copy(update={"measurement": measurement.model_copy(update=update)})


def _epoch(number, repeat):
    return EpochFigures(
        epoch=number,
        iterations=4,
        train_loss=2.0 / number,
        val_loss=2.5 / number,
        accuracy_percent=30.0 * number + repeat,
        validation_samples=100,
        seconds=1.0,
        elapsed_s=float(number),
    )


def _pass(cell, kind, here):
    """A profiling pass; its shares depend on the batch: less broadcast for larger ones, and fewer launches only from 64."""
    batch, run_id = cell.request.batch or 32, f"{cell.id}-profile-{kind}"
    if here.device == "cpu":
        work = {"aten::mkldnn_convolution": 0.2, "aten::max_pool2d_with_indices_backward": 0.001 * batch}
        rows = [op(0.0, seconds, name) for name, seconds in work.items()]
        trial = passes.trial(kind, ranks=1, model=cell.request.model)
        found = passes.record_of(trial, frame=table(*rows), run_id=run_id)
        profile = found.profile.model_copy(update={"region": cell.request.profile_region})
        return found.model_copy(update={"profile": profile})
    found = swept.traced(batch, *PROFILED[kind], run_id=run_id, model=cell.request.model)[1]
    work = {
        "convolution_other": 40 + batch,
        "broadcast": 60 - batch / 2,
        "copy_htod": 10,
        "pooling_backward": batch / 8,
    }
    launch = 95 if batch < 64 else 60
    own = {
        "cudaLaunchKernel": ("launch", launch),
        "cudaMalloc": ("memory_management", 3),
        "cudaEventDestroy": ("event", 97 - launch),
    }
    changes = {"region": cell.request.profile_region, "categories": categories(work), **calls(own)}
    trial = found.trial.model_copy(update={"world_size": cell.pick.devices})
    profile = found.profile.model_copy(update=changes)
    return found.model_copy(update={"trial": trial, "profile": profile})


def categories(seconds):
    """A pass' categories of work, by name."""
    return tuple(CategoryShare(category=name, count=1, seconds=s, share_percent=s) for name, s in seconds.items())


def calls(own):
    """A pass' calls: (class, seconds) by name."""
    once = [(name, kind, {"count": 1, "seconds": s, "share_percent": s}) for name, (kind, s) in own.items()]
    return {
        "calls": tuple(CallShare(name=name, call_class=kind, mean_s=of["seconds"], **of) for name, kind, of in once),
        "call_classes": tuple(CallClassShare(call_class=kind, **of) for _, kind, of in once),
    }
