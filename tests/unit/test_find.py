"""Runs that are counted twice, or not found.

Prevents: a link to a run, or a copy of one, that makes a repeat of it; a backup that is taken for the run itself; a folder that is not found
because its name reads as a pattern; one damaged record that hides the others.
"""

import shutil

import pytest
from records import record

from runner.core.errors import RequestError
from runner.results.find import records_under, runs_at
from runner.results.store import write_record


def leave(folder, *names):
    for name in names:
        (folder / name).mkdir(parents=True)
        write_record(folder / name, record(run_id=name))
    return folder


def found_at(*places):
    return [directory for directory, _ in runs_at(*map(str, places)).runs]


@pytest.mark.parametrize("copy", ["a-copy", "z-copy", "backup/b", "z/backup/b"])
def test_a_copy_is_left_out_for_the_directory_that_has_the_name_of_the_run(tmp_path, copy):
    leave(tmp_path, "b", "c")
    shutil.copytree(tmp_path / "b", tmp_path / copy)
    found = runs_at(str(tmp_path))
    assert [directory.name for directory, _ in found.runs] == ["b", "c"]
    assert found.runs[0][0] == tmp_path / "b"
    assert found.passed_over == (
        f"{tmp_path / copy}: left out, it holds the same run as {tmp_path / 'b'}, which counts once",
    )


def test_a_link_is_left_out_for_what_it_leads_to(tmp_path):
    leave(tmp_path / "later", "b")
    (tmp_path / "chosen").mkdir()
    (tmp_path / "chosen" / "b").symlink_to(tmp_path / "later" / "b")
    assert found_at(tmp_path) == [tmp_path / "later" / "b"]
    assert found_at(tmp_path / "chosen") == [tmp_path / "chosen" / "b"]


def test_places_that_overlap_hold_each_run_once(tmp_path):
    leave(tmp_path / "a", "b", "c")
    found = runs_at(str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b"))
    assert [directory.name for directory, _ in found.runs] == ["b", "c"]
    assert found.passed_over == ()


def test_a_readable_copy_stands_in_for_a_damaged_run(tmp_path):
    leave(tmp_path, "b")
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    (tmp_path / "b" / "record.json").write_bytes(b"\xff")
    found = runs_at(str(tmp_path))
    assert [directory.name for directory, _ in found.runs] == ["copy"]
    assert [sentence.partition(": ")[0] for sentence in found.passed_over] == [str(tmp_path / "b" / "record.json")]


def test_what_a_folder_holds_is_counted_once_too(tmp_path):
    """A baseline and its copy were two baselines of a study."""
    leave(tmp_path, "b")
    (tmp_path / "latest").symlink_to("b")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "record.json").write_bytes(b"\xff")
    assert [directory.name for directory, _ in records_under(tmp_path)] == ["b"]


def test_what_exists_is_itself_and_anything_else_a_pattern(tmp_path):
    """`compare` and `query` did not find a folder that is called `old [x]`."""
    leave(tmp_path / "old [x]", "b")
    leave(tmp_path / "old x", "c")
    assert found_at(tmp_path / "old [x]") == [tmp_path / "old [x]" / "b"]
    assert found_at(tmp_path / "old [xyz]") == [tmp_path / "old x" / "c"]
    assert found_at(tmp_path / "old*") == [tmp_path / "old [x]" / "b", tmp_path / "old x" / "c"]


@pytest.mark.parametrize("place", ["~no-such-user/x", "x" * 300, "none*"])
def test_what_is_not_there_is_one_sentence(place):
    with pytest.raises(RequestError, match="does not exist; name a run directory or a folder of them"):
        runs_at(place)
