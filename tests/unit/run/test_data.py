"""Prevents: a traceback, or minutes of packing before an error, if `dlscale data` cannot make or write what was requested."""

import ast
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import examples
import planned
import pytest
from commands import run_to_end

from runner.commands import data as commands_data
from runner.core import dataset
from runner.core.errors import RunFailedError
from runner.engines.local import LocalEngine
from runner.engines.process import CommandError
from runner.plan.discovery import WORKLOADS
from runner.run import data


@pytest.fixture
def here(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "set.rec").mkdir()
    (tmp_path / "set.lmdb").touch()
    (tmp_path / "set" / "cats").mkdir(parents=True)
    (tmp_path / "set" / "cats" / "0.jpg").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sample", "new", "--images=10"], "IMAGES=10 is too few"),
        (["sample", "new", "--images="], "IMAGES= is too few"),
        (["sample", "new", "--side=9-99999999"], "SIDE=99999999 is too large"),
        (["sample", "file"], "file exists and is not an empty directory"),
        (["sample", "set"], "set exists and is not an empty directory"),
        (["sample", "file/new"], "/file can't be written (File exists)"),
        (["pack", "set", "--out=file/x.rec"], "/file can't be written (File exists)"),
        (["pack", "set", "--out=file/a/x.rec"], "/file/a can't be written (Not a directory)"),
        (["pack", "set", "--out=set.rec"], "--out=set.rec exists and is not a .rec of the suite"),
        (["pack", "set", "--out=set.lmdb"], "--out=set.lmdb exists and is not a .lmdb of the suite"),
        (["tokens", "file", "--out=x.bin"], "not one byte to make a token of"),
        (["tokens", "absent", "--out=x.bin"], "absent is not a file"),
        (["tokens", "set/cats/0.jpg", "--out=set"], "--out=set is a folder"),
        (["pack", "absent", "--out=x.rec"], "DATA=absent does not exist"),
        (["pack", "set", "--out=x.rec", "--engine=venv", "--image-size=0"], "IMAGE_SIZE=0 is not a whole number"),
    ],
)
def test_an_impossible_request_is_refused_before_anything_is_written(here, words, says):
    before = sorted(here.rglob("*"))
    done = run_to_end(["data", *words], cwd=here, env={"DLSCALE_CACHE": str(here.parent / "cache")}, timeout=120)
    assert (done.code, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(here.rglob("*")) == before


def test_tokens_are_the_bytes_of_all_files_in_order(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\x00\xff")
    (tmp_path / "b.txt").write_bytes("é".encode())
    done = run_to_end(["data", "tokens", "b.txt", "a.txt", "--out=x.bin"], cwd=tmp_path, env={}, timeout=120)
    assert (done.code, done.stdout) == (0, "x.bin: 5 tokens of 2 files\n")
    assert (tmp_path / "x.bin").read_bytes() == bytes([0xC3, 0, 0xA9, 0, ord("a"), 0, 0, 0, 0xFF, 0])


def test_a_failed_program_is_reported_by_its_last_line(tmp_path, monkeypatch):
    def full(argv, **_):
        raise CommandError(argv, 1, "Traceback\n  ...\nOSError: [Errno 28] No space left on device\n")

    monkeypatch.setattr(data, "ensure_environment", lambda **_: tmp_path / "python")
    monkeypatch.setattr(data, "follow", full)
    with pytest.raises(RunFailedError, match=r"^no sample was made in .*: OSError: .* No space left on device$"):
        data.make_sample(tmp_path / "new", images=11, seed=1, report=print)


def test_a_programs_result_is_no_progress(tmp_path, monkeypatch):
    """The screen ended with JSON that named every class."""
    monkeypatch.setattr(data, "ensure_environment", lambda **_: tmp_path / "python")
    monkeypatch.setattr(
        data, "follow", lambda _, *, on_line: [on_line(line) for line in ("cats: 1 images", '{"path": "new"}')]
    )
    said = []
    data.make_sample(tmp_path / "new", images=11, seed=1, report=said.append)
    data.import_imagenet32(tmp_path, tmp_path / "new", report=said.append)
    assert said == ["cats: 1 images"] * 2


def test_a_second_run_waits_for_the_first_to_pack_the_same_data(tmp_path, monkeypatch):
    """The second failed once the first had put its files where both were to go."""
    second_waits = threading.Event()
    packed = []

    def run_tool(engine, spec, say):
        assert second_waits.wait(30)
        packed.append(spec.name)
        (tmp_path / "made").rename(Path(spec.mounts[-1].source) / "images.rec")

    monkeypatch.setattr(data, "run_tool", run_tool)
    monkeypatch.setattr(data, "cache_dir", lambda: tmp_path)
    (tmp_path / "made").write_text("records")
    what = {"image": "", "image_size": 32, "cpus": (), "say": lambda text: second_waits.set()}
    with ThreadPoolExecutor(2) as both:
        packs = [
            both.submit(data.pack, planned.dataset(), "mxnet", LocalEngine(None, WORKLOADS), **what) for _ in range(2)
        ]
        (path,) = {one.result() for one in packs}
    assert len(packed) == 1
    assert path.read_text() == "records"


def test_the_command_line_knows_the_number_of_photographs_and_the_packed_formats():
    assert set(commands_data.FOLDERS) < set(dataset.PACKED)
    source = (examples.ROOT / "workloads" / "imagenet_cnn" / "make_sample.py").read_text(encoding="utf-8")
    values = {
        node.targets[0].id: node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert len(values["PHOTOGRAPHS"].elts) == commands_data.FEWEST
