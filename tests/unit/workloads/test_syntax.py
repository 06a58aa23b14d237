"""Prevents: a module that the Python 3.6 of the vendors' oldest images can't parse, in what runs there: Caffe's programs, launchers and samplers."""

import ast
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).parents[3] / "workloads"
FOLDERS = (WORKLOADS, WORKLOADS / "imagenet_cnn")
NAMES = ("lease.py", "monitor.py", "ncu.py", "own_env.py", "tf_workers.py", "imagenet_cnn/pack_lmdb.py")
STARTED = [*WORKLOADS.rglob("*_caffe.py"), *(WORKLOADS / name for name in NAMES)]


def imported(path):
    """The modules of workloads/ that a module imports, at its top or when it needs them."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (file for name in names for folder in FOLDERS if (file := folder / f"{name}.py").exists())


def with_imports(paths):
    found, todo = set(), set(paths)
    while todo:
        found |= todo
        todo = {one for path in todo for one in imported(path)} - found
    return sorted(found)


@pytest.mark.parametrize("path", with_imports(STARTED), ids=lambda path: path.name)
def test_a_module_parses_under_python_3_6(path):
    assert ast.parse(path.read_text("utf-8"), feature_version=(3, 6))
