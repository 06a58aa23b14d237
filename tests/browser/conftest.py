"""A headless Chromium that may read only files: any other request, and any error on a page, fails the test that caused it."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

import pages
import pytest

from runner.commands.report import PAGE, report


@pytest.fixture(scope="session")
def chromium():
    """The system's Chromium, driven through Playwright."""
    where = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if where is None:
        pytest.skip("no Chromium on this machine; Debian's package is `chromium`")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        # Without Chromium's own sandbox, which root can't use; the pages are our own.
        browser = playwright.chromium.launch(executable_path=where, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def visit(chromium):
    """Open a page: `with visit(path, scheme="dark") as page`; errors on the page fail the test."""

    @contextmanager
    def opened(path, *, scheme="light", width=1280):
        context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 1000})
        wrong = []
        page = context.new_page()
        page.on("console", lambda said: said.type in {"error", "warning"} and wrong.append(said.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda asked: asked.url.startswith(("file:", "data:", "blob:")) or wrong.append(asked.url),
        )
        try:
            page.goto(path.as_uri(), wait_until="load")
            yield page
            assert wrong == []
        finally:
            context.close()

    return opened


@pytest.fixture(scope="session")
def everything(tmp_path_factory):
    """A report of run directories with everything that a page can show, as written by `dlscale report`."""
    runs = tmp_path_factory.mktemp("results") / "made up #1"  # a name that must be escaped in a link
    pages.leave_everything(runs)
    report([runs], out=None)
    return runs / PAGE
