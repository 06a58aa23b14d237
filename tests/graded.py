"""Run directories as `bench` leaves them: events on file, and the record that they are graded to."""

from records import events, record

from runner.analysis.grading.grade import grade, scaling
from runner.core.provenance import SUITE_ROOT
from runner.core.record import RunPlan
from runner.core.workload import choose_workload, load_workloads
from runner.results.store import RunWriter


def leave_graded(out, run_id, trial, baseline=None, seconds=0.123456789, *, said=None):
    """A run directory as `bench` leaves it, of ranks that said what they should or what is given."""
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
