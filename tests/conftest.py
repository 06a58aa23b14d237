"""What all tests share: skips are failures where DLSCALE_NO_SKIP says that this machine must be able to run everything."""

import os
import signal
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def pytest_configure():
    """A shell has what it starts in the background ignore Ctrl-C, and so would all that the tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
    """Keep to one worker, in their order, the tests that use what there is one of: the engine, the machine's network.

    The browser's share a page and keep together too, beside those. A test that is marked `beside` goes anywhere: it neither counts nor removes
    what others run on the engine.
    """
    for item in items:
        kind = item.path.relative_to(TESTS).parts[0]
        if kind != "unit" and not item.get_closest_marker("beside"):
            item.add_marker(pytest.mark.xdist_group("browser" if kind == "browser" else "machine"))
