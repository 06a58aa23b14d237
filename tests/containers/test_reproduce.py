"""Studies with real containers: every kind of run in a source, small, on CPU workers.

Prevents: a row of a source that no image here can run; a study that ends at its first failure or never; runs that a second call
repeats; a table without a verdict, or with one that was never measured; a run of a study that `bench` would grade differently.
"""

import pytest

from runner.commands.regrade import regrade_all
from runner.experiments.studies.model import Reproduction
from runner.experiments.studies.study import load_study

pytestmark = pytest.mark.usefixtures("nothing_left")

# One cell per row of each study; all cells of the first study. The first is the one that a test uses alone; pytest would run another one twice.
CELLS = {
    "cern-wgan": [],
    "dell-p100": [
        "caffe.1gpus",
        "caffe-cpu.cpu",
        "tensorflow.1gpus",
        "mxnet-googlenet.1gpus",
        "mxnet-inception-bn.2gpus.2nodes.eth",
    ],
    "uw-hardware": [
        "gpus.2gpus",
        "concurrent-dense.2gpus.one",
        "concurrent-dense.2gpus.sequential",
        "concurrent-dense.2gpus.together",
        *("infer.vgg16.1gpus.batch1", "infer.vgg16.1gpus.batch10000"),  # one name is a prefix of the other
        "infer-cpu.vgg16.cpu",
        "quantised.cpu.int8",
    ],
    "tbd-analysis": [
        "one-machine.2gpus.batch16",
        "machines.2gpus.2nodes.batch16.eth1g",
        "sensitivity-inception.1gpus",
        "sensitivity-wgan.1gpus",
        "sensitivity-deepspeech2.1gpus",
    ],
    "nyu-profiling": [
        "steps.alexnet.1gpus.batch4",
        "steps.resnet18.1gpus.batch8",
        "backward.alexnet.1gpus.batch4",
    ],
}
# A framework that starts within seconds; the source's own, TensorFlow, trains the same network in a row of tbd-analysis.
FRAMEWORK = {"cern-wgan": ["--framework=pytorch"]}


def reproduced(done):
    path = max(done.out.glob("*.reproduction.json"))
    return Reproduction.model_validate_json(path.read_text(encoding="utf-8"))


def small(dlscale, study, out):
    cells = [f"--cells={','.join(CELLS[study])}"] if CELLS[study] else []
    words = (study, "--scale=small", "--device=cpu", *cells, *FRAMEWORK.get(study, ()))
    done = dlscale("reproduce", *words, out=out)
    assert done.code == 0, done.stderr[-4000:]
    return done


@pytest.fixture(scope="module", params=CELLS)
def ended(request, dlscale, tmp_path_factory):
    return small(dlscale, request.param, tmp_path_factory.mktemp(request.param))


def test_every_row_runs_and_every_finding_is_judged(ended):
    made = reproduced(ended)
    status = {cell.id: cell for cell in made.cells}
    wanted = CELLS[made.study] or [cell.id for cell in made.cells if cell.status != "skipped"]
    for cell in (status.pop(id_) for id_ in wanted):
        assert cell.status == "ran", cell
        assert all((ended.out / directory / "record.json").exists() for directory in cell.runs)
    assert all(cell.status != "ran" and cell.why for cell in status.values())
    _, source = load_study(made.study)
    assert [judged.finding.id for judged in made.judgements] == [finding.id for finding in source.findings]
    assert all(judged.why for judged in made.judgements)
    # This machine has no source's hardware.
    assert not {comparison.verdict for comparison in made.comparisons} & {"reproduced", "differs"}
    assert "can't be tested here" in ended.stdout


def test_the_runs_of_a_study_are_graded_like_any_others(ended):
    assert regrade_all(ended.out) == 0
    assert {record.outcome.status for record in ended.records} == {"ok"}


@pytest.mark.parametrize("ended", ["cern-wgan"], indirect=True)
def test_a_second_call_reuses_all_runs(ended, dlscale):
    before, made = {record.run_id for record in ended.records}, reproduced(ended)
    assert made.observations
    again = small(dlscale, made.study, ended.out)
    assert {record.run_id for record in again.records} == before
    assert [cell.runs for cell in reproduced(again).cells] == [cell.runs for cell in made.cells]
