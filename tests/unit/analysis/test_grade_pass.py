"""A profile that passes for a measurement: with a throughput, a speedup, a row in a table, or as the baseline of one that was measured.

Prevents: a profile that is half a profile (a rank that never ended its pass, a trace without rows, a training that had diverged under the
profiler), and counters of a time in which nothing was counted: of start-up, of ncu's replays, or of one rank.
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
from runner.commands.documents import NOWHERE, support_matrix
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
    # It needs neither wires nor samples, but what its kind promises.
    assert passes.record_of(passes.trial("memory", interconnect="shm")).validity.status == "valid"
    empty = passes.record_of(passes.trial("kernels", ranks=1))
    assert empty.validity.reasons == ("rank 0 did not tell what ran",)


def test_one_that_failed_says_why_before_all_else():
    lost = Outcome(status="timeout", reason="no end after 900 s", exit_codes={}, started=40.0, phases_s={})
    found = passes.record_of(ONE, events=[], outcome=lost)
    assert (found.validity.status, found.profile) == ("invalid", None)
    assert found.validity.reasons == ("the run timed out: no end after 900 s",)


def test_doubts_degrade_it():
    events = passes.said(0, kind="memory", steady=False)
    found = passes.record_of(passes.trial("memory", ranks=1, oversubscribed=True), events=events)
    assert found.validity.status == "degraded"
    assert found.validity.reasons == (
        "1 CPU workers shared cores (--oversubscribe)",
        "the rate had not settled when the profiler began",
    )


def test_it_is_nobodys_baseline(tmp_path):
    two = examples.trial(world_size=2, processes=2)
    assert baseline_for(two, [(tmp_path, PASS)]) is None
    measured = record(run_id="measured")
    assert baseline_for(two, [(tmp_path, measured), (tmp_path, PASS)])[1] is measured


def test_it_is_in_no_table_and_named_below_them(tmp_path):
    console = Console(file=io.StringIO(), width=200)
    runs = [(tmp_path / "one", record()), (tmp_path / "p", PASS)]
    publish(runs, out=tmp_path, name="m", console=console, verbose=True)
    said = console.file.getvalue()
    assert f"profile: dlscale profile {tmp_path / 'p'}" in said
    assert f"record: {tmp_path / 'p'}" not in said
    assert f"record: {tmp_path / 'one'}" in said


def test_a_matrix_of_passes_alone_has_their_reports_and_none_of_its_own(tmp_path):
    console = Console(file=io.StringIO(), width=200)
    publish([(tmp_path / "p", PASS)], out=tmp_path, name="m", console=console, verbose=True)
    assert [path.name for path in tmp_path.iterdir()] == ["pass-1.md"]
    assert f"report: {tmp_path / 'pass-1.md'}" in console.file.getvalue()
    invalid = PASS.model_copy(update={"validity": PASS.validity.model_copy(update={"status": "invalid"})})
    (tmp_path / "invalid").mkdir()
    publish([(tmp_path / "p", invalid)], out=tmp_path / "invalid", name="m", console=console)
    assert list((tmp_path / "invalid").iterdir()) == []


def test_nothing_ran_where_only_a_profiler_did():
    from runner.images.catalog import load_images

    mxnet = next(image for image in load_images(examples.ROOT).images if image.name == "mxnet 1.9.1")
    assert support_matrix([mxnet], [PASS]).count(NOWHERE) == 2


def test_it_is_told_from_what_was_measured_by_its_name():
    measured = examples.trial()
    assert cell(ONE) == "1cpu-profile-memory"
    assert cell(ONE.measured) == cell(measured) == "1cpu"
    assert title(ONE) == title(measured) + ", profile of memory"


def test_it_has_a_limit_of_its_own_and_names_its_flag():
    request = Request(profile=("memory",), profile_timeout_s=60, timeout_s=3600, inactivity_timeout_s=30)
    assert Limits.of(request, ONE.measured) == Limits(wall_s=3600, silence_s=30, flag="--timeout")
    limits = Limits.of(request, ONE)
    with pytest.raises(Stop, match="no end after 60 s; give a longer --profile-timeout if the job needs it"):
        limits.check(61, started=0, heard=61)


def test_the_frameworks_own_log_is_left_alone():
    """A log of a pass has no figures; a dialect that looks for them would end it as a log that lacks them."""
    caffe = passes.trial("memory", ranks=1, framework="caffe", dialect="caffe")
    spec = launch(examples.job(caffe))
    assert readers(caffe, spec) == {}
    assert readers(caffe.measured, spec).keys() == {spec[0].name}


def test_a_pass_reads_back_as_what_it_was():
    assert Trial.model_validate_json(ONE.model_dump_json()) == ONE


SAMPLER = {"source": "sampler", "reason": "there is no ncu"}
OPS = rows(("op", 0), ("op", 1))


@pytest.mark.parametrize("kind", ["kernels", "memory", "region", "metrics"])
def test_a_pass_that_did_what_was_asked(kind):
    events = [*said(0, kind=kind), *said(1, kind=kind)]
    assert list(pass_faults(trial(kind), events, OPS)) == []
    assert list(pass_doubts(trial(kind), events, OPS)) == []


@pytest.mark.parametrize(
    ("kind", "events", "frame", "fault"),
    [
        ("kernels", [*said(0), *said(1)[:2]], rows(("op", 0)), "1 of 2 ranks ended their pass under the profiler"),
        # Fewer iterations than asked for are a fault, more are none.
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
def test_what_is_missing_of_a_pass(kind, events, frame, fault):
    (found,) = pass_faults(trial(kind), events, frame)
    assert found.startswith(fault)


def test_counters_that_ncu_could_not_read_and_those_of_the_sampler_in_another_table():
    one = trial("metrics", device="gpu", ranks=1, counting=NCU)
    (found,) = pass_faults(one, said(0, kind="metrics"), None)
    assert found.startswith("rank 0 did not tell any kernel's counters; the end of the log says")
    assert list(pass_faults(one, said(0, kind="metrics"), rows(("kernel", 0)))) == []
    sampled = trial("metrics", device="gpu", ranks=1, counting=SAMPLER)
    assert list(pass_faults(sampled, said(0, kind="metrics"), None)) == []


def test_a_rate_that_had_not_settled_and_operators_alone_of_a_gpu_are_doubts():
    unsettled = [*said(0), *said(1, steady=False)]
    assert list(pass_doubts(trial(), unsettled, OPS)) == ["the rate had not settled when the profiler began"]
    of_gpu = trial(device="gpu", ranks=1)
    (doubt,) = pass_doubts(of_gpu, said(0), rows(("op", 0)))
    assert doubt == "the profiler saw operators alone, and no kernel of a GPU"
    assert list(pass_doubts(of_gpu, said(0), rows(("op", 0), ("kernel", 0)))) == []


def timed(*, ranks=2):
    """Passes of all ranks from 10 to 13.5 s, a tenth later in each."""
    return [
        event.model_copy(update={"t": {ProfileStart: 10.0, ProfileStop: 13.5}.get(type(event), 0.0) + rank / 10})
        for rank in range(ranks)
        for event in said(rank, kind="metrics", iterations=40)
    ]


def test_the_stretch_of_each_rank_and_what_it_trained_on():
    counted = trial("metrics", device="gpu", counting=SAMPLER, global_batch=64)
    first, second = pass_windows(counted, timed())
    assert (first.rank, first.start, first.seconds, first.samples) == (0, 10.0, 3.5, 40 * 32)
    assert (second.rank, second.start) == (1, 10.1)
    assert pass_windows(counted, timed(ranks=1)) == ()  # one rank alone is none


@pytest.mark.parametrize(
    "other",
    [
        trial("metrics", device="gpu", counting=NCU),
        trial("kernels"),
        examples.trial(world_size=2, processes=2),
    ],
    ids=["replayed by ncu", "slowed by a profiler", "no pass"],
)
def test_what_a_machine_does_not_do_by_itself_has_no_stretch(other):
    assert pass_windows(other, timed()) == ()


def test_ncu_is_named_as_the_source_of_what_it_told():
    under_ncu = trial("metrics", device="gpu", ranks=1, counting=NCU)
    assert passes.record_of(under_ncu, frame=rows(("kernel", 0))).profile.source == "ncu"
    assert passes.record_of(trial("metrics", device="gpu", ranks=1, counting=SAMPLER)).profile.source == "made up"
