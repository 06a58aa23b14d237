"""What is seen while runs go on: a live line on a terminal, plain timestamped lines anywhere else (a log, CI, a pipe).

Both speak the same small interface, `Progress`; `progress(console)` picks one. Nothing here is on the clock of a
measurement: the training programs run in other processes, and the display is refreshed four times a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console
    from typing_extensions import Self  # in typing from Python 3.11

PLAIN_INTERVAL_S = 5.0
"""A plain log gets at most one window a trial in this time: thousands of windows must not bury what matters."""


class Progress(Protocol):
    """Told what happens, shows it. A context manager, so that the terminal is whole again after any error."""

    def __enter__(self) -> Self:
        """Start showing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing; what was said stays on the screen."""

    def stage(self, text: str) -> None:
        """Say what the suite does outside of trials: building an image, filling the wheelhouse."""

    def trial_started(self, title: str, iterations: int | None) -> None:
        """Begin a trial of so many measured iterations; None when nobody knows how many."""

    def expect(self, iterations: int) -> None:
        """Say how many iterations the trial will measure, once it knows."""

    def phase(self, name: str) -> None:
        """Name what the trial does now: create, import, first step, warm-up, measuring."""

    def window(self, done_iterations: int, rate: float, unit: str) -> None:
        """Report a measured window: iterations done in all, and the rate in it alone, in `unit`."""

    def trial_ended(self, summary_line: str) -> None:
        """End the trial and leave one line about it."""


def progress(console: Console) -> Progress:
    """The display that fits the console: live where someone watches, plain otherwise."""
    return LiveProgress(console) if console.is_terminal and not console.is_dumb_terminal else PlainProgress(console)


class _Remaining:
    """Estimates the time left in a trial from the pace of its windows.

    The first window's end gives the pace together with the start of the phase it was in; without a phase, the trial's own.
    """

    def __init__(self, iterations: int | None, clock: Callable[[], float]) -> None:
        self._iterations = iterations
        self._clock = clock
        self._start_s = clock()

    def restart(self) -> None:
        self._start_s = self._clock()

    def in_words(self, done_iterations: int) -> str:
        left = (self._iterations or 0) - done_iterations
        if left <= 0 or done_iterations <= 0:
            return ""
        seconds = (self._clock() - self._start_s) / done_iterations * left
        return f"about {_duration(seconds)} left"


def _duration(seconds: float) -> str:
    """Round as a person would: "8 s", "2 min 05 s", "1 h 10 min"."""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004  (seconds in a minute)
        return f"{whole} s"
    minutes, whole = divmod(whole, 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {whole:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _rate(value: float, unit: str) -> str:
    return f"{value:,.1f} {unit}" if value < 1000 else f"{value:,.0f} {unit}"  # noqa: PLR2004  (four digits are enough)


class Aside:
    """A run beside one that is shown: says how it ended, and nothing before."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._title = ""

    def __enter__(self) -> Self:
        """Nothing to start."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to put back."""

    def stage(self, text: str) -> None:
        """Say it."""
        self._shown.stage(text)

    def trial_started(self, title: str, iterations: int | None) -> None:
        """Keep the title."""
        del iterations
        self._title = title

    def expect(self, iterations: int) -> None:
        """The run that is shown has its own."""

    def phase(self, name: str) -> None:
        """The run that is shown has its own."""

    def window(self, done_iterations: int, rate: float, unit: str) -> None:
        """The run that is shown has its own."""

    def trial_ended(self, summary_line: str) -> None:
        """Leave one line."""
        self._shown.stage(f"{self._title}: {summary_line}")


class PlainProgress:
    """One line a happening, each with the time of day."""

    def __init__(
        self,
        console: Console,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Write to `console`; the clocks are arguments for tests."""
        self._console = console
        self._clock = clock
        self._now = now
        self._title = ""
        self._iterations: int | None = 0
        self._last_window_s = float("-inf")
        self._remaining = _Remaining(0, clock)

    def __enter__(self) -> Self:
        """Nothing to start."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to put back."""

    def _say(self, text: str) -> None:
        # No markup (a title may hold brackets) and no wrapping (a log has no width).
        self._console.print(f"{self._now():%H:%M:%S} {text}", markup=False, highlight=False, soft_wrap=True)

    def stage(self, text: str) -> None:
        """Print it."""
        self._say(text)

    def trial_started(self, title: str, iterations: int | None) -> None:
        """Print the title, which later lines repeat."""
        self._title, self._iterations = title, iterations
        self._last_window_s = float("-inf")
        self._remaining = _Remaining(iterations, self._clock)
        self._say(title)

    def expect(self, iterations: int) -> None:
        """Know it for the windows' lines."""
        self._iterations = iterations
        self._remaining = _Remaining(iterations, self._clock)

    def phase(self, name: str) -> None:
        """Print the phase."""
        self._remaining.restart()
        self._say(f"{self._title}: {name}")

    def window(self, done_iterations: int, rate: float, unit: str) -> None:
        """Print the window, unless another was printed less than `PLAIN_INTERVAL_S` ago."""
        if self._clock() - self._last_window_s < PLAIN_INTERVAL_S:
            return
        self._last_window_s = self._clock()
        parts = (
            f"measuring {done_iterations}/{self._iterations or '?'}",
            _rate(rate, unit),
            self._remaining.in_words(done_iterations),
        )
        self._say(f"{self._title}: {', '.join(part for part in parts if part)}")

    def trial_ended(self, summary_line: str) -> None:
        """Print the result."""
        self._say(f"{self._title}: {summary_line}")


class LiveProgress:
    """A moving line for the trial under way, above it what is done."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Draw on `console`; the clock is an argument for tests."""
        self._clock = clock
        self._rich = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[phase]}", style="cyan", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}", style="bold", markup=False),
            TextColumn("{task.fields[left]}", style="dim", markup=False),
            console=console,
            refresh_per_second=4,
            transient=True,
        )
        self._trial: TaskID | None = None
        self._title = ""
        self._remaining = _Remaining(0, clock)

    def __enter__(self) -> Self:
        """Take the terminal's last line."""
        self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        self._rich.stop()

    def stage(self, text: str) -> None:
        """Leave it above the moving line."""
        self._leave(text)

    def trial_started(self, title: str, iterations: int | None) -> None:
        """Begin a bar."""
        self._drop()
        self._title = title
        self._remaining = _Remaining(iterations, self._clock)
        self._trial = self._rich.add_task(title, total=iterations, phase="", speed="", left="")

    def expect(self, iterations: int) -> None:
        """Give the bar its length."""
        self._remaining = _Remaining(iterations, self._clock)
        if self._trial is not None:
            self._rich.update(self._trial, total=iterations)

    def phase(self, name: str) -> None:
        """Show the phase beside the bar."""
        self._remaining.restart()
        if self._trial is not None:
            self._rich.update(self._trial, phase=name)

    def window(self, done_iterations: int, rate: float, unit: str) -> None:
        """Advance the bar."""
        if self._trial is not None:
            self._rich.update(
                self._trial,
                completed=done_iterations,
                phase="measuring",
                speed=_rate(rate, unit),
                left=self._remaining.in_words(done_iterations),
            )

    def trial_ended(self, summary_line: str) -> None:
        """Replace the bar by the result."""
        self._drop()
        self._leave(f"{self._title}: {summary_line}")

    def _leave(self, text: str) -> None:
        self._rich.console.print(Text(text))

    def _drop(self) -> None:
        if self._trial is not None:
            self._rich.remove_task(self._trial)
            self._trial = None
