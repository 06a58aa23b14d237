"""Counters of a time in which nothing was counted: telemetry of a pass that is taken from its start-up, from ncu's replays, or from one rank."""

import examples
import passes

from runner.analysis.telemetry.spans import pass_windows
from runner.core.events import ProfileStart, ProfileStop

SAMPLER = {"source": "sampler", "reason": "there is no ncu"}


def timed(the_trial, *, ranks=2, begin=10.0, end=13.5, iterations=40):
    """Passes of all ranks from `begin` to `end` seconds."""
    events = []
    for rank in range(ranks):
        for event in passes.said(rank, kind="metrics", iterations=iterations):
            moment = {ProfileStart: begin, ProfileStop: end}.get(type(event), 0.0)
            events.append(event.model_copy(update={"t": moment + rank / 10}))
    return events


def test_the_stretch_of_each_rank_and_what_it_trained_on():
    trial = passes.trial("metrics", device="gpu", counting=SAMPLER, global_batch=64)
    first, second = pass_windows(trial, timed(trial))
    assert (first.rank, first.start, first.seconds, first.samples) == (0, 10.0, 3.5, 40 * 32)
    assert (second.rank, second.start) == (1, 10.1)


def test_one_rank_alone_is_none():
    trial = passes.trial("metrics", device="gpu", counting=SAMPLER)
    assert pass_windows(trial, timed(trial, ranks=1)) == ()


def test_what_ncu_replays_and_what_profilers_slow_down_is_not_what_a_machine_does():
    for trial in (
        passes.trial("metrics", device="gpu", counting=passes.NCU),
        passes.trial("kernels"),
        examples.trial(world_size=2, processes=2),
    ):
        assert pass_windows(trial, timed(trial)) == ()


def test_ncu_is_named_as_the_source_of_what_it_told():
    under_ncu = passes.trial("metrics", device="gpu", ranks=1, counting=passes.NCU)
    assert passes.record_of(under_ncu, frame=passes.rows(("kernel", 0))).profile.source == "ncu"
    sampled = passes.trial("metrics", device="gpu", ranks=1, counting=SAMPLER)
    assert passes.record_of(sampled).profile.source == "made up"
