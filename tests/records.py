"""A complete, made-up run record for tests that read one."""

from datetime import datetime, timezone

import examples
from program_events import program_event

from runner.analysis.grading.grade import Graded, scaling
from runner.analysis.grading.measure import measure
from runner.core.events import Loss, RunStop, Window
from runner.core.provenance import Git, Host, Provenance
from runner.core.record import EngineDetails, ImageUsed, Outcome, RunRecord, Validity
from runner.core.transport import Evidence, Transport
from runner.core.trial import Trial, with_actual_length

HOST = dict.fromkeys(Host.model_fields) | {
    "hostname": "here",
    "kernel": "6.1",
    "architecture": "x86_64",
    "usable_threads": 2,
}


def events(trial, seconds=0.1, losses=None):
    """Events of a trial's ranks in a faultless run, with steps of `seconds` each."""
    length = seconds * trial.window
    values = tuple(losses) if losses is not None else (2.3,) * (trial.warmup + trial.iterations)
    samples = {"iterations": trial.window, "samples": trial.window * trial.batch_per_device, "seconds": length}
    whole = {"iterations": trial.iterations, "samples": trial.iterations * trial.batch_per_device}
    found = []
    for rank in range(trial.processes):
        windows = range(trial.iterations // trial.window)
        heard = {"rank": rank, "received": 50.0}
        found += [program_event(Window, index=at, start=at * length, **samples, **heard) for at in windows]
        found.append(program_event(Loss, first_iteration=0, values=values, **heard))
        found.append(program_event(RunStop, parameter_norm=12.5, **whole, **heard))
    return found


def provenance(**changes):
    """Provenance of a run on one machine without GPUs."""
    return Provenance(
        git=Git(commit="c" * 40, dirty=False, branch="main"),
        host=Host.model_validate(HOST),
        gpus=(),
        driver=None,
        cuda_driver=None,
        command=("dlscale", "bench"),
        suite_version="0.1.0",
        suite_python="3.11.2",
        workloads_sha256="b" * 64,
        recorded_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
    ).model_copy(update=changes)


def record(*, run_id="run-1", trial=None, status="valid", seconds=0.1, rates=(), outcome=None):
    """A record of a run with steps of `seconds` each; `rates` replace some of its times."""
    trial = trial or examples.trial()
    if isinstance(trial, Trial) and not trial.iterations:  # as chosen by its program
        trial = with_actual_length(trial, iterations=24, window=4)
    measurement = measure(events(trial, seconds), started=40.0, unit="images/s")
    if rates:
        measurement = measurement.model_copy(update={"first_step_s": rates[0], "training_time_s": rates[-1]})
    phases = {"create": 0.5, "total": 0.5 + (measurement.training_time_s or 0.0)}
    outcome = outcome or Outcome(status="ok", reason=None, exit_codes={"w0": 0}, started=40.0, phases_s=phases)
    transport = Transport(requested="auto", used="none", evidence=Evidence(traffic=(), nccl_lines=()))
    validity = Validity(status=status, reasons=() if status == "valid" else ("made up",))
    graded = Graded(outcome=outcome, measurement=measurement, transport=transport, validity=validity)
    return RunRecord(
        run_id=run_id,
        matrix_id="m",
        trial=trial,
        engine="docker",
        engine_details=EngineDetails(version="20.10", reason=None),
        image=ImageUsed(reference="dlscale/mxnet:1.9.1", id="sha256:1", digest=None, lock_sha256="a" * 64),
        outcome=outcome,
        measurement=measurement,
        scaling=scaling(trial, run_id, graded, None),
        transport=transport,
        provenance=provenance(),
        validity=validity,
    )


def but(run, **parts):
    """A run, with its directory, and some fields replaced: `but(run, measurement={"in_flight": 4})`."""
    path, found = run
    changed = {part: getattr(found, part).model_copy(update=fields) for part, fields in parts.items()}
    return path, found.model_copy(update=changed)
