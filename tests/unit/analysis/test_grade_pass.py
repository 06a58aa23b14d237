"""A profiling pass taken for a measurement: with a throughput, a speedup, a row in a table, or as the baseline of a measured run.

Prevents: an incomplete profile (a rank that never ended its pass, a trace without rows, a training that diverged under the profiler), and
counters of unmeasured time: of start-up, of ncu's replays, or of a single rank.
"""

import io

import examples
import passes
import pytest
from passes import NCU, rows, said, trial
from records import record
from rich.console import Console

from runner.analysis.grading.validity import pass_doubts, pass_faults
from runner.analysis.telemetry.summary import pass_windows
from runner.commands.documents import NOT_YET, support_matrix
from runner.core.events import ProfileStart, ProfileStop
from runner.core.record import Outcome
from runner.core.request import Request
from runner.core.trial import Trial, title
from runner.plan.launch import launch
from runner.report.publish import publish
from runner.results.store import baseline_for
from runner.run.container_group import Stop
from runner.run.execute import Limits
from runner.run.trial_runner import cell, readers

ONE = passes.trial("memory", ranks=1)
PASS = passes.record_of(ONE)


def test_a_pass_has_no_throughput_and_no_speedup():
    assert PASS.validity.status == "valid"
    assert PASS.measurement.throughput is None
    assert PASS.scaling.speedup is None
    assert PASS.profile.source == "made up"
    assert PASS.measurement.losses == {"0": (2.3, 2.2)}
    # It needs neither wires nor samples, only what its kind promises.
    assert passes.record_of(passes.trial("memory", interconnect="shm")).validity.status == "valid"
    empty = passes.record_of(passes.trial("kernels", ranks=1))
    assert empty.validity.reasons == ("rank 0 did not tell what ran",)


def test_a_failed_pass_states_its_failure_first():
    lost = Outcome(status="timeout", reason="no end after 900 s", exit_codes={}, started=40.0, phases_s={})
    found = passes.record_of(ONE, events=[], outcome=lost)
    assert (found.validity.status, found.profile) == ("invalid", None)
    assert found.validity.reasons == ("the run timed out: no end after 900 s",)


def test_doubts_degrade_a_pass():
    events = passes.said(0, kind="memory", steady=False)
    found = passes.record_of(passes.trial("memory", ranks=1, oversubscribed=True), events=events)
    assert found.validity.status == "degraded"
    assert found.validity.reasons == (
        "1 CPU workers shared cores (--oversubscribe)",
        "the rate had not settled when the profiler began",
    )


def test_a_pass_is_no_baseline(tmp_path):
    two = examples.trial(world_size=2, processes=2)
    assert baseline_for(two, [(tmp_path, PASS)]) is None
    measured = record(run_id="measured")
    assert baseline_for(two, [(tmp_path, measured), (tmp_path, PASS)])[1] is measured


def test_a_pass_is_in_no_table_and_named_below_them(tmp_path):
    console = Console(file=io.StringIO(), width=200)
    runs = [(tmp_path / "one", record()), (tmp_path / "p", PASS)]
    publish(runs, out=tmp_path, name="m", console=console, verbose=True)
    said = console.file.getvalue()
    assert f"profile: dlscale profile {tmp_path / 'p'}" in said
    assert f"record: {tmp_path / 'p'}" not in said
    assert f"record: {tmp_path / 'one'}" in said


def test_a_matrix_of_passes_only_has_their_reports_and_none_of_its_own(tmp_path):
    console = Console(file=io.StringIO(), width=200)
    publish([(tmp_path / "p", PASS)], out=tmp_path, name="m", console=console, verbose=True)
    assert [path.name for path in tmp_path.iterdir()] == ["pass-1.md"]
    assert f"report: {tmp_path / 'pass-1.md'}" in console.file.getvalue()
    invalid = PASS.model_copy(update={"validity": PASS.validity.model_copy(update={"status": "invalid"})})
    (tmp_path / "invalid").mkdir()
    publish([(tmp_path / "p", invalid)], out=tmp_path / "invalid", name="m", console=console)
    assert list((tmp_path / "invalid").iterdir()) == []


def test_a_pass_does_not_count_as_a_run_in_the_support_matrix():
    from runner.images.catalog import load_images

    mxnet = next(image for image in load_images(examples.ROOT).images if image.name == "mxnet 1.9.1")
    assert support_matrix([mxnet], [PASS]).count(NOT_YET) == 1


def test_a_pass_differs_from_a_measured_run_by_name():
    measured = examples.trial()
    assert cell(ONE) == "1cpu-profile-memory"
    assert cell(ONE.measured) == cell(measured) == "1cpu"
    assert title(ONE) == title(measured) + ", profile of memory"


def test_a_pass_has_its_own_time_limit_and_names_the_option():
    request = Request(profile=("memory",), profile_timeout_s=60, timeout_s=3600, inactivity_timeout_s=30)
    assert Limits.of(request, ONE.measured) == Limits(wall_s=3600, silence_s=30, flag="--timeout")
    limits = Limits.of(request, ONE)
    with pytest.raises(Stop, match="no end after 60 s; give a longer --profile-timeout if the job needs it"):
        limits.check(61, started=0, last_output=61)


