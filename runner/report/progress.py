"""Progress of runs: a live line on a terminal, plain timestamped lines anywhere else (a log, CI, a pipe).

`progress(console)` picks one. Nothing here adds to a measured time: the training programs run in other processes, and the display is
refreshed four times a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11

PLAIN_INTERVAL_S = 5.0
"""A plain log prints at most one window per trial in this time: thousands of windows must not bury what matters."""
Clock = Callable[[], float]


class Progress:
    """Receives events and displays them. A context manager, so that the terminal is restored after any error; this base class prints nothing."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        """Use `clock`, in seconds, for the estimates."""
        self._title = ""
        self._iterations: int | None = None
        self._eta = _Eta(clock)

    def __enter__(self) -> Self:
        """Start the display."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the display; messages stay on the screen."""

    def stage(self, text: str) -> None:
        """Report what the suite does outside of trials: building an image, filling the wheelhouse."""

    def begin(self, number: int, total: int, what: str = "run") -> str:
        """Begin run `number` of `total`, or a unit of several runs: a cell of a study, a round. Returns the position in words."""
        return self._eta.begin(what, number, total) or f"{what} {number} of {total}"

    def trial_started(self, title: str, iterations: int | None) -> None:
        """Begin a trial of so many measured iterations; None if the number is unknown."""
        self._title, self._iterations = title, iterations
        self._eta.trial_started()

    def expect(self, iterations: int) -> None:
        """Set the number of iterations that the trial will measure, once it is known."""
        self._iterations = iterations
        self._eta.phase_started()

    def phase(self, name: str) -> None:  # noqa: ARG002 - shown by subclasses
        """Name the trial's current phase: create, import, first step, warm-up, measuring."""
        self._eta.phase_started()

    def window(self, done_iterations: int, rate: float, unit: str) -> None:
        """Report a measured window: the total of iterations done, and the rate within this window, in `unit`."""

    def trial_ended(self, summary_line: str) -> None:
        """End the trial and leave one line about it."""
        self.stage(f"{self._title}: {summary_line}")


def progress(console: Console) -> Progress:
    """The display for a console: live on a terminal, plain otherwise."""
    return LiveProgress(console) if console.is_terminal and not console.is_dumb_terminal else PlainProgress(console)


@dataclass
class _Level:
    """A sequence, the runs of a matrix or the cells of a study: the current item, its start, and the durations of the earlier ones."""

    number: int
    total: int
    started_s: float
    durations_s: list[float] = field(default_factory=list)


