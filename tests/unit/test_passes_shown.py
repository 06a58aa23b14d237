"""Tables of the wrong run: a measured one taken for a profile, an old pass for the newest, a profile that never began for an empty one."""

import json
from datetime import datetime, timezone

import passes
import pytest
from records import provenance, record

from runner.commands.profile import find_pass, show_profile
from runner.core.errors import RequestError
from runner.results.store import write_record


def leave(out, name, found, *, second=0):
    """A run directory with a record that was made in this second."""
    (out / name).mkdir(parents=True)
    when = datetime(2026, 1, 1, second=second, tzinfo=timezone.utc)
    changes = {"run_id": name, "provenance": provenance(recorded_at=when)}
    write_record(out / name, found.model_copy(update=changes))
    return out / name


def a_pass(kind, **changes):
    return passes.record_of(passes.trial(kind, ranks=1), **changes)


@pytest.fixture
def runs(tmp_path):
    """A measured run, and two passes after it."""
    leave(tmp_path, "a", record())
    leave(tmp_path, "b", a_pass("memory"), second=2)
    leave(tmp_path, "c", a_pass("region"), second=1)
    return tmp_path


def test_the_newest_pass_of_a_directory_by_its_time_and_not_by_its_name_or_the_very_one_that_was_named(runs):
    assert find_pass(runs)[1].profile.kind == "memory"
    assert find_pass(runs / "c")[1].profile.kind == "region"
    deep = leave(runs / "topic" / "more", "d", a_pass("kernels", events=[]), second=3)
    assert find_pass(runs)[0] == deep


def test_what_is_no_pass_says_why(runs, tmp_path):
    with pytest.raises(RequestError, match="is a measured run, which no profiler disturbed; name a pass under one"):
        find_pass(runs / "a")
    alone = leave(tmp_path / "alone", "measured", record()).parent
    with pytest.raises(RequestError, match="holds no pass under a profiler; name one, or make it with PROFILE=kernels"):
        find_pass(alone)
    never = leave(tmp_path, "p", a_pass("memory", events=[]))
    with pytest.raises(RequestError, match=r"its profiler never began \(0 of 1 ranks ended their pass"):
        show_profile(never, as_json=False)


def test_json_is_the_records_own(runs, capsys):
    show_profile(runs, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["kind"] == "memory"
    assert said["memory"][0]["peak_bytes"] == 2


def test_why_the_counters_are_not_those_of_ncu_is_said(tmp_path, capsys):
    sampler = {"source": "sampler", "reason": "there is no ncu on PATH"}
    one = passes.trial("metrics", device="gpu", ranks=1, counting=sampler)
    leave(tmp_path, "p", passes.record_of(one))
    show_profile(tmp_path, as_json=False)
    said = capsys.readouterr().out
    assert "averages over time and not of each kernel: there is no ncu on PATH" in said
    assert "profile of hardware counters" in said
