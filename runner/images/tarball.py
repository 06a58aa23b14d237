"""Writes one root file system as an image archive that any engine loads, with nothing in it that depends on when or where.

The format is Docker's image specification v1.2: a config, whose digest is the image's id, a layer, and a manifest that names both.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from runner.images.wheelhouse import sha256


def write_image(
    *, root: Path, target: Path, reference: str, labels: Mapping[str, str], command: Sequence[str], created_s: int
) -> str:
    """Wrap a root file system into an image archive.

    Args:
        root: a tar file of the whole file system; becomes the one layer as it is.
        target: the archive to write.
        reference: name and tag that loading gives the image.
        labels: the image's labels.
        command: what runs when nothing else is asked for.
        created_s: date of the image, in seconds since 1970.

    Returns:
        The image's id, `sha256:...`: the same for the same arguments.
    """
    layer = sha256(root)
    created = datetime.fromtimestamp(created_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = _json(
        {
            "architecture": "amd64",
            "config": {
                "Cmd": list(command),
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Labels": dict(labels),
            },
            "created": created,
            "history": [{"created": created, "created_by": "dlscale images base"}],
            "os": "linux",
            "rootfs": {"diff_ids": [f"sha256:{layer}"], "type": "layers"},
        }
    )
    identifier = hashlib.sha256(config).hexdigest()
    manifest = _json([{"Config": f"{identifier}.json", "Layers": [f"{layer}/layer.tar"], "RepoTags": [reference]}])
    with tarfile.open(target, "w") as archive:
        for name, content in ((f"{identifier}.json", config), ("manifest.json", manifest)):
            archive.addfile(_entry(name, len(content), created_s), io.BytesIO(content))
        with root.open("rb") as file:
            archive.addfile(_entry(f"{layer}/layer.tar", root.stat().st_size, created_s), file)
    return f"sha256:{identifier}"


def _entry(name: str, size: int, created_s: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, created_s, 0o644
    return entry


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
