"""Copies images and programs to nodes, over the connections to their engines: no registry, no shared disk.

An image is read from its source once, however many nodes lack it. The image that arrives is compared with the one that was sent.
"""

from __future__ import annotations

import importlib.util
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runner.cluster.hosts.endpoint import Connection, engine_errors
from runner.core import dataset
from runner.core.errors import RequestError
from runner.engines.base import EngineError
from runner.engines.images import can_mount, find_image, load_image, read_image, remove_unnamed
from runner.engines.volumes import File

if TYPE_CHECKING:
    from runner.engines.docker import Client, EngineImage

Report = Callable[[str], None]

_MIB: Final = 2**20
_REPORT_MIB: Final = 256
_BLOCKS: Final = 4  # blocks of 2 MiB that a node may lag behind the others
_STALLED_S: Final = 120.0
"""A node that has accepted nothing for this long is given up, so that it does not delay the others."""
_UNPACK_S: Final = 3600
"""An engine answers only after it has unpacked all layers: minutes for an image of several GiB on a hard disk."""


def supply_image(
    reference: str, *, source: Client, machine: str, nodes: Sequence[Connection], report: Report
) -> dict[str, str]:
    """Copy an image from the engine `source` of `machine` to every node that lacks it, and return its id on each by the node's name.

    A node with another image under this name gets this one. Raises RequestError if `source` lacks the image or a node can't load it.
    """
    image = find_image(source, reference)
    if image is None:
        raise RequestError(f"{reference} is not in the engine of {machine}; build it first with `dlscale images build`")
    present: dict[str, EngineImage | None] = {}
    for node in nodes:
        with engine_errors(node):
            present[node.host.name] = find_image(node.client, reference)
    ids = {name: str(found.id) for name, found in present.items() if found}
    lacking = [node for node in nodes if not is_same(present[node.host.name], image)]
    if lacking:
        transfers = [_Transfer(node) for node in lacking]
        try:
            _send(source, reference, transfers, size_mib=int(image.attrs["Size"]) // _MIB, report=report)
        except EngineError as error:
            raise RequestError(
                f"{reference} can't be read from the engine of {machine} ({error}); check its disk and its log"
            ) from error
        for transfer in transfers:
            name = transfer.node.host.name
            ids[name] = _loaded_id(transfer, image, reference)
            if old := present[name]:
                remove_unnamed(transfer.node.client, str(old.id))
    return ids


def is_same(found: EngineImage | None, image: EngineImage) -> bool:
    """Whether the image that an engine has under a reference, None for none, is identical to another engine's.

    Engines with containerd's store identify an image by its manifest, others by its configuration: if the ids differ, the layers and the
    configuration decide.
    """
    return found is not None and (found.id == image.id or _contents(found) == _contents(image))


def programs(directory: Path) -> dict[str, File]:
    """A directory's files by their path in it, readable by everybody, and executable if their owner may run them."""
    return {
        path.relative_to(directory).as_posix(): File(
            content=path.read_bytes(), mode=0o755 if path.stat().st_mode & 0o100 else 0o644
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def python_modules(folder: str, *names: str) -> dict[str, File]:
    """Modules of this interpreter as files of a folder, for other machines' Pythons; a module that is not installed is left out.

    Of the compiled ones, psutil's is built for every Python from 3.6 on (PEP 384).
    """
    files: dict[str, File] = {}
    for name in names:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            continue
        path = Path(found.origin)
        if not found.submodule_search_locations:
            files[f"{folder}/{path.name}"] = File(content=path.read_bytes())
            continue
        files |= {f"{folder}/{name}/{inside}": file for inside, file in programs(path.parent).items()}
    return files


def check_data(node: Connection, data: Path, *, image: str, labels: dict[str, str]) -> None:
    """Check that a node has the data set at the same path as this machine; raises RequestError if not."""
    place = str(dataset.mount_source(data))
    with engine_errors(node):
        if not can_mount(node.client, place, image=image, labels=labels):
            raise RequestError(
                f"{node.host.name}: DATA={place} does not exist; every host needs the data at the same path"
            )


class _Transfer:
    """The transfer of an image to one node, in a thread of its own; `failure` is why the node did not load it."""

    def __init__(self, node: Connection) -> None:
        self.node = node
        self.failure: str | None = None
        self._blocks: queue.Queue[bytes | None] = queue.Queue(_BLOCKS)
        self._aborted = False
        self._thread = threading.Thread(target=self._load, daemon=True)
        self._thread.start()

    def put(self, block: bytes | None) -> None:
        """Queue the next block, None at the end; gives the node up if it stalls, and does nothing once it has failed."""
        waited_s = 0.0
        while self._thread.is_alive() and self.failure is None:
            try:
                self._blocks.put(block, timeout=1.0)
            except queue.Full:
                waited_s += 1.0
                if waited_s >= _STALLED_S:
                    self.failure = self.node.lost or f"it accepted nothing for {_STALLED_S:g} s"
            else:
                return

    def abort(self) -> None:
        """Abort the transfer, so that the node does not take its end for the image's."""
        self._aborted = True
        self.put(None)

    def join(self) -> None:
        """Wait until the engine has unpacked everything or failed."""
        if self.failure is None:
            self._thread.join()

    def _stream(self) -> Iterator[bytes]:
        while (block := self._blocks.get()) is not None:
            yield block
        if self._aborted:
            raise ConnectionAbortedError("the source stopped sending")

    def _load(self) -> None:
        try:
            with self.node.patience(_UNPACK_S):
                load_image(self.node.client, self._stream())
        except (EngineError, OSError) as error:
            self.failure = self.node.lost or str(error)


def _send(source: Client, reference: str, transfers: Sequence[_Transfer], *, size_mib: int, report: Report) -> None:
    """Read an image from an engine once, and send it to all nodes concurrently."""
    names = ", ".join(transfer.node.host.name for transfer in transfers)
    report(f"{names}: loading {reference}, {size_mib:,} MiB")
    sent, reported = 0, 0
    try:
        for block in read_image(source, reference):
            for transfer in transfers:
                transfer.put(block)
            sent += len(block)
            if sent // (_REPORT_MIB * _MIB) > reported:
                reported = sent // (_REPORT_MIB * _MIB)
                report(f"{names}: loading {reference}, {sent // _MIB:,} of {size_mib:,} MiB sent")
    except BaseException:  # Ctrl-C too
        for transfer in transfers:
            transfer.abort()
        raise
    for transfer in transfers:
        transfer.put(None)
    for transfer in transfers:
        transfer.join()


def _loaded_id(transfer: _Transfer, image: EngineImage, reference: str) -> str:
    """Id of the image on a node after its transfer; raises RequestError, which names the node."""
    name = transfer.node.host.name
    if transfer.failure is not None:
        step = "check that its engine is up, then try again"
        if "no space left" in transfer.failure:
            step = "free some disk space there: loading takes twice the image's size"
        raise RequestError(f"{name}: {reference} could not be loaded ({transfer.failure}); {step}")
    with engine_errors(transfer.node):
        arrived = find_image(transfer.node.client, reference)
    if arrived is None or not is_same(arrived, image):
        raise RequestError(f"{name}: {reference} arrived as a different image; see its engine's log, then try again")
    return str(arrived.id)


def _contents(image: EngineImage) -> tuple[object, ...]:
    """An image's content, independent of its id: its layers and its configuration."""
    attrs = image.attrs
    config = attrs.get("Config") or {}
    layers = tuple((attrs.get("RootFS") or {}).get("Layers") or ())
    return (layers, attrs.get("Created"), *(config.get(key) or None for key in ("Env", "Cmd", "User", "Labels")))
