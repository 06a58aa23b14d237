"""Made-up profiling passes, for tests that read one."""

import examples
from program_events import program_event
from records import provenance, record

from runner.analysis.grading.grade import grade, scaling
from runner.core.events import Loss, Memory, ProfileStart, ProfileStop, Regions
from runner.core.events.parse import COLUMNS
from runner.core.workload import choose_workload, load_workloads

NCU = {"source": "ncu", "program": "/opt/ncu/ncu", "folder": "/opt/ncu"}


def trial(kind="kernels", *, device="cpu", ranks=2, counting=None, **changes):
    """A pass of 5 iterations after 8."""
    profile = {"kind": kind, "after": 8, "iterations": 5, "region": None, "counting": counting}
    return examples.trial(device=device, world_size=ranks, processes=ranks, profile=profile, **changes)


def said(rank, *, kind="kernels", iterations=5, steady=True, values=(2.3, 2.2)):
    """Events of a rank in a faultless pass."""
    start = {"kind": kind, "source": "made up", "iteration": 8, "region": None, "steady": steady}
    found = [
        program_event(Loss, rank=rank, first_iteration=0, values=values),
        program_event(ProfileStart, rank=rank, plain_step_seconds=(0.1,), **start),
        program_event(ProfileStop, rank=rank, iterations=iterations, step_seconds=(0.1,) * iterations, t=1.0),
    ]
    if kind == "region":
        found.append(program_event(Regions, rank=rank, name="forward", seconds=(0.05,) * iterations))
    if kind == "memory":
        sizes = {"allocated_bytes": 1, "reserved_bytes": None, "peak_bytes": 2}
        found.append(program_event(Memory, rank=rank, phase="model", device="host", **sizes))
    return found


def record_of(the_trial, *, frame=None, events=None, run_id="pass-1", outcome=None):
    """The record that `bench` would leave of a pass; by default, every rank's pass is faultless."""
    base = record(run_id=run_id, trial=the_trial)
    heard = events if events is not None else everything(the_trial)
    graded = grade(
        trial=the_trial,
        outcome=outcome or base.outcome,
        events=heard,
        samples=None,
        monitors={},
        provenance=provenance(),
        workload=choose_workload(load_workloads(examples.ROOT), None),
        kernels=frame,
    )
    found = {"outcome": graded.outcome, "measurement": graded.measurement, "transport": graded.transport}
    found |= {"validity": graded.validity, "profile": graded.profile}
    return base.model_copy(update=found | {"scaling": scaling(the_trial, run_id, graded, None)})


def everything(the_trial):
    """Events of all ranks of a faultless pass."""
    return [event for rank in range(the_trial.processes) for event in said(rank, kind=the_trial.profile.kind)]


def rows(*kinds_of_ranks):
    """Table `kernels` with one row for each pair (kind, rank)."""
    import pandas as pd

    frame = pd.DataFrame({name: [None] * len(kinds_of_ranks) for name in COLUMNS["kernels"]})
    frame["kind"] = [kind for kind, _ in kinds_of_ranks]
    frame["rank"] = [rank for _, rank in kinds_of_ranks]
    return frame
