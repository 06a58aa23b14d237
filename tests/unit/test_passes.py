"""A profiler in a measured run, a pass of a scale that nobody asked for, a profile that is taken for somebody's baseline."""

import pytest
from test_plan import resources

from runner.core.errors import RequestError
from runner.core.request import Request
from runner.plan.counting import Nsight
from runner.plan.plan import plan

FOLDER = "/opt/nvidia/nsight-compute/2025.3.0"
NSIGHT = Nsight(program=f"{FOLDER}/ncu", folder=FOLDER, admin_only=False)


def test_passes_come_after_all_figures_one_a_kind_and_scale():
    trials = plan(Request(profile=("kernels", "memory"), repeat=2), resources())
    assert [t.profile.kind if t.profile else None for t in trials] == [None] * 4 + ["kernels", "memory"] * 2
    assert [(t.world_size, t.repeat) for t in trials[4:]] == [(1, 1), (1, 1), (2, 1), (2, 1)]


def test_without_a_profile_nothing_is_different():
    assert {t.profile for t in plan(Request(), resources())} == {None}


def test_a_baseline_that_was_not_asked_for_is_not_profiled():
    trials = plan(Request(workers=(2,), profile=("region",), repeat=1), resources())
    assert [(t.world_size, bool(t.profile)) for t in trials] == [(1, False), (2, False), (2, True)]


def test_a_pass_trains_the_same_thing_and_times_no_wires():
    measured, profiled = plan(Request(workers=(1,), profile=("kernels",), repeat=1), resources())
    assert profiled.key == measured.key
    assert (profiled.batch_per_device, profiled.strategy) == (measured.batch_per_device, measured.strategy)
    assert measured.probe_bytes
    assert profiled.probe_bytes == ()


def test_settings_reach_the_kinds_that_know_them():
    request = Request(
        workers=(1,),
        profile=("kernels", "memory"),
        profile_after=300,
        profile_iterations=7,
        profile_region="backward",
        repeat=1,
    )
    _, kernels, memory = [trial.profile for trial in plan(request, resources())]
    assert (kernels.after, kernels.iterations, kernels.region) == (300, 7, "backward")
    assert (memory.after, memory.iterations, memory.region) == (300, 7, None)


def test_who_reads_the_counters_is_decided_for_each_scale():
    trials = plan(Request(gpus=(1, 2), profile=("metrics",), repeat=1), resources("pytorch", "gpu", nsight=NSIGHT))
    one, two = [trial.profile for trial in trials if trial.profile]
    assert (one.iterations, two.iterations) == (1, 5)  # ncu replays every kernel
    assert (one.counting.source, one.ncu.program) == ("ncu", f"{FOLDER}/ncu")
    assert (two.counting.source, two.ncu) == ("sampler", None)
    assert "several devices" in two.counting.reason


def test_only_counters_have_somebody_who_reads_them():
    trials = plan(Request(gpus=(1,), profile=("kernels",), repeat=1), resources("pytorch", "gpu", nsight=NSIGHT))
    assert trials[-1].profile.counting is None


def test_a_kind_that_the_program_does_not_know_is_refused_before_anything_starts():
    with pytest.raises(RequestError, match="^PROFILE=metrics is not offered by FRAMEWORK=caffe; ask for "):
        plan(Request(profile=("metrics",)), resources("caffe"))
