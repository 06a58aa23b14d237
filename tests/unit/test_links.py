"""Prevents: a link in a document or a kept report that leads to a record or a heading that is gone."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from checkout import ROOT, tracked

LINK = re.compile(r"\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"[a-z]+:")
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def linked(document):
    return [link for link in LINK.findall(CODE.sub("", document.read_text("utf-8"))) if not ELSEWHERE.match(link)]


def anchors(document):
    """Ids that are written out, and those that a code host gives to headings."""
    text = document.read_text("utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    given = {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}
    return given | set(re.findall(r'<a id="([^"]+)"', text))


@pytest.mark.parametrize(
    "document", [one for one in tracked("*.md") if linked(one)], ids=lambda path: str(path.relative_to(ROOT))
)
def test_links_lead_somewhere(document):
    for link in linked(document):
        path, _, anchor = link.partition("#")
        target = document.parent / unquote(path) if path else document
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link
