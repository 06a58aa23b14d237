"""Shared by all tests: skips are failures if DLSCALE_NO_SKIP says that this machine must be able to run everything."""

import fcntl
import os
import shutil
import signal
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

import hypothesis
import pytest
from disks import mounted

TESTS = Path(__file__).parent

# By default, a property fails if one example takes longer than 0.2 s, which depends on the cores' other load.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_configure():
    """A shell makes background processes ignore Ctrl-C, and everything started by the tests would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("DLSCALE_NO_SKIP") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"skipped although DLSCALE_NO_SKIP is set: {reason}"


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a separate disk of 8 MiB; `disks.fill` fills it."""
    folder = tmp_path / "small"
    folder.mkdir()
    with mounted(folder, 8 * 2**20):
        yield folder


@pytest.fixture(scope="session")
def one_baseline():
    """`with one_baseline(*key, out=out)`: runs on several workers share one baseline on one worker across all tests with that key.

    The first test runs it, and the others find it in `out`: a speedup's two runs may differ in their strategy.
    """
    from commands import as_valid  # loads the suite

    made = {}

    @contextmanager
    def shared(*key, out):
        for run in made.get(key, ()):
            as_valid(shutil.copytree(run, out / run.name))
        yield
        made.setdefault(key, list(out.glob("*-1cpu*-r1")))

    return shared


# Resources shared by the tests of a folder or file, which keeps them on one worker and in order. The README's commands make a rig too.
GROUPS = {
    "browser": "page",
    "engines": "engine",
    "containers": "engine",
    "hosts": "rig",
    "containers/test_readme.py": "rig",
}

# This much niceness leaves a third of the time on a contended core.
STEPS = 5


@contextmanager
def lowered_priority():
    """Lower the priority in favour of the tests that all wait for; only root can raise it again."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    if not os.geteuid():
        os.setpriority(os.PRIO_PROCESS, 0, usual + STEPS)
    yield
    if not os.geteuid():
        os.setpriority(os.PRIO_PROCESS, 0, usual)


def group(item):
    """The resource a test shares with others; None if it can run on any worker: unit tests, and tests marked `beside`."""
    path = item.path.relative_to(TESTS)
    return None if item.get_closest_marker("beside") else GROUPS.get(str(path), GROUPS.get(path.parts[0]))


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    for item in items:
        if name := group(item):
            item.add_marker(pytest.mark.xdist_group(name))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """A test marked `alone` removes what others run on the engine, and therefore waits until none does; all wait while images are built."""
    beside, grouped = item.get_closest_marker("beside"), group(item) in {"engine", "rig"}
    with (Path(tempfile.gettempdir()) / "dlscale-tests.lock").open("w") as lock, ExitStack() as during:
        if grouped or beside:
            fcntl.flock(lock, fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH)
        if beside:
            fcntl.flock(lock, fcntl.LOCK_UN)
        if not grouped:
            during.enter_context(lowered_priority())
        yield
