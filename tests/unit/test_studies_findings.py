"""The findings of published sources, asked of their own figures and of whole studies.

Prevents: a finding that contradicts the figures of its own source, so that one of them was copied wrong or is read wrong; a finding
that can't be asked, or that gets a verdict without a reason or without runs.
"""

from __future__ import annotations

import pytest
import studied

from runner.core.record import Validity
from runner.experiments.studies.model import INDICATED
from runner.experiments.studies.observe import printed
from runner.experiments.studies.predicates import judged
from runner.experiments.studies.reproduction import judge
from runner.results.published import load as published

STUDIES = ("cern-wgan", "dell-p100", "nyu-profiling", "tbd-analysis", "uw-hardware")
SOURCES = {one.id: one for one in published.load_all() if one.findings}


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_holds_what_it_concludes_where_it_prints_the_figures(name):
    """Its text and its tables were copied by different hands; what one says, the other shows."""
    own = SOURCES[name]
    against = [judged(finding, printed(own)) for finding in own.findings]
    assert all(map(is_told, against))
    declared = {figure for each in own.contradictions for figure in each.figures}
    failed = [one.finding.id for one in against if one.verdict == "does not hold" and one.finding.id not in declared]
    assert failed == []


def test_enough_of_them_can_be_told_from_print():
    verdicts = [judged(f, printed(SOURCES[name])).verdict for name in SOURCES for f in SOURCES[name].findings]
    assert verdicts.count("holds") >= 48


def is_told(judgement):
    assert judgement.verdict in {"holds", "does not hold", "not testable here", *INDICATED.values()}
    assert (judgement.verdict in INDICATED.values()) == bool(judgement.doubts)
    assert judgement.why
    return True


@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_every_finding_can_be_asked_of_a_whole_study(study, device):
    gpus = {"device": "gpu", "devices": (8,), "device_name": "NVIDIA H200"}
    reproduction = studied.reproduced(study, studied.machine(**gpus if device == "gpu" else {}), repeats=1)
    assert all(map(is_told, reproduction.judgements))
    assert all((one.verdict == "not testable here") is not bool(one.runs) for one in reproduction.judgements)
    known = {run for one in reproduction.cells for run in one.runs}
    assert {run for judgement in reproduction.judgements for run in judgement.runs} <= known


def test_profiles_of_a_study_answer_its_findings():
    """Launches take 95 % of the calls below batch 64 and 60 % at 64, broadcasts 53 % of the time at batch 4 and less with each step up.

    A pass is run once, so that none of it is settled.
    """
    here = studied.machine(device="gpu", devices=(2,), device_name="NVIDIA H200")
    verdicts = {one.finding.id: one.verdict for one in studied.reproduced("nyu-profiling", here).judgements}
    held = {name for name, verdict in verdicts.items() if verdict == "indicated"}
    assert held == {
        "nyu.broadcast_falls_with_batch",
        "nyu.broadcast_small_batch_half",
        "nyu.launch_dominates",
        "nyu.launch_drops_at_64",
        "nyu.maxpool_backward_rises",
        "nyu.small_batch_memory_bound",
        "nyu.alloc_invariant",
    }
    assert verdicts["nyu.broadcast_alexnet_differs"] == "not indicated"
    assert verdicts["nyu.winograd_k80_hump"] == "not testable here"
    on_cpu = {one.finding.id: one.verdict for one in studied.reproduced("nyu-profiling", studied.machine()).judgements}
    assert {name for name, verdict in on_cpu.items() if verdict == "indicated"} == {"nyu.maxpool_backward_rises"}


def test_findings_on_degraded_runs_say_so_and_on_invalid_ones_nothing():
    """Findings were judged on degraded runs, and on runs of two windows, as if they were not."""
    study, source, found = studied.study_runs(
        "tbd-analysis", studied.machine(device="gpu", devices=(4,), gpu="titanxp")
    )

    def verdicts(status):
        """One of the three runs of each cell is in doubt, or gone."""
        runs = []
        for cell in found:
            first = [
                one.model_copy(update={"validity": Validity(status=status, reasons=("made up",))})
                for one in cell.runs[:1]
            ]
            runs.append(cell.model_copy(update={"runs": (*first, *cell.runs[1:])}))
        made = judge(study, published=source, runs=runs, machine=studied.machine(), scale="full", made_at=studied.NOW)
        return {one.finding.id: (one.verdict, one.doubts) for one in made.judgements}

    finding = "tbd.single_machine_scales"
    assert verdicts("valid")[finding] == ("holds", ())
    assert verdicts("degraded")[finding] == ("indicated", ("degraded runs",))
    assert verdicts("invalid")[finding] == ("indicated", ("2 runs",))
