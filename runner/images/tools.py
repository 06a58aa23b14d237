"""The image that emulated nodes are made of: Debian with Python, which holds the lease, and tc, which shapes links."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runner.core.provenance import SUITE_ROOT
from runner.images.base import ensure_base
from runner.images.catalog import load_images
from runner.images.versions import BaseSpec

if TYPE_CHECKING:
    from runner.engines.docker import Client

TOOLS: Final = "bookworm-tools"


def tools_base() -> BaseSpec:
    """What images/versions.yaml makes it from; its `reference` names the image."""
    return load_images(SUITE_ROOT).base(TOOLS)


def ensure_tools(client: Client, *, cache: Path, report: Callable[[str], None]) -> str:
    """Have it in the engine and return its reference.

    Args:
        client: the engine.
        cache: bases made from a mirror are kept in its folder `bases`.
        report: told what is being done.

    Raises:
        RequestError: neither a registry nor a mirror gives it.
    """
    base = tools_base()
    ensure_base(base, client=client, root=SUITE_ROOT, cache=cache, report=report)
    return base.reference
