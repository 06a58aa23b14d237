"""Images and programs on their way to nodes, with engines made of dictionaries.

Prevents: an image that is read again for every node; a node with an old image under the right name; an image that changes on the way; a
node that fails without its name, or delays the others; an aborted transfer taken for complete; programs that differ from node to
node.
"""

import io
import tarfile
from contextlib import ExitStack
from threading import Event
from types import SimpleNamespace

import pytest
import requests
from docker.errors import APIError, ImageNotFound

from runner.cluster.hosts import supply
from runner.cluster.hosts.endpoint import Connection
from runner.cluster.hosts.model import Endpoint, Host
from runner.cluster.hosts.supply import is_same, supply_image
from runner.core.errors import RequestError
from runner.engines import volumes

REFERENCE = "dlscale/mxnet:1.9.1"
BLOCKS = (b"layer one", b"layer two", b"layer three")


def image(identifier="sha256:new", *, layers=("sha256:a",), tags=(REFERENCE,), created="2026-11-21", **config):
    attrs = {"RootFS": {"Layers": list(layers)}, "Created": created, "Config": config, "Size": 300 * 2**20}
    return SimpleNamespace(id=identifier, attrs=attrs, tags=list(tags))


class Engine:
    """An engine with images by reference; a loaded image appears under REFERENCE as `becomes`."""

    def __init__(self, held=None, *, becomes=None, fails=None, reads=True):
        self.old, self.held = held, {REFERENCE: held} if held else {}
        self.becomes, self.fails, self.reads = becomes, fails, reads
        self.saved, self.received, self.removed, self.timeouts = 0, [], [], []
        self.images = SimpleNamespace(get=self._get, remove=self.removed.append)
        self.api = SimpleNamespace(timeout=60, get_image=self._save, load_image=self._load)

    def _get(self, reference):
        known = {**({self.old.id: self.old} if self.old else {}), **self.held}
        if reference not in known:
            raise ImageNotFound(reference)
        return known[reference]

    def _save(self, reference):
        assert reference == REFERENCE
        self.saved += 1
        yield from BLOCKS
        if self.fails:
            raise APIError(self.fails)

    def _load(self, stream, quiet):
        assert quiet
        self.timeouts.append(self.api.timeout)
        if not self.reads:
            raise APIError("write /var/lib/docker/tmp: no space left on device")
        self.received = list(stream)
        if self.fails:
            yield {"error": self.fails}
            return
        if REFERENCE in self.held:
            self.held[REFERENCE].tags.remove(REFERENCE)
        self.held[REFERENCE] = self.becomes
        yield {"stream": "Loaded image"}


def node(name, engine, *, lost=None):
    the_node = Connection(Host(name=name, endpoint=Endpoint(url="unix:///none")), engine, tunnel=None, undo=ExitStack())
    if lost:
        the_node._tunnel = SimpleNamespace(ended=True, stderr=lost)
    return the_node


def test_an_image_is_read_once_and_loaded_where_it_is_missing():
    new = image()
    source, empty, full, bare = Engine(new), Engine(becomes=new), Engine(new), Engine(becomes=new)
    said = []
    nodes = [node("n1", empty), node("n2", full), node("n3", bare)]
    ids = supply_image(REFERENCE, source=source, machine="here", nodes=nodes, report=said.append)
    assert ids == {node.host.name: "sha256:new" for node in nodes}
    assert source.saved == 1
    assert tuple(empty.received) == tuple(bare.received) == BLOCKS
    assert full.received == []
    assert said[0] == f"n1, n3: loading {REFERENCE}, 300 MiB"
    supply_image(REFERENCE, source=source, machine="here", nodes=nodes, report=print)
    assert source.saved == 1  # every node has it


@pytest.mark.parametrize("other_name", [[], ["dlscale/mxnet:yesterday"]])
def test_an_old_image_is_replaced_and_not_left_untagged(other_name):
    old = image("sha256:old", layers=("sha256:z",), tags=(REFERENCE, *other_name))
    engine = Engine(old, becomes=image())
    supply_image(REFERENCE, source=Engine(image()), machine="here", nodes=[node("n1", engine)], report=print)
    assert engine.removed == ([] if other_name else ["sha256:old"])
    assert (engine.timeouts, engine.api.timeout) == ([3600], 60)  # the previous timeout is restored


