"""An old profiler that is taken for the new one, a wrapper that a container can't use, a driver's setting that is read the wrong way round."""

import pytest

from runner.plan.counting import Nsight
from runner.plan.nsight import find_nsight


@pytest.fixture
def machine(tmp_path):
    """Make installations of Nsight Compute, and what the driver says, below a root."""

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


def test_nothing_is_nothing(tmp_path):
    assert find(tmp_path) == Nsight()


def test_the_newest_installation_is_taken_by_number_and_not_by_letter(machine):
    root = machine("opt/nvidia/nsight-compute/2024.3.2", "opt/nvidia/nsight-compute/2024.10.0")
    assert find(root).program == str(root / "opt/nvidia/nsight-compute/2024.10.0/ncu")


def test_a_cuda_toolkit_has_one(machine):
    root = machine("usr/local/cuda-13.0/nsight-compute-2025.3.0")
    assert find(root).folder == str(root / "usr/local/cuda-13.0/nsight-compute-2025.3.0")


def test_the_one_of_the_path_goes_before_all_others(machine):
    root = machine("opt/nvidia/nsight-compute/2025.3.0", "home/me/ncu-2023.1")
    found = find(root, root / "home/me/ncu-2023.1")
    assert (found.program, found.folder) == (
        str(root / "home/me/ncu-2023.1/ncu"),
        str(root / "home/me/ncu-2023.1"),
    )


def test_a_wrapper_of_the_path_leads_to_an_installation_for_containers(machine):
    root = machine("opt/nvidia/nsight-compute/2025.3.0")
    machine("usr/local/cuda/bin", target=False)
    found = find(root, root / "usr/local/cuda/bin")
    assert found.program == str(root / "usr/local/cuda/bin/ncu")
    assert found.folder == str(root / "opt/nvidia/nsight-compute/2025.3.0")


def test_a_folder_without_what_is_injected_is_no_installation(machine):
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
def test_whose_the_counters_are(machine, parameters, admin_only):
    assert find(machine(parameters=parameters)).admin_only is admin_only
