"""`dlscale matrix`: writes the support matrix into the README, between two marks, or says that it is not the one there."""

from __future__ import annotations

from typing import Final

from runner.catalog import load_images
from runner.errors import DlscaleError
from runner.machine.provenance import SUITE_ROOT
from runner.on_file import records_under
from runner.report.matrix import support_matrix
from runner.results import folders_under

README: Final = SUITE_ROOT / "README.md"
BEGIN: Final = (
    "<!-- support matrix, written by `dlscale matrix` from images/versions.yaml and results/: do not edit -->\n"
)
END: Final = "<!-- end of the support matrix -->\n"


def export(*, check: bool) -> None:
    """Write the matrix; with `check`, only hold the one in the README against it.

    Raises:
        DlscaleError: the README lacks the marks, or holds another matrix.
    """
    text = README.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise DlscaleError(f"{README}: lacks the marks {BEGIN.strip()!r} and {END.strip()!r}; restore them")
    folders = folders_under(SUITE_ROOT / "results")
    records = [record for folder in folders for _, record in records_under(folder)]
    current = before + begin + support_matrix(load_images(SUITE_ROOT).everything, records) + end + after
    if current == text:
        return
    if check:
        raise DlscaleError(
            f"{README}: its support matrix differs from the catalog and the records; run `dlscale matrix`"
        )
    README.write_text(current, encoding="utf-8")
