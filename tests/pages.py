"""Made-up report pages: a small one with everything on it, and one of two thousand runs."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import examples
import studied
from records import events, provenance, record
from swept import leave, measured, samples, traced, watched

from runner.analysis.comparisons.sweeps import sweeps
from runner.analysis.grading.measure import measure
from runner.core.measurement import EpochFigures
from runner.report.page import render
from runner.report.page.collect import Collected
from runner.report.page.figures import Watched
from runner.report.publish import Measured

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCALES = (1, 2, 4, 8)
HOSTILE = "</script><script>window.hostile = 1</script><img src=x onerror='window.hostile = 2'>"


def scaled(scale, *, matrix, model="resnet18", repeat=1, status="valid", number=0, **changes):
    """A run on `scale` CPU workers, each as fast as a single one."""
    more = {"strategy": "ddp", "framework": "pytorch", "version": "2.13.0-cpu", "model": model}
    size = {"world_size": scale, "processes": scale, "global_batch": 32 * scale, "iterations": 32 // scale}
    trial = examples.trial(**(more | size | {"repeat": repeat, "warmup": 0} | changes))
    return rename(record(trial=trial, status=status), matrix=matrix, repeat=repeat, number=number)


def at(rate, *, run_id, batch=32, **changes):
    """A run of `rate` images/s on one CPU worker."""
    trial = examples.trial(batch_per_device=batch, global_batch=batch, **changes)
    found = record(run_id=run_id, trial=trial)
    return found.model_copy(
        update={"measurement": measure(events(trial, seconds=batch / rate), started=0.0, unit="images/s")}
    )


def rename(of, *, matrix, repeat, number):
    """A copy of a run, at another time and in another matrix."""
    run_id = f"{matrix}-{of.trial.world_size}-r{repeat}"
    when = provenance(recorded_at=BEGAN + timedelta(seconds=number))
    trial = of.trial.model_copy(update={"repeat": repeat})
    return of.model_copy(update={"run_id": run_id, "matrix_id": matrix, "trial": trial, "provenance": when})


def converging():
    """A run in mode converge, over three epochs."""
    same = {"iterations": 10, "validation_samples": 100, "seconds": 1.0}
    epochs = tuple(
        EpochFigures(
            **same,
            epoch=number,
            train_loss=2.0 / number,
            val_loss=2.5 / number,
            accuracy_percent=20.0 * number,
            elapsed_s=float(number),
        )
        for number in (1, 2, 3)
    )
    found = scaled(1, matrix="epochs", mode="converge")
    return found.model_copy(update={"measurement": found.measurement.model_copy(update={"epochs": epochs})})


def leave_everything(folder):
    """Run directories with everything that a page can show, and a study."""
    for number, batch in enumerate((4, 16)):
        matrix = f"m{number}"
        leave(folder, measured(batch, 100.0 * batch, matrix=matrix, second=number), table_of_samples=samples())
        leave(folder, traced(batch, 0.25, 0.1, matrix=matrix, second=number))
    leave(folder, measured(64, 9000.0, matrix="bad", status="invalid"))
    for scale in SCALES[:2]:
        status = "degraded" if scale > 1 else "valid"
        run = scaled(scale, matrix="curve", status=status, number=scale)
        leave(folder, (Path(run.run_id), run))
    run = converging()
    leave(folder, (Path(run.run_id), run))
    run = rename(scaled(1, matrix="hostile"), matrix="hostile", repeat=1, number=9)
    said = run.provenance.model_copy(update={"command": ("dlscale", "bench", HOSTILE)})
    leave(folder, (Path(run.run_id), run.model_copy(update={"provenance": said})))
    here = studied.machine(device="gpu", devices=(4, 4, 4, 4), device_name="Example GPU")
    study = studied.reproduced("dell-p100", here, repeats=1)
    (folder / "20260102T030405Z-dell-p100.reproduction.json").write_text(study.model_dump_json(by_alias=True))


def matrix_of(number, *, runs=20):
    """A matrix of `runs` runs over four scales."""
    name, model = f"m{number:03}", ("resnet18", "resnet50", "vgg16", "lenet")[number % 4]
    firsts = [scaled(scale, matrix=name, model=model) for scale in SCALES]
    repeats = runs // len(SCALES)
    return [
        rename(first, matrix=name, repeat=repeat, number=number * runs + (repeat - 1) * len(SCALES) + place)
        for repeat in range(1, repeats + 1)
        for place, first in enumerate(firsts)
    ]


def page_of_one_matrix(**words):
    """The page of one matrix of eight runs."""
    found = Collected()
    own = matrix_of(1, runs=8)
    found.records += [(f"wires/{record.run_id}", record) for record in own]
    found.matrix(Measured.of([(record.run_id, record) for record in own]), name="m001", watched={})
    return found.page(**words)


def of_many(matrices=100, *, runs=20):
    """A page of many matrices as HTML, each with power over time."""
    found = Collected()
    seen = watched(samples(), trained=100)
    for number in range(matrices):
        own = [(Path(one.run_id), one) for one in matrix_of(number, runs=runs)]
        found.records += [(path.as_posix(), one) for path, one in own]
        looked_on = {"": Watched(own[0][1], seen, samples())}
        found.matrix(Measured.of(own), name=own[0][1].matrix_id, watched=looked_on)
    return render.html(found.page(title="dlscale report", made="made up"), figures_folder="report-figures")


def batches():
    """The sweep over two batches, with passes."""
    runs = [run for batch in (4, 16) for run in (measured(batch, 100.0 * batch), traced(batch, 0.25))]
    (found,) = sweeps(runs)
    return found
