"""Named volumes: files that are copied to an engine, wherever it is, for its containers to read.

They travel over the connection to the engine, into a container that is created and never started.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from runner.engines.base import EngineError, as_engine_error
from runner.engines.owner import signed

if TYPE_CHECKING:
    from docker import DockerClient

_INSIDE: Final = "/volume"


@dataclass(frozen=True)
class File:
    """A file of a volume; its content may be a secret, so `repr` hides it."""

    content: bytes = field(repr=False)
    mode: int = 0o644
    uid: int = 0


def fill(client: DockerClient, *, name: str, image: str, files: Mapping[str, File], labels: Mapping[str, str]) -> None:
    """Create a volume with these files, by their paths in it; `image` is any image that the engine has.

    Raises EngineError if the engine fails, after removing the volume.
    """
    api, labels = client.api, signed(labels)
    host = api.create_host_config(binds={name: {"bind": _INSIDE, "mode": "rw"}}, network_mode="none")
    try:
        with as_engine_error():
            api.create_volume(name, labels=labels)
            helper = api.create_container(image, ["true"], name=f"{name}-fill", labels=labels, host_config=host)["Id"]
            try:
                api.put_archive(helper, _INSIDE, _tar(files))
            finally:
                api.remove_container(helper, force=True)
    except EngineError as error:
        remove(client, name)
        raise EngineError(f"the volume {name} could not be filled ({error})") from error


def remove(client: DockerClient, name: str) -> None:
    """Remove a volume; a missing volume or engine is no error."""
    with contextlib.suppress(EngineError), as_engine_error():
        client.api.remove_volume(name, force=True)


def _tar(files: Mapping[str, File]) -> bytes:
    content = io.BytesIO()
    folders = {str(folder) for path in files for folder in PurePosixPath(path).parents} - {"."}
    with tarfile.open(fileobj=content, mode="w") as tar:
        for folder in sorted(folders):  # if left out, engines create them with modes of their own choice
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for path, file in sorted(files.items()):
            info = tarfile.TarInfo(path)
            info.size, info.mode, info.uid, info.gid = len(file.content), file.mode, file.uid, file.uid
            tar.addfile(info, io.BytesIO(file.content))
    return content.getvalue()
