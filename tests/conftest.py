"""What all tests share: skips are failures where DLSCALE_NO_SKIP says that this machine must be able to run everything."""

import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("DLSCALE_NO_SKIP") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be: {reason}"


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    """Keep to one worker, in their order, the tests that use what there is one of: the engine, the machine's network, its browser."""
    for item in items:
        if "unit" not in item.path.relative_to(TESTS).parts[:1]:
            item.add_marker(pytest.mark.xdist_group("machine"))