class _Eta:
    """Estimates the total time left, assuming that each item to come takes as long as the mean of those done, else as the current one.

    The duration of the current run follows from the rate of its iterations since the current phase began.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._levels: dict[str, _Level] = {}  # outermost first
        self._trial_started_s: float | None = None
        self._phase_started_s = clock()

    def begin(self, what: str, number: int, total: int) -> str:
        """Begin an item of a level; drops the inner levels of the item before it."""
        if total == 1 and what not in self._levels and self._levels:
            return ""
        now = self._clock()
        level = self._levels.setdefault(what, _Level(number, total, now))
        if level.number < number and self._trial_started_s is not None:  # else nothing ran: all of it was on file
            level.durations_s.append(now - level.started_s)
        level.number, level.total, level.started_s = number, total, now
        for inner in list(self._levels)[list(self._levels).index(what) + 1 :]:
            del self._levels[inner]
        self._trial_started_s = None
        return self.words()

    def trial_started(self) -> None:
        self._trial_started_s = self._phase_started_s = self._clock()

    def phase_started(self) -> None:
        self._phase_started_s = self._clock()

    def words(self, done: int = 0, iterations: int | None = None) -> str:
        """`run 3 of 6, about 2 minutes left`; unknown parts are left out."""
        places = [f"{what} {one.number} of {one.total}" for what, one in self._levels.items() if one.total > 1]
        left = self._left_s(done, iterations)
        return ", ".join((*places, *([f"about {_duration(left)} left"] if left else [])))

    def _left_s(self, done: int, iterations: int | None) -> float | None:
        """Seconds left, given the iterations done in the current run; None if there is nothing to estimate from."""
        now = self._clock()
        began = now if self._trial_started_s is None else self._trial_started_s
        run_left_s = None  # time left in the current run
        total_s = None  # its total time
        if iterations and done:
            run_left_s = (now - self._phase_started_s) / done * max(0, iterations - done)
            total_s = now - began + run_left_s
        left_s = run_left_s
        for level in reversed(self._levels.values()):
            each_s = sum(level.durations_s) / len(level.durations_s) if level.durations_s else total_s
            if each_s is None:
                continue
            if left_s is None:
                left_s = max(0.0, each_s - (now - level.started_s))
            left_s += each_s * (level.total - level.number)
            total_s = each_s * level.total
        return left_s


def _duration(seconds: float) -> str:
    """Round as a person would: "8 seconds", "2 minutes", "1 h 10 min"."""
    minutes = round(seconds / 60)
    if minutes >= 60:  # noqa: PLR2004
        return f"{minutes // 60} h {minutes % 60:02d} min"
    number, unit = (minutes, "minute") if seconds >= 60 else (max(1, round(seconds)), "second")  # noqa: PLR2004
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _rate(value: float, unit: str) -> str:
    return f"{value:,.1f} {unit}" if value < 1000 else f"{value:,.0f} {unit}"  # noqa: PLR2004  (four digits are enough)


class ConcurrentProgress(Progress):
    """A run concurrent to the one displayed: only reports how it ended."""

    def __init__(self, shown: Progress) -> None:
        """Report on `shown`."""
        super().__init__()
        self._shown = shown

    def stage(self, text: str) -> None:
        """Pass it on."""
        self._shown.stage(text)


class PlainProgress(Progress):
    """One line per event, each with the time of day."""

    def __init__(
        self, console: Console, *, clock: Clock = time.monotonic, now: Callable[[], datetime] = datetime.now
    ) -> None:
        """Write to `console`; the clocks are arguments for tests."""
        super().__init__(clock)
        self._console = console
        self._clock = clock
        self._now = now
        self._last_window_s = float("-inf")

    def stage(self, text: str) -> None:
        """Print without markup, because a title may contain brackets, and without wrapping, because a log has no width."""
        self._console.print(f"{self._now():%H:%M:%S} {text}", markup=False, highlight=False, soft_wrap=True)

    def trial_started(self, title: str, iterations: int | None) -> None:
        """Print the title, which later lines repeat."""
        super().trial_started(title, iterations)
        self._last_window_s = float("-inf")
        place = self._eta.words()
        self.stage(f"{title} ({place})" if place else title)

    def phase(self, name: str) -> None:
        """Print the phase."""
        super().phase(name)
        self.stage(f"{self._title}: {name}")

    def window(self, done_iterations: int, rate: float, unit: str) -> None:
        """Print the window, unless another was printed less than `PLAIN_INTERVAL_S` ago."""
        if self._clock() - self._last_window_s < PLAIN_INTERVAL_S:
            return
        self._last_window_s = self._clock()
        done = f"measuring {done_iterations}{_of_total(self._iterations)}, {_rate(rate, unit)}"
        left = self._eta.words(done_iterations, self._iterations)
        self.stage(f"{self._title}: {done}{left and f', {left}'}")


def _of_total(iterations: int | None) -> str:
    """The total to print after the iterations done, if it is known."""
    return f"/{iterations}" if iterations else ""


class LiveProgress(Progress):
    """A moving line for the current trial, and above it the messages so far."""

    def __init__(self, console: Console, *, clock: Clock = time.monotonic) -> None:
        """Draw on `console`; the clock is an argument for tests."""
        super().__init__(clock)
        self._rich = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[phase]}", style="cyan", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}{task.fields[of]}", style="progress.download", markup=False),
            TextColumn("{task.fields[speed]}", style="bold", markup=False),
            TextColumn("{task.fields[left]}", style="dim", markup=False),
            console=console,
            refresh_per_second=4,
            transient=True,
        )
        self._trial: TaskID | None = None

    def __enter__(self) -> Self:
        """Take the terminal's last line."""
        self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Release it."""
        self._rich.stop()

    def stage(self, text: str) -> None:
        """Print it above the moving line."""
        self._rich.console.print(Text(text))

    def trial_started(self, title: str, iterations: int | None) -> None:
        """Begin a bar."""
        super().trial_started(title, iterations)
        self._drop()
        self._trial = self._rich.add_task(
            title, total=iterations, of=_of_total(iterations), phase="", speed="", left=self._eta.words()
        )

    def expect(self, iterations: int) -> None:
        """Set the bar's length."""
        super().expect(iterations)
        self._show(total=iterations, of=_of_total(iterations))

    def phase(self, name: str) -> None:
        """Show the phase next to the bar."""
        super().phase(name)
        self._show(phase=name)

    def window(self, done_iterations: int, rate: float, unit: str) -> None:
        """Advance the bar."""
        left = self._eta.words(done_iterations, self._iterations)
        self._show(completed=done_iterations, phase="measuring", speed=_rate(rate, unit), left=left)

    def trial_ended(self, summary_line: str) -> None:
        """Replace the bar by the result."""
        self._drop()
        super().trial_ended(summary_line)

    def _show(self, **columns: Any) -> None:
        if self._trial is not None:
            self._rich.update(self._trial, **columns)

    def _drop(self) -> None:
        if self._trial is not None:
            self._rich.remove_task(self._trial)
            self._trial = None
