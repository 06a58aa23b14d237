"""Prevents: a module that the oldest Python among the images of its framework can't parse, in what runs there: programs, packers, launchers and
samplers. Caffe's oldest is 3.6, of a vendor's image."""

import ast
import re

import examples
import pytest
from planned import CATALOG

from runner.core.dataset import PACKED_FOR
from runner.core.workload import load_workloads

WORKLOADS = examples.ROOT / "workloads"


def oldest_python(framework):
    """(3, minor) of the oldest Python that runs the framework in an image."""
    return min(tuple(map(int, image.python.split("."))) for image in CATALOG.images if image.framework == framework)


def started(framework):
    """The modules that an image of the framework runs; those that launchers start are in the golden command lines."""
    for workload in load_workloads(examples.ROOT):
        for programs in workload.programs.values():
            if framework in programs:
                yield WORKLOADS / workload.name / programs[framework]
    if framework in PACKED_FOR:
        yield WORKLOADS / PACKED_FOR[framework].program
    yield WORKLOADS / "monitor.py"
    for file in (examples.ROOT / "tests" / "golden" / "launch").glob(f"{framework}-*.txt"):
        names = re.findall(r"/workloads/(\S+\.py)\b", file.read_text("utf-8"))
        yield from (WORKLOADS / name for name in names)


def imported(path):
    """The modules of workloads/ that a module imports, at its top or when it needs them."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            folders = (WORKLOADS, path.parent)
            files = (folder.joinpath(*name.split(".")).with_suffix(".py") for name in names for folder in folders)
            yield from (file for file in files if file.exists())


def with_imports(paths):
    found, todo = set(), set(paths)
    while todo:
        found |= todo
        todo = {one for path in todo for one in imported(path)} - found
    return sorted(found)


@pytest.mark.parametrize("framework", CATALOG.frameworks)
def test_the_oldest_python_of_a_framework_parses_what_its_images_run(framework):
    paths = with_imports(started(framework))
    assert {path.name for path in paths} >= {"lease.py", "monitor_nvml.py", f"train_{framework}.py"}
    for path in paths:
        ast.parse(path.read_text("utf-8"), str(path), feature_version=oldest_python(framework))
