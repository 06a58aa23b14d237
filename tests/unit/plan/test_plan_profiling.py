"""Prevents a profiler in a measured run, a pass at a scale that was not requested, and a profile as a baseline.

Of Nsight Compute, prevents: an old version instead of the newest, a wrapper that a container cannot use, a driver's setting read the wrong way
round; a start although it hangs, lacks permission, or is missing; a record that does not say why its counters came from elsewhere.
"""

import pytest
from planned import resources

from runner.core.request import Request
from runner.core.trial import Counting
from runner.plan.plan import plan
from runner.plan.profiling import MAX_REPLAYED, Nsight, choose_counting, find_nsight, limit_replay

FOLDER = "/opt/nvidia/nsight-compute/2025.3.0"
NSIGHT = Nsight(program=f"{FOLDER}/ncu", folder=FOLDER, admin_only=False)
ONE_GPU = {"device": "gpu", "devices": 1, "engine": "docker", "here": True}


def test_passes_come_after_all_measured_trials_one_per_kind_and_scale():
    trials = plan(Request(profile=("kernels", "memory"), repeat=2), resources())
    assert [t.profile.kind if t.profile else None for t in trials] == [None] * 4 + ["kernels", "memory"] * 2
    assert [(t.world_size, t.repeat) for t in trials[4:]] == [(1, 1), (1, 1), (2, 1), (2, 1)]


def test_a_baseline_that_was_not_requested_is_not_profiled():
    trials = plan(Request(workers=(2,), profile=("region",), repeat=1), resources())
    assert [(t.world_size, bool(t.profile)) for t in trials] == [(1, False), (2, False), (2, True)]


def test_a_pass_trains_the_same_model_and_probes_no_wires():
    measured, profiled = plan(Request(workers=(1,), profile=("kernels",), repeat=1), resources())
    assert profiled.key == measured.key
    assert (profiled.batch_per_device, profiled.strategy) == (measured.batch_per_device, measured.strategy)
    assert measured.probe_bytes
    assert profiled.probe_bytes == ()


def test_settings_reach_the_kinds_that_support_them():
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


def test_the_reader_of_counters_is_chosen_per_scale_and_only_for_metrics():
    request = Request(gpus=(1, 2), profile=("metrics", "kernels"), repeat=1)
    trials = plan(request, resources("pytorch", "gpu", nsight=NSIGHT))
    assert {trial.profile.counting for trial in trials if trial.profile and trial.profile.kind == "kernels"} == {None}
    one, two = [trial.profile for trial in trials if trial.profile and trial.profile.kind == "metrics"]
    assert (one.iterations, two.iterations) == (1, 5)  # ncu replays every kernel
    assert (one.counting.source, one.ncu.program) == ("ncu", f"{FOLDER}/ncu")
    assert (two.counting.source, two.ncu) == ("sampler", None)
    assert "several devices" in two.counting.reason


# Nsight Compute on this machine


@pytest.fixture
def machine(tmp_path):
    """Make installations of Nsight Compute, and the driver's parameters, below a root."""

    def make(*folders, parameters=None, target=True):
        for folder in folders:
            (tmp_path / folder).mkdir(parents=True)
            (tmp_path / folder / "ncu").write_text("#!/bin/sh\n")
            (tmp_path / folder / "ncu").chmod(0o755)
            if target:
                (tmp_path / folder / "target").mkdir()
        if parameters:
            path = tmp_path / "proc/driver/nvidia/params"
            path.parent.mkdir(parents=True)
            path.write_text(parameters)
        return tmp_path

    return make


def find(root, path=""):
    return find_nsight(sys_root=root, path=str(path), root=False)


@pytest.mark.parametrize(
    ("there", "path", "taken"),
    [
        (("opt/nvidia/nsight-compute/2024.3.2", "opt/nvidia/nsight-compute/2024.10.0"), "", 1),  # 10 is newer than 3
        (("usr/local/cuda-13.0/nsight-compute-2025.3.0",), "", 0),
        (("opt/nvidia/nsight-compute/2025.3.0", "home/me/ncu-2023.1"), "home/me/ncu-2023.1", 1),
    ],
    ids=["the newest", "of a CUDA toolkit", "of PATH"],
)
def test_the_newest_installation_or_that_on_path_is_chosen(machine, there, path, taken):
    root = machine(*there)
    found = find(root, root / path if path else "")
    assert (found.program, found.folder) == (str(root / there[taken] / "ncu"), str(root / there[taken]))


