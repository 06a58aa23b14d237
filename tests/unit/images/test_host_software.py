"""ENGINE=host: the suite's programs on the machine's own Python and framework.

Prevents: jobs started in the suite's own environment, which has no framework, or by a version manager's shim that starts nothing; another
version of the framework or of Python taken for the same software; an image option that is silently accepted; a record that counts as one of an
image; Horovod requested but missing; a dry run that prints other commands than it runs.

The command lines of dry runs are compared with golden files; `DLSCALE_GOLDEN=write make test` rewrites them.
"""

import json
import os
import sys

import examples
import planned
import pytest
from goldens import expected
from records import record
from unit.plan.test_custom_image import Silent, drawn

from runner.cluster import cluster
from runner.commands import doctor
from runner.commands.documents import support_matrix
from runner.core.container_spec import Mount
from runner.core.contradictions import refuse_contradictions
from runner.core.errors import RequestError
from runner.core.request import Request
from runner.engines.local import LocalEngine
from runner.images import custom_image
from runner.images.custom_image import HostPython, HostSoftware, find_host_python, find_host_software
from runner.plan import discovery
from runner.plan.plan import plan
from runner.run import bench, prepare

GOLDEN = examples.ROOT / "tests" / "golden" / "host"
TORCH = (("numpy", "2.1.0"), ("torch", "2.11.0+cu130"), ("torch-tb-profiler", "0.4"))
PYTHON = HostPython(path="/opt/torch/bin/python3", prefix="/opt/torch", version="3.12.3", installed=TORCH)


def install(folder, *installed, path=None, prefix=None, script=None):
    """Write a `python3` that reports these packages to a folder."""
    told = {"path": path or f"{folder}/python3", "prefix": prefix or "/opt", "version": "3.12.3"}
    text = script or f"cat <<'END'\n{json.dumps(told | {'installed': installed})}\nEND\n"
    folder.mkdir(exist_ok=True)
    (folder / "python3").write_text(f"#!/bin/sh\n{text}")
    (folder / "python3").chmod(0o755)
    return str(folder)


def on_path(monkeypatch, *folders):
    monkeypatch.setenv("PATH", os.pathsep.join([*folders, "/usr/bin", "/bin"]))


def software(**changes):
    fields = {"python": PYTHON, "framework": "pytorch", "distribution": "torch", "version": "2.11.0+cu130"}
    return HostSoftware.model_validate(fields | {"horovod": None, "device": "cpu"} | changes)


# Choice of the Python


def test_the_first_python_on_path_is_used_by_its_own_executable_path(monkeypatch, tmp_path):
    first = install(tmp_path / "shims", ("torch", "2.11.0+cu130"), path="/opt/versions/3.12/bin/python3")
    second = install(tmp_path / "second", ("torch", "1.0"))
    on_path(monkeypatch, first, second)
    found = find_host_python()
    assert (found.path, found.version) == ("/opt/versions/3.12/bin/python3", "3.12.3")
    assert found.frameworks == ("torch 2.11.0+cu130",)


def in_own_environment(monkeypatch, tmp_path):
    """Pretend that the suite has an environment of its own; return its path."""
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "prefix", sys.prefix if sys.prefix != "/usr" else str(tmp_path))
    return sys.prefix


def test_pythons_that_fail_to_start_or_are_the_suites_own_are_skipped(monkeypatch, tmp_path):
    """An environment shared with a framework is acceptable."""
    prefix = in_own_environment(monkeypatch, tmp_path)
    broken = install(tmp_path / "shim", script="echo 'version 3.9 is not installed' >&2; exit 127\n")
    babbling = install(tmp_path / "babbling", script="echo hello\n")
    ours = install(tmp_path / "ours", ("rich", "15.0.0"), prefix=prefix)
    theirs = install(tmp_path / "theirs", ("torch", "2.0"))
    on_path(monkeypatch, broken, babbling, ours, theirs)
    assert find_host_python().path == f"{theirs}/python3"
    shared = install(tmp_path / "shared", ("torch", "2.11.0+cu130"), ("rich", "15.0.0"), prefix=prefix)
    on_path(monkeypatch, shared, theirs)
    assert find_host_python().path == f"{shared}/python3"


