"""Takes the README's pictures of the report page, from committed records only: of its top, or of a section.

    git clone --quiet . /tmp/clean && .venv/bin/dlscale report /tmp/clean/results --out /tmp/drawn
    .venv/bin/python tests/browser/screenshot.py /tmp/drawn/report.html docs/report.png
    .venv/bin/python tests/browser/screenshot.py /tmp/drawn/report.html docs/study.png studies

The last argument is a section's anchor in the page's address.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


def main(page_file: Path, picture: Path, section: str = "") -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1240, "height": 1180}, color_scheme="light")
        page.goto(page_file.resolve().as_uri() + (f"#{section}" if section else ""))
        page.locator(".main-svg").first.wait_for()
        page.wait_for_timeout(2000)  # for the other figures in view
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