def test_the_same_image_is_recognized_under_another_id():
    """With containerd's store an image's id is its manifest's; loading the same image would never make the ids equal."""
    here = image(Env=["PATH=/bin"], Labels={"a": "b"})
    engine = Engine(image("sha256:manifest", Env=["PATH=/bin"], Labels={"a": "b"}))
    assert is_same(engine.images.get(REFERENCE), here)


@pytest.mark.parametrize(
    "other",
    [
        image("sha256:x", layers=("sha256:b",), Env=["A=1"]),
        image("sha256:x", Env=["A=2"]),
        image("sha256:x", created="2026-11-22", Env=["A=1"]),
        image("sha256:x", Env=["A=1"], User="root"),
    ],
)
def test_different_layers_or_configuration_make_a_different_image(other):
    assert not is_same(Engine(other).images.get(REFERENCE), image(Env=["A=1"]))


def refusal(source, *nodes):
    with pytest.raises(RequestError) as caught:
        supply_image(REFERENCE, source=source, machine="n0", nodes=list(nodes), report=print)
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "engine", "said"),
    [
        (
            Engine(),
            Engine(),
            f"{REFERENCE} is not in the engine of n0; build it first with `dlscale images build`",
        ),
        (
            Engine(image()),
            Engine(fails="unexpected EOF"),
            f"n1: {REFERENCE} could not be loaded (unexpected EOF); check",
        ),
        (
            Engine(image()),
            Engine(becomes=image("sha256:x", layers=("sha256:b",))),
            f"n1: {REFERENCE} arrived as a different image",
        ),
    ],
    ids=["not here", "fails", "another"],
)
def test_a_failed_transfer_is_one_sentence(source, engine, said):
    assert refusal(source, node("n1", engine)).startswith(said)


def test_an_engine_that_does_not_answer_is_named():
    """Its exception was shown as a traceback."""

    def get(_):
        raise requests.ConnectionError("Connection refused")

    silent = Engine()
    silent.images.get = get
    said = refusal(Engine(image()), node("n1", Engine(image())), node("n2", silent))
    assert said.startswith("n2: nothing listens there")


def test_a_full_disk_is_named_and_the_other_node_gets_its_image():
    whole = Engine(becomes=image())
    said = refusal(Engine(image()), node("n1", Engine(reads=False)), node("n2", whole))
    assert said.startswith("n1: ")
    assert "no space left on device" in said
    assert "free some disk space there" in said
    assert tuple(whole.received) == BLOCKS


def test_an_aborted_source_is_not_the_end_of_the_image():
    """A stream that just stops would be loaded as far as it got."""
    engine = Engine(becomes=image())
    said = refusal(Engine(image(), fails="input/output error"), node("n1", engine))
    assert "can't be read from the engine of n0" in said
    assert REFERENCE not in engine.held


def test_a_stalled_node_is_given_up(monkeypatch):
    monkeypatch.setattr(supply, "_STALLED_S", 1.0)
    monkeypatch.setattr(supply, "_BLOCKS", 1)
    stuck, over = Engine(becomes=image()), Event()

    def load_image(stream, quiet):
        next(iter(stream))
        over.wait()
        return []

    stuck.api = SimpleNamespace(timeout=60, load_image=load_image)
    whole = Engine(becomes=image())
    said = refusal(Engine(image()), node("n1", stuck, lost="Timeout, server n1 not responding."), node("n2", whole))
    over.set()
    assert said.startswith(f"n1: {REFERENCE} could not be loaded (Timeout, server n1 not responding.)")
    assert tuple(whole.received) == BLOCKS


def test_the_same_files_are_packed_identically(tmp_path):
    for name, folder in (("one", tmp_path / "one"), ("two", tmp_path / "two")):
        (folder / "sub" / "__pycache__").mkdir(parents=True)
        (folder / "sub" / "__pycache__" / "x.pyc").write_bytes(name.encode())
        (folder / "sub" / "train.py").write_text("print()\n")
        (folder / "run.sh").write_text("#!/bin/sh\n")
        (folder / "run.sh").chmod(0o700)
    packed = volumes._tar(supply.programs(tmp_path / "one"))
    assert packed == volumes._tar(supply.programs(tmp_path / "two"))
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        members = {member.name: (member.isdir(), member.mode, member.uid) for member in tar.getmembers()}
    assert members == {"run.sh": (False, 0o755, 0), "sub": (True, 0o755, 0), "sub/train.py": (False, 0o644, 0)}