def test_an_unreadable_folder_on_path_is_skipped(monkeypatch, tmp_path):
    """E.g. root's folders, for a user who switched users and kept root's PATH; here, a name longer than the system's limit."""
    theirs = install(tmp_path / "theirs", ("torch", "2.0"))
    on_path(monkeypatch, str(tmp_path / ("x" * 300)), theirs)
    assert find_host_python().path == f"{theirs}/python3"


def test_a_real_python_describes_itself(monkeypatch, tmp_path):
    """The interpreter that runs this test, found in a folder of PATH, in the environment of jobs only."""
    on_path(monkeypatch, install(tmp_path / "shims", script=f'exec {sys.executable} "$@"\n'))
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)  # as if the suite had no environment of its own
    found = find_host_python()
    assert (found.path, found.version) == (sys.executable, sys.version.split()[0])
    assert found.find("pytest")[1] == pytest.__version__


# Its framework


@pytest.mark.parametrize(
    ("framework", "installed", "found"),
    [
        ("pytorch", TORCH, ("torch", "2.11.0+cu130")),
        ("mxnet", (("mxnet_cu117", "1.9.1"),), ("mxnet-cu117", "1.9.1")),
        ("tensorflow", (("tensorflow-io", "0.3"), ("tensorflow_cpu", "2.21.0")), ("tensorflow-cpu", "2.21.0")),
        ("pytorch", (("Torch", "2.0"), ("torch", "1.0")), ("torch", "2.0")),  # an import finds the first
    ],
)
def test_the_framework_is_found_by_the_packages_that_provide_it(monkeypatch, framework, installed, found):
    monkeypatch.setattr(custom_image, "find_host_python", lambda: PYTHON.model_copy(update={"installed": installed}))
    image = find_host_software(framework, device="cpu", horovod=False)
    assert (image.distribution, image.version) == found
    assert image.reference == f"{found[0]} {found[1]} of /opt/torch/bin/python3"


@pytest.mark.parametrize(
    ("python", "asked", "says"),
    [
        (PYTHON, {"framework": "caffe"}, "ENGINE=host: caffe is not a Python package; ask for"),
        (PYTHON, {"framework": "pytroch"}, "unknown FRAMEWORK 'pytroch'; did you mean pytorch? Known: pytorch"),
        (PYTHON, {"framework": "mxnet"}, "ENGINE=host: /opt/torch/bin/python3 has no mxnet; put a python3 first on"),
        (None, {}, "ENGINE=host: PATH has no python3 except the suite's own; add one that has torch, or leave"),
        (PYTHON, {"strategy": "horovod"}, "ENGINE=host: /opt/torch/bin/python3 has no horovod; install it there"),
    ],
)
def test_missing_software_is_refused_in_one_sentence(monkeypatch, python, asked, says):
    monkeypatch.setattr(custom_image, "find_host_python", lambda: python)
    monkeypatch.setattr(cluster, "inspect_local", examples.node)
    with pytest.raises(RequestError) as caught:
        discovery.discover(Request.model_validate({"framework": "pytorch", "engine": "host"} | asked))
    assert str(caught.value).startswith(says)


MOUNT = (Mount(source="/opt", target="/opt"),)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "ENGINE=host runs a framework installed on this machine, and none is named; add FRAMEWORK=mxnet, "),
        ({"framework": "pytorch", "version": "2.6.0"}, "VERSION=2.6.0 selects an image of the suite, and ENGINE=host"),
        ({"framework": "pytorch", "mounts": MOUNT}, "MOUNT=/opt mounts a folder in a container, and ENGINE=host has"),
        ({"framework": "pytorch", "image": "corp/net:7"}, "--image corp/net:7 runs only in a con"),
        ({"image": "corp/net:7", "command": ("train",)}, "--image corp/net:7 runs only in a conta"),
        ({"framework": "pytorch", "hosts": "a:4,b:4"}, "ENGINE=host emulates no nodes and runs on no"),
        ({"framework": "pytorch", "nodes": 2}, "ENGINE=host emulates no nodes and runs on no"),
    ],
)
def test_options_that_select_an_image_or_another_machine_are_refused(asked, says):
    with pytest.raises(RequestError) as caught:
        refuse_contradictions(Request.model_validate({"engine": "host"} | asked))
    assert str(caught.value).startswith(says)


