"""Prevents: a module that claims Python 3.6 and that the vendors' oldest images can't parse."""

import ast
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).parents[3] / "workloads"
OLDEST = [
    path
    for path in sorted(WORKLOADS.rglob("*.py"))
    if "Python 3.6 only" in " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
]


@pytest.mark.parametrize("path", OLDEST, ids=lambda path: path.name)
def test_a_module_parses_under_python_3_6(path):
    assert ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))
