"""Prevents: control characters in a log; thousands of windows burying what matters; brackets in a title read as markup; a bar left on the
terminal after an error; an estimate that includes the time of start-up.
"""

from __future__ import annotations

import io
import re
from datetime import datetime

import pytest
from rich.console import Console

from runner.report.progress import LiveProgress, PlainProgress, progress


class Clock:
    """A clock that moves only when told to."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def plain(clock) -> tuple[PlainProgress, io.StringIO]:
    file = io.StringIO()
    return PlainProgress(Console(file=file, width=20), clock=clock, now=lambda: datetime(2026, 11, 21, 4, 5, 6)), file  # noqa: DTZ001


def test_plain_lines_have_the_time_the_title_and_every_event(clock):
    shown, file = plain(clock)
    with shown:
        shown.stage("building dlscale/mxnet:1.9.1")
        shown.trial_started("resnet18 [1/2]", 40)
        shown.phase("warm-up")
        shown.phase("measuring")
        clock.now_s += 2
        shown.window(10, 35.21, "images/s")
        shown.trial_ended("35.2 images/s, valid")
    assert file.getvalue().splitlines() == [
        "04:05:06 building dlscale/mxnet:1.9.1",
        "04:05:06 resnet18 [1/2]",
        "04:05:06 resnet18 [1/2]: warm-up",
        "04:05:06 resnet18 [1/2]: measuring",
        "04:05:06 resnet18 [1/2]: measuring 10/40, 35.2 images/s, about 6 seconds left",  # 10 took 2 s, 30 to go
        "04:05:06 resnet18 [1/2]: 35.2 images/s, valid",
    ]


def test_plain_windows_are_limited_to_one_per_five_seconds_and_trial(clock):
    shown, file = plain(clock)
    for title in ("first", "second"):
        shown.trial_started(title, 1000)
        for done in range(1, 13):
            shown.window(done, 1.0, "images/s")
            clock.now_s += 1
    done = [int(match) for match in re.findall(r"measuring (\d+)/", file.getvalue())]
    assert done == [1, 6, 11] * 2


@pytest.mark.parametrize(
    ("elapsed_s", "left"),
    [
        (1, "about 3 seconds left"),
        (20, "about 1 minute left"),
        (100, "about 5 minutes left"),
        (1500, "about 1 h 15 min left"),
    ],
)
def test_time_left_is_in_words(clock, elapsed_s, left):
    shown, file = plain(clock)
    shown.trial_started("t", 40)
    clock.now_s += 500  # import and warm-up say nothing about the rate
    shown.phase("measuring")
    clock.now_s += elapsed_s
    shown.window(10, 1.0, "images/s")
    assert file.getvalue().splitlines()[-1].endswith(left)


def test_no_time_is_left_after_the_last_window(clock):
    shown, file = plain(clock)
    shown.trial_started("t", 40)
    shown.window(40, 12345.6, "images/s")
    assert file.getvalue().splitlines()[-1] == "04:05:06 t: measuring 40/40, 12,346 images/s"


def test_a_program_of_unknown_length_has_no_time_left(clock):
    shown, file = plain(clock)
    shown.trial_started("t", None)
    clock.now_s += 10
    shown.window(40, 1.0, "samples/s")
    assert file.getvalue().splitlines()[-1] == "04:05:06 t: measuring 40, 1.0 samples/s"
    screen = io.StringIO()
    with LiveProgress(Console(file=screen, force_terminal=True, width=120), clock=clock) as live:
        live.trial_started("t", None)
        live.window(40, 1.0, "samples/s")
    shown = re.sub(r"\x1b\[\?\d+[hl]", "", screen.getvalue())
    assert " 40 " in re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert "?" not in shown


def test_the_time_left_covers_all_runs(clock):
    """Run 1 of 3 starts up for 10 s, then measures 40 iterations of 1 s: 50 s each. The second takes 70 s, so that the mean is 60 s."""
    shown, file = plain(clock)

    def run(number, start_s):
        shown.begin(number, 3)
        shown.trial_started("t", 40)
        clock.now_s += start_s
        shown.phase("measuring")
        clock.now_s += 10
        shown.window(10, 1.0, "images/s")

    run(1, 10)
    assert file.getvalue().splitlines()[-1].endswith("run 1 of 3, about 2 minutes left")  # 30 + 2 * 50
    clock.now_s += 30
    run(2, 30)
    assert file.getvalue().splitlines()[-1].endswith("run 2 of 3, about 1 minute left")  # 30 + 50
    clock.now_s += 30
    assert shown.begin(3, 3) == "run 3 of 3, about 1 minute left"
    clock.now_s += 25
    shown.trial_started("t", 40)
    assert file.getvalue().splitlines()[-1] == "04:05:06 t (run 3 of 3, about 35 seconds left)"


def test_the_time_left_of_a_study_covers_its_cells(clock):
    """The first of 4 cells has two runs of 60 s; a cell on file takes no time and is no evidence; a cell's only run counts as the cell."""
    shown, _ = plain(clock)
    assert shown.begin(1, 4, "cell") == "cell 1 of 4"
    for number in (1, 2):
        shown.begin(number, 2)
        shown.trial_started("t", None)
        clock.now_s += 60
    assert shown.begin(2, 4, "cell") == "cell 2 of 4, about 6 minutes left"
    assert shown.begin(3, 4, "cell") == "cell 3 of 4, about 4 minutes left"
    shown.begin(1, 1)
    assert shown.begin(1, 2) == "cell 3 of 4, run 1 of 2, about 4 minutes left"


@pytest.mark.parametrize(
    ("terminal", "kind", "shown"),
    [(False, "xterm", PlainProgress), (True, "xterm", LiveProgress), (True, "dumb", PlainProgress)],
)
def test_only_a_terminal_that_can_move_its_cursor_gets_a_live_line(monkeypatch, terminal, kind, shown):
    monkeypatch.setenv("TERM", kind)
    assert isinstance(progress(Console(file=io.StringIO(), force_terminal=terminal)), shown)


def live(clock) -> tuple[LiveProgress, io.StringIO]:
    file = io.StringIO()
    return LiveProgress(Console(file=file, width=120, force_terminal=True, color_system=None), clock=clock), file


def visible(file: io.StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())


def test_the_live_line_shows_phase_count_rate_and_time_left(clock):
    shown, file = live(clock)
    with shown:
        shown.trial_started("resnet18 [1/2]", 40)
        shown.phase("first step")
        shown._rich.refresh()
        assert "resnet18 [1/2]" in visible(file)
        assert "first step" in visible(file)
        shown.phase("measuring")
        clock.now_s += 2
        shown.window(10, 35.21, "images/s")
        shown._rich.refresh()
        for part in ("measuring", "10/40", "35.2 images/s", "about 6 seconds left"):
            assert part in visible(file)


def test_messages_stay_and_the_bar_is_removed(clock):
    shown, file = live(clock)
    with shown:
        shown.stage("building [mxnet]")
        shown.trial_started("never ended", 40)
        shown.trial_started("t", 40)
        assert [task.description for task in shown._rich.tasks] == ["t"]
        shown.trial_ended("35.2 images/s, valid")
        assert shown._rich.tasks == []
    assert "building [mxnet]\n" in visible(file)
    assert "t: 35.2 images/s, valid\n" in visible(file)


def test_the_terminal_is_restored_after_an_error(clock):
    shown, file = live(clock)

    def fail():
        with shown:
            shown.trial_started("t", 40)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not shown._rich.live.is_started
    assert file.getvalue().rindex("\x1b[?25h") > file.getvalue().rindex("\x1b[?25l")  # the cursor is shown again