# Planning and running


def trial(image):
    return plan(
        Request(engine="host", framework="pytorch", workers=(1,), repeat=1), planned.resources("pytorch", image=image)
    )[0]


def test_the_key_differs_exactly_if_the_software_does():
    key = trial(software()).key
    newer = PYTHON.model_copy(update={"version": "3.13.0"})
    elsewhere = PYTHON.model_copy(update={"path": "/usr/bin/python3"})
    beside = PYTHON.model_copy(update={"installed": (*TORCH, ("unrelated", "1.0"))})
    assert trial(software(python=beside)).key == key
    others = {trial(software(**changes)).key for changes in ({"python": newer}, {"python": elsewhere})}
    others |= {trial(software(version="2.12.0")).key, trial(software(horovod="0.28.1")).key}
    assert len(others) == 4
    assert key not in others


def test_a_run_on_host_software_does_not_count_for_an_image_of_its_version():
    image = next(image for image in planned.CATALOG.images if image.name == "pytorch 2.13.0-cpu")
    found = trial(software(version="2.13.0-cpu"))
    assert (found.framework, found.version) == ("pytorch", "2.13.0-cpu")
    ran = record(trial=found)
    assert support_matrix([image], [ran.model_copy(update={"engine": "host"})]) == support_matrix([image], [])
    assert support_matrix([image], [ran]) != support_matrix([image], [])


def test_preparing_host_software_changes_nothing(monkeypatch):
    monkeypatch.setattr(custom_image, "find_host_python", lambda: PYTHON)
    monkeypatch.setattr(cluster, "inspect_local", lambda: examples.gpu_node(1))
    monkeypatch.setattr(prepare, "ensure", lambda *_, **__: pytest.fail("built an image"))
    monkeypatch.setattr(prepare, "ensure_environment", lambda **_: pytest.fail("made an environment"))
    looked = discovery.discover(Request(framework="pytorch", engine="host"))
    ready = prepare.prepare(looked, Silent(), packed_at=None, run="m")
    assert isinstance(ready.describer, LocalEngine)
    assert ready.describer.name == "host"
    assert ready.describer.site(None).python == "/opt/torch/bin/python3"
    assert (ready.engine_details.version, ready.engine_details.reason) == ("3.12.3", "asked for with ENGINE=host")
    assert ready.image_used.reference == "torch 2.11.0+cu130 of /opt/torch/bin/python3"
    assert (ready.image_used.id, ready.image_used.digest, ready.image_used.lock_sha256) == (None, None, None)
    assert prepare.preview(looked, packed_at=None).image_used == ready.image_used


SCENES = {
    "one-gpu": {"gpus": (1,), "model": "resnet50", "precision": "bf16"},
    "two-workers-horovod": {"workers": (2,), "model": "resnet18", "strategy": "horovod"},
}


@pytest.mark.parametrize("name", SCENES)
def test_a_dry_run_prints_the_exact_command_lines(monkeypatch, capsys, name):
    installed = (*TORCH, ("horovod", "0.28.1"))
    monkeypatch.setattr(custom_image, "find_host_python", lambda: PYTHON.model_copy(update={"installed": installed}))
    monkeypatch.setattr(cluster, "inspect_local", lambda: examples.gpu_node(1))
    few = {"batch": 64, "iterations": 40, "warmup": 4, "telemetry_hz": 0, "repeat": 1}
    asked = Request.model_validate({"framework": "pytorch", "engine": "host"} | few | SCENES[name])
    assert bench.dry_run(asked) == 0
    lines = drawn(capsys.readouterr().out.replace(str(examples.ROOT), "/suite"))
    assert lines == expected(GOLDEN / f"{name}.txt", lines)


def test_the_doctor_lists_host_software_and_does_not_require_it(monkeypatch):
    monkeypatch.setattr(doctor, "find_host_python", lambda: PYTHON)
    assert [fact.version for fact in doctor.host_facts()] == ["torch 2.11.0+cu130 of /opt/torch/bin/python3"]
    for nothing in (None, PYTHON.model_copy(update={"installed": (("numpy", "2.1.0"),)})):
        monkeypatch.setattr(doctor, "find_host_python", lambda found=nothing: found)
        assert doctor.host_facts() == ()
