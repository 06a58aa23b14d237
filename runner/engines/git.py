"""Reads the commit and state of a checkout with git."""

from __future__ import annotations

from pathlib import Path

from runner.core.provenance import Git
from runner.engines.process import CommandError, run


def read_git(checkout: Path) -> Git:
    """Read commit, state and branch of a checkout."""
    try:
        commit = run(["git", "-C", str(checkout), "rev-parse", "HEAD"], timeout_s=10).strip()
        # Records that land in the checkout are no part of what ran.
        changes = run(["git", "-C", str(checkout), "status", "--porcelain", "--", ":!results"], timeout_s=30)
        branch = run(["git", "-C", str(checkout), "rev-parse", "--abbrev-ref", "HEAD"], timeout_s=10).strip()
    except CommandError:  # git is not installed, this is no checkout, or it belongs to somebody else
        return Git(commit=None, dirty=None, branch=None)
    return Git(commit=commit, dirty=bool(changes.strip()), branch=None if branch == "HEAD" else branch)