def test_the_frameworks_log_is_not_parsed_in_a_pass():
    """The log of a pass has no figures; a dialect that requires them would fail the pass."""
    caffe = passes.trial("memory", ranks=1, framework="caffe", dialect="caffe")
    spec = launch(examples.job(caffe))
    assert readers(caffe, spec) == {}
    assert readers(caffe.measured, spec).keys() == {spec[0].name}


def test_a_pass_survives_a_round_trip_through_its_record():
    assert Trial.model_validate_json(ONE.model_dump_json()) == ONE


SAMPLER = {"source": "sampler", "reason": "there is no ncu"}
OPS = rows(("op", 0), ("op", 1))


@pytest.mark.parametrize("kind", ["kernels", "memory", "region", "metrics"])
def test_a_complete_pass_has_no_fault(kind):
    events = [*said(0, kind=kind), *said(1, kind=kind)]
    assert list(pass_faults(trial(kind), events, OPS)) == []
    assert list(pass_doubts(trial(kind), events, OPS)) == []


@pytest.mark.parametrize(
    ("kind", "events", "frame", "fault"),
    [
        ("kernels", [*said(0), *said(1)[:2]], rows(("op", 0)), "1 of 2 ranks ended their pass under the profiler"),
        # Fewer iterations than requested are a fault, more are not.
        ("kernels", [*said(0, iterations=3), *said(1, iterations=40)], OPS, "rank 0 made 3 of 5 iterations"),
        ("kernels", [*said(0), *said(1)], None, "rank 0 and 1 did not tell what ran"),
        ("kernels", [*said(0), *said(1)], rows(), "rank 0 and 1 did not tell what ran"),
        ("kernels", [*said(0), *said(1)], rows(("region", 0), ("call", 1)), "rank 0 and 1 did not tell what ran"),
        ("kernels", [*said(0), *said(1)], rows(("kernel", 0)), "rank 1 did not tell what ran"),
        ("memory", [*said(0, kind="memory"), *said(1)], None, "rank 1 did not tell its memory"),
        (
            "calls",
            [*said(0, kind="calls"), *said(1)],
            rows(("call", 0), ("op", 1)),
            "rank 1 did not tell which calls it made",
        ),
        ("region", [*said(0, kind="region"), *said(1)], None, "rank 1 did not tell how long its regions took"),
        ("kernels", [*said(0), *said(1, values=(2.3, None))], OPS, "the loss is not finite at iteration 1"),
        ("kernels", [*said(0, values=()), *said(1, values=())], OPS, "no loss was reported"),
    ],
)
def test_each_missing_part_of_a_pass_is_a_fault(kind, events, frame, fault):
    (found,) = pass_faults(trial(kind), events, frame)
    assert found.startswith(fault)


def test_counters_must_come_from_ncu_or_from_the_sampler():
    one = trial("metrics", device="gpu", ranks=1, counting=NCU)
    (found,) = pass_faults(one, said(0, kind="metrics"), None)
    assert found.startswith("rank 0 did not tell any kernel's counters; the end of the log says")
    assert list(pass_faults(one, said(0, kind="metrics"), rows(("kernel", 0)))) == []
    sampled = trial("metrics", device="gpu", ranks=1, counting=SAMPLER)
    assert list(pass_faults(sampled, said(0, kind="metrics"), None)) == []


def test_an_unsettled_rate_and_a_gpu_pass_without_kernels_are_doubts():
    unsettled = [*said(0), *said(1, steady=False)]
    assert list(pass_doubts(trial(), unsettled, OPS)) == ["the rate had not settled when the profiler began"]
    of_gpu = trial(device="gpu", ranks=1)
    (doubt,) = pass_doubts(of_gpu, said(0), rows(("op", 0)))
    assert doubt == "the profiler saw operators alone, and no kernel of a GPU"
    assert list(pass_doubts(of_gpu, said(0), rows(("op", 0), ("kernel", 0)))) == []


def timed(*, ranks=2):
    """Passes of all ranks from 10 to 13.5 s, each a tenth later than the previous rank's."""
    return [
        event.model_copy(update={"t": {ProfileStart: 10.0, ProfileStop: 13.5}.get(type(event), 0.0) + rank / 10})
        for rank in range(ranks)
        for event in said(rank, kind="metrics", iterations=40)
    ]


def test_each_rank_of_a_counting_pass_has_one_window():
    counted = trial("metrics", device="gpu", counting=SAMPLER, global_batch=64)
    first, second = pass_windows(counted, timed())
    assert (first.rank, first.start, first.seconds, first.samples) == (0, 10.0, 3.5, 40 * 32)
    assert (second.rank, second.start) == (1, 10.1)
    assert pass_windows(counted, timed(ranks=1)) == ()  # a single rank has no window


@pytest.mark.parametrize(
    "other",
    [
        trial("metrics", device="gpu", counting=NCU),
        trial("kernels"),
        examples.trial(world_size=2, processes=2),
    ],
    ids=["replayed by ncu", "slowed by a profiler", "no pass"],
)
def test_passes_that_distort_the_machine_have_no_window(other):
    assert pass_windows(other, timed()) == ()


def test_ncu_is_named_as_the_source_of_its_counters():
    under_ncu = trial("metrics", device="gpu", ranks=1, counting=NCU)
    assert passes.record_of(under_ncu, frame=rows(("kernel", 0))).profile.source == "ncu"
    assert passes.record_of(trial("metrics", device="gpu", ranks=1, counting=SAMPLER)).profile.source == "made up"
