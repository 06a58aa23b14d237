"""Prevents: concurrent trainings that run one after the other or on each other's cores, and trainings that survive Ctrl-C because
it reaches another thread."""

import signal

from commands import only, running
from waiting import wait_until

from runner.analysis.comparisons.settings import case_figures
from runner.results.store import read_events, read_record

WORDS = (
    *("--framework=mxnet", "--model=lenet", "--image-size=32", "--batch=8", "--workers=2"),
    *("--concurrent=2", "--idle=0"),
)


def span(record):
    windows = record.measurement.windows
    return min(w.start for w in windows), max(w.start + w.seconds for w in windows)


def test_concurrent_trainings_overlap_on_separate_cores(dlscale, tmp_path):
    done = dlscale("bench", *WORDS, "--iterations=400", out=tmp_path)
    assert done.code == 0, done.stderr
    by_case = {record.trial.concurrent.label: record for record in done.records}
    assert sorted(by_case) == ["one", "sequential-1of2", "sequential-2of2", "together-1of2", "together-2of2"]
    first, second = by_case["together-1of2"], by_case["together-2of2"]
    (begin, end), (other_begin, other_end) = span(first), span(second)
    assert max(begin, other_begin) < min(end, other_end)
    cores = [
        {event.cpus for event in read_events(tmp_path / r.run_id) if event.event == "env"} for r in (first, second)
    ]
    assert [len(own) for own in cores] == [1, 1]
    assert set(*cores[0]).isdisjoint(*cores[1])
    assert span(by_case["sequential-1of2"])[1] <= span(by_case["sequential-2of2"])[0]
    # With half the devices, a training runs twice the iterations: its samples are the same as alone.
    assert {record.measurement.samples for record in done.records} == {3200}
    runs = [(tmp_path / record.run_id, record) for record in done.records]
    assert [(case.case, len(case.total_s)) for case in case_figures(runs)] == [
        ("one", 1),
        ("sequential", 1),
        ("together", 1),
    ]
    assert "at once" in done.stdout
    assert list(tmp_path.glob("*-concurrent.md"))


def test_ctrl_c_ends_all_concurrent_trainings(start, client, tmp_path):
    """The runs are in threads, but Python delivers Ctrl-C to the main thread."""
    words = ("--iterations=100000", "--device=cpu", "--repeat=1", f"--out={tmp_path}")
    process = start("bench", *WORDS, *words, program=only("together"))

    def both_train():
        logs = list(tmp_path.glob("*-together-*/events.jsonl"))
        return len(logs) == 2 and all('"event":"window"' in log.read_text() for log in logs)

    assert wait_until(both_train, 400)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 3, stderr
    assert running(client, tmp_path) == []
    together = [read_record(path) for path in tmp_path.glob("*-together-*") if path.is_dir()]
    assert [record.outcome.status for record in together] == ["interrupted", "interrupted"]
