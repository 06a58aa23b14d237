"""Measured runs of a cell → rates, times, losses and accuracies. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from runner.analysis.comparisons.concurrency import total_s
from runner.analysis.grading import metrics
from runner.analysis.grading.metrics import student_t
from runner.analysis.summarize import latency, usable_windows
from runner.core.measurement import Interval
from runner.core.record import RunRecord
from runner.core.trial import Trial
from runner.experiments.studies.model import Run
from runner.experiments.studies.noise import Amount, mean_of
from runner.experiments.studies.observe.gather import Gathered

CONVERGED_WITHIN = 1.0
"""Percentage points below a run's best accuracy at which it counts as converged. No source says what it takes; this is ours."""


def rates(cell: Gathered) -> None:
    """Throughput over all repeats with its interval, and what follows from it: the time of an iteration."""
    runs = cell.measured
    windows = usable_windows([one.record for one in runs])
    told = [one.record.measurement.throughput for one in runs if one.record.measurement.throughput]
    if not windows or not told:
        cell.lack("no run gave a rate", "throughput", "iteration_time")
        return
    rate = metrics.pooled_rate(windows)
    ci95 = metrics.rate_interval(windows)
    freedom = len(windows) - 1 if ci95 else None
    cell.add("throughput", told[0].unit, Amount(rate, ci95, freedom), runs)
    trial = runs[0].record.trial
    if isinstance(trial, Trial):
        amount = _an_iteration(runs, trial)
        inverse = Interval(low=amount / ci95.high, high=amount / ci95.low) if ci95 and ci95.low > 0 else None
        cell.add("iteration_time", "s", Amount(amount / rate, inverse, freedom), runs)
    _over_time(cell)


def _an_iteration(runs: Sequence[Run], trial: Trial) -> float:
    """How much of what throughput counts one iteration has: its samples, or the units of them."""
    windows = [window for one in runs for window in one.record.measurement.windows]
    units = math.fsum(window.samples if window.units is None else window.units for window in windows)
    return trial.global_batch * units / sum(window.samples for window in windows)


def _over_time(cell: Gathered) -> None:
    """Rate and iteration time of each window, over the repeats that have it; `iterations` are those done at its end, warm-up included."""
    trial = cell.measured[0].record.trial
    unit = next(one.record.measurement.throughput.unit for one in cell.measured if one.record.measurement.throughput)
    if not isinstance(trial, Trial):
        return
    joined = [(one, metrics.global_windows(one.record.measurement.windows)) for one in cell.measured]
    known = [(one, windows) for one, windows in joined if windows is not None]
    count = min((len(windows.samples) for _, windows in known), default=0)
    runs = [one for one, _ in known]
    for index in range(count):
        done = trial.warmup + min((index + 1) * trial.window, trial.iterations)
        length = min(trial.window, trial.iterations - index * trial.window)
        seconds = [float(windows.seconds[index]) for _, windows in known]
        amounts = [float(windows.samples[index]) for _, windows in known]
        cell.add("throughput", unit, Amount(sum(amounts) / sum(seconds)), runs, iterations=done)
        cell.add("iteration_time", "s", Amount(fmean(seconds) / max(length, 1)), runs, iterations=done)


def times(cell: Gathered) -> None:
    """Training time, or that of all of an inference and of its batches; and how many samples it was for."""
    runs = cell.measured
    seconds = [one.record.measurement.training_time_s for one in runs if one.record.measurement.training_time_s]
    infers = all(_mode(one.record) == "infer" for one in runs)
    whole = "inference_time" if infers else "training_time"
    if not seconds:
        cell.lack("no run measured its time", whole)
        return
    cell.add(whole, "s", mean_of(seconds), runs)
    cell.add("samples_per_run", "images", Amount(float(runs[0].record.measurement.samples)), runs)
    if infers:
        latencies = [known.with_transfer.p50 for one in runs if (known := latency(one.record.measurement))]
        if latencies:
            cell.add_mean("time_per_batch", "s", latencies, runs, method="median latency")


def quality(cell: Gathered) -> None:
    """Accuracy of predictions; losses and accuracy after each epoch; and the epoch at which a training has converged."""
    answered = [(one, figures) for one in cell.measured if (figures := one.record.measurement.accuracy)]
    if answered:
        share = _share([figures.percent for _, figures in answered], answered[0][1].samples)
        cell.add("accuracy", "%", share, [one for one, _ in answered])
    curves = [(one, one.record.measurement.epochs) for one in cell.measured if one.record.measurement.epochs]
    if not curves:
        return
    runs = [one for one, _ in curves]
    for index in range(min(len(curve) for _, curve in curves)):
        points = [curve[index] for _, curve in curves]
        epoch = points[0].epoch
        share = _share([point.accuracy_percent for point in points], points[0].validation_samples)
        cell.add("accuracy", "%", share, runs, epoch=epoch)
        for metric, losses in (
            ("train_loss", [point.train_loss for point in points]),
            ("val_loss", [point.val_loss for point in points]),
        ):
            known = [loss for loss in losses if loss is not None]
            if len(known) == len(losses):
                cell.add_mean(metric, "nats", known, runs, epoch=epoch)
    converged = [float(converged_at([(point.epoch, point.accuracy_percent) for point in curve])) for _, curve in curves]
    method = f"first epoch within {CONVERGED_WITHIN:g} percentage point of the run's best accuracy"
    cell.add_mean("epochs_to_converge", "epochs", converged, runs, method=method)


def converged_at(curve: Sequence[tuple[int, float]]) -> int:
    """The first epoch whose accuracy is within `CONVERGED_WITHIN` of the best of the run; pairs of epoch and accuracy in percent."""
    best = max(accuracy for _, accuracy in curve)
    return next(epoch for epoch, accuracy in curve if accuracy >= best - CONVERGED_WITHIN)


def _share(percents: Sequence[float], samples: int) -> Amount:
    """The mean of runs, each of the same so many samples; its interval is the wider of that over runs and that of a share of samples.

    Runs of one seed may agree to the last digit, which is no certainty about other images; one run tells nothing of others.
    """
    found = mean_of(percents)
    if found.ci95 is None or not samples:
        return found
    # Wilson's interval of a share (E. B. Wilson, JASA 22(158), 1927), in percent.
    z, share = student_t(math.inf), found.value / 100
    middle = (share + z**2 / (2 * samples)) / (1 + z**2 / samples)
    half = z / (1 + z**2 / samples) * math.sqrt(share * (1 - share) / samples + z**2 / (4 * samples**2))
    drawn = Interval(low=100 * (middle - half), high=100 * (middle + half))
    return Amount(found.value, drawn) if drawn.half_width > found.ci95.half_width else found


def of_case(cell: Gathered) -> None:
    """How long several trainings took in all, as `concurrency.total_s` has it."""
    repeats: dict[int, list[Run]] = defaultdict(list)
    for one in cell.measured:
        repeats[one.record.trial.repeat].append(one)
    totals: list[float] = []
    runs: list[Run] = []
    for own in repeats.values():
        trial = own[0].record.trial
        concurrent = trial.concurrent if isinstance(trial, Trial) else None
        expected = 1 if concurrent is None or concurrent.case == "one" else concurrent.trainings
        if len(own) < expected:
            continue
        case = concurrent.case if concurrent else "one"
        totals.append(total_s([one.record for one in own], case=case))
        runs += own
    if totals:
        cell.add_mean("total_time", "s", totals, runs, repeats=len(totals))
    else:
        cell.lack("not all of the trainings of this case can be used", "total_time")


def _mode(record: RunRecord) -> str:
    return record.trial.mode if isinstance(record.trial, Trial) else "train"
