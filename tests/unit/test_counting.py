"""A profiler that is started where it hangs, may not read, or is not there; and a record that does not say why counters came from elsewhere."""

import pytest

from runner.core.trial import Counting
from runner.plan.counting import Nsight, choose_counting

FOLDER = "/opt/nvidia/nsight-compute/2025.3.0"
OPEN = Nsight(program=f"{FOLDER}/ncu", folder=FOLDER, admin_only=False)
ONE_GPU = {"device": "gpu", "devices": 1, "engine": "docker", "here": True}


def test_a_container_gets_the_installation_and_its_program():
    assert choose_counting(OPEN, **ONE_GPU) == Counting(source="ncu", program=f"{FOLDER}/ncu", folder=FOLDER)


@pytest.mark.parametrize("engine", ["venv", "host"])
def test_without_a_container_the_program_of_the_path_is_enough(engine):
    wrapper = Nsight(program="/usr/local/cuda/bin/ncu", admin_only=False)
    found = choose_counting(wrapper, **ONE_GPU | {"engine": engine})
    assert found == Counting(source="ncu", program="/usr/local/cuda/bin/ncu")


@pytest.mark.parametrize("admin_only", [True, None])
def test_root_may_read_counters_that_the_driver_keeps_but_no_container_has_it(admin_only):
    kept = Nsight(program=OPEN.program, folder=FOLDER, admin_only=admin_only, root=True)
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
        (OPEN, {"devices": 2}, "hangs those of several devices"),
        (OPEN, {"here": False}, "the job runs on other machines"),
    ],
)
def test_what_keeps_it_from_being_used_is_named_and_the_sampler_takes_its_place(nsight, place, why):
    found = choose_counting(nsight, **ONE_GPU | place)
    assert (found.source, found.program, found.folder) == ("sampler", None, None)
    assert why in found.reason


def test_a_cpu_has_none_to_read():
    found = choose_counting(OPEN, **ONE_GPU | {"device": "cpu"})
    assert found == Counting(source="none", reason="unavailable: no NVIDIA device")
