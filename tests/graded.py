"""Run directories as `bench` leaves them: events on disk, and the record graded from them."""

from records import events, record

from runner.analysis.grading.grade import grade, scaling
from runner.core.provenance import SUITE_ROOT
from runner.core.record import RunPlan
from runner.core.workload import choose_workload, load_workloads
from runner.results.store import RunWriter


def leave_graded(out, run_id, trial, baseline=None, seconds=0.123456789, *, said=None):
    """Leave a run directory as `bench` does; its ranks sent the expected events, or those in `said`."""
    base = record(run_id=run_id, trial=trial)
    writer = RunWriter(out / run_id)
    writer.create(RunPlan(run_id=run_id, trial=trial, containers=(), command_lines=()))
    said = events(trial, seconds=seconds) if said is None else said
    for event in said:
        writer.event(event)
    workload = choose_workload(load_workloads(SUITE_ROOT), None)
    graded = grade(trial=trial, outcome=base.outcome, events=said, provenance=base.provenance, workload=workload)
    found = base.model_copy(
        update={
            "outcome": graded.outcome,
            "measurement": graded.measurement,
            "transport": graded.transport,
            "validity": graded.validity,
            "scaling": scaling(trial, run_id, graded, baseline),
        }
    )
    writer.finish(found)
    return found
