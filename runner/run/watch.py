"""Turns the events of a running trial into progress, and keeps them for its grading."""

from __future__ import annotations

from typing import Final

from runner.core.events import Env, Event, FirstStep, Pace, Phase, ProfileStart, RunStart, RunStop, WarmupEnd, Window
from runner.core.record import RunRecord
from runner.core.trial import AnyTrial, Trial, title
from runner.report import ahead
from runner.report.progress import Progress

COMPILES: Final = "first step (compiles for minutes, unless an earlier run left that work)"


class Watch:
    """Told of every event of one trial; `events` and `env` are what it heard."""

    def __init__(self, shown: Progress, trial: AnyTrial, *, unit: str = "samples") -> None:
        self.events: list[Event] = []
        self.env: Env | None = None
        self._shown = shown
        self._done = 0
        # How long a program of others goes on, and how many ranks it has, only that program knows.
        known = trial if isinstance(trial, Trial) else None
        self._ranks = known.processes if known else 1
        self._compiles = known is not None and "compile" in known.techniques
        self._beside_others = bool(known and known.concurrent and known.concurrent.case == "together")
        self._counted = unit
        iterations = (known.iterations or None) if known and not known.profile else None
        shown.trial_started(f"{title(trial)}, repeat {trial.repeat}", iterations)
        shown.phase("start")

    def __call__(self, event: Event) -> None:
        """Keep the event; show those of rank 0."""
        self.events.append(event)
        if event.rank != 0:
            return
        if isinstance(event, Env):
            self.env = event
        # Nothing may be loaded while another training is still measured.
        if _idle_from_here(event) and not self._beside_others:
            ahead.load()
        self._show(event)

    def _show(self, event: Event) -> None:
        match event:
            case Phase(name="import"):
                self._shown.phase("create model")
            case RunStart():
                self._shown.phase("first step" if not self._compiles else COMPILES)
            case FirstStep():
                self._shown.phase("warm-up")
            case Pace(iterations=iterations):
                self._shown.expect(iterations)
            case WarmupEnd():
                self._shown.phase("measuring")
            case ProfileStart():
                self._shown.phase(f"under {event.source}")
            case Window():
                self._done += event.iterations
                self._shown.window(
                    self._done,
                    (event.samples if event.units is None else event.units) * self._ranks / event.seconds,
                    f"{self._counted}/s",
                )
            case _:
                pass

    def ended(self, record: RunRecord) -> None:
        """Leave one line about the run."""
        throughput = record.measurement.throughput
        status = record.validity.status
        if record.profile and status != "invalid":
            self._shown.trial_ended(f"profiled by {record.profile.source} ({status})")
        elif status == "invalid" or throughput is None:
            self._shown.trial_ended(f"invalid, {'; '.join(record.validity.reasons)}")
        else:
            self._shown.trial_ended(f"{throughput.value:.1f} {throughput.unit} ({status})")
        if record.cut:
            self._shown.stage(record.cut)


def _idle_from_here(event: Event) -> bool:
    """Whether nothing is measured for a second: the training is over, or a GPU's first step is seconds away; cores train at once."""
    return isinstance(event, RunStop) or (isinstance(event, Env) and event.device == "gpu")