def test_with_a_wrapper_on_path_containers_get_an_installation(machine):
    root = machine("opt/nvidia/nsight-compute/2025.3.0")
    machine("usr/local/cuda/bin", target=False)
    found = find(root, root / "usr/local/cuda/bin")
    assert found.program == str(root / "usr/local/cuda/bin/ncu")
    assert found.folder == str(root / "opt/nvidia/nsight-compute/2025.3.0")


def test_a_folder_without_the_injected_libraries_is_no_installation(machine, tmp_path):
    assert find(tmp_path) == Nsight()
    assert find(machine("opt/nvidia/nsight-compute/2025.3.0", target=False)) == Nsight()


@pytest.mark.parametrize(
    ("parameters", "admin_only"),
    [
        ("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\nPreserveVideoMemoryAllocations: 0\n", True),
        ("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 0\n", False),
        ("ResmanDebugLevel: 4294967295\n", None),
        (None, None),
    ],
)
def test_the_drivers_restriction_of_counters_is_read(machine, parameters, admin_only):
    assert find(machine(parameters=parameters)).admin_only is admin_only


# Who reads the counters


def test_a_container_gets_the_installation_and_its_program():
    assert choose_counting(NSIGHT, **ONE_GPU) == Counting(source="ncu", program=f"{FOLDER}/ncu", folder=FOLDER)


@pytest.mark.parametrize("engine", ["venv", "host"])
def test_without_a_container_the_program_on_path_suffices(engine):
    wrapper = Nsight(program="/usr/local/cuda/bin/ncu", admin_only=False)
    found = choose_counting(wrapper, **ONE_GPU | {"engine": engine})
    assert found == Counting(source="ncu", program="/usr/local/cuda/bin/ncu")


@pytest.mark.parametrize("admin_only", [True, None])
def test_root_may_read_restricted_counters_but_not_in_a_container(admin_only):
    kept = Nsight(program=NSIGHT.program, folder=FOLDER, admin_only=admin_only, root=True)
    assert choose_counting(kept, **ONE_GPU | {"engine": "venv"}).source == "ncu"
    in_container = choose_counting(kept, **ONE_GPU)
    assert in_container.source == "sampler"
    assert "jobs in containers are never root" in in_container.reason


@pytest.mark.parametrize(
    ("nsight", "place", "why"),
    [
        (Nsight(admin_only=False), {}, "there is no ncu on PATH"),
        (Nsight(program="/usr/local/cuda/bin/ncu", admin_only=False), {}, "in no installation folder"),
        (Nsight(program="/usr/bin/ncu", admin_only=True), {"engine": "venv"}, "the suite does not run as root"),
        (NSIGHT, {"devices": 2}, "hangs those of several devices"),
        (NSIGHT, {"here": False}, "the job runs on other machines"),
    ],
)
def test_if_ncu_cannot_be_used_the_sampler_is_with_the_reason(nsight, place, why):
    found = choose_counting(nsight, **ONE_GPU | place)
    assert (found.source, found.program, found.folder) == ("sampler", None, None)
    assert why in found.reason


@pytest.mark.parametrize(("kernels", "source"), [(MAX_REPLAYED / 2, "ncu"), (MAX_REPLAYED / 2 + 1, "sampler")])
def test_the_sampler_reads_counters_if_there_are_too_many_kernels(kernels, source):
    request = Request(gpus=(1,), profile=("metrics",), profile_iterations=2, repeat=1)
    measured, metrics = plan(request, resources("pytorch", "gpu", nsight=NSIGHT))
    counted = limit_replay(metrics, kernels).profile.counting
    assert (counted.source, bool(counted.reason)) == (source, source == "sampler")
    assert limit_replay(measured, kernels) == measured


def test_cpus_have_no_counters():
    found = choose_counting(NSIGHT, **ONE_GPU | {"device": "cpu"})
    assert found == Counting(source="none", reason="unavailable: no NVIDIA device")
