"""Studies with real containers: every kind of run that a source has, small, on CPU workers.

Prevents: a row of a source that no image here can run; a study that ends at its first trouble or never; runs that a second call makes
once more; a table without a verdict, or with one that nothing was measured for; a run of a study that `bench` would grade otherwise.
"""

import pytest

from runner.commands.regrade import regrade_all
from runner.experiments.studies.model import Reproduction
from runner.experiments.studies.study import load_study

pytestmark = pytest.mark.usefixtures("nothing_left")

# Of studies that are not run as a whole, a cell of each row.
ROWS = {
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
        "infer.vgg16.1gpus.batch1",
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
# In what starts within seconds; the source's own, TensorFlow, trains the same network in a row of tbd-analysis.
WHOLE = {"cern-wgan": "--framework=pytorch"}


def reproduced(done):
    path = max(done.out.glob("*.reproduction.json"))
    return Reproduction.model_validate_json(path.read_text(encoding="utf-8"))


def small(dlscale, study, out, *more):
    return dlscale("reproduce", study, "--scale=small", "--device=cpu", *more, out=out)


def every_finding_is_judged(made):
    _, source = load_study(made.study)
    assert [judged.finding.id for judged in made.judgements] == [finding.id for finding in source.findings]
    assert all(judged.why for judged in made.judgements)


@pytest.fixture(scope="module", params=WHOLE)
def whole(request, dlscale, tmp_path_factory):
    done = small(dlscale, request.param, tmp_path_factory.mktemp(request.param), WHOLE[request.param])
    assert done.code == 0, done.stderr[-4000:]
    return done


@pytest.mark.parametrize("name", ROWS)
def test_every_row_of_a_source_runs_small(dlscale, tmp_path, name):
    done = small(dlscale, name, tmp_path, f"--cells={','.join(ROWS[name])}")
    assert done.code == 0, done.stderr[-4000:]
    status = {cell.id: cell for cell in reproduced(done).cells}
    for cell in (status[id_] for id_ in ROWS[name]):
        assert cell.status == "ran", cell
        assert all((done.out / directory / "record.json").exists() for directory in cell.runs)
    every_finding_is_judged(reproduced(done))


def test_a_whole_study_runs_and_judges_every_finding(whole):
    made = reproduced(whole)
    assert {cell.status for cell in made.cells} <= {"ran", "skipped"}
    assert all(cell.why for cell in made.cells if cell.status == "skipped")
    every_finding_is_judged(made)
    assert made.observations
    # Nothing here is the hardware of any source.
    assert not {comparison.verdict for comparison in made.comparisons} & {"reproduced", "differs"}
    assert "can't be tested here" in whole.stdout


def test_the_runs_of_a_study_are_graded_as_any_others(whole):
    assert regrade_all(whole.out) == 0
    assert {record.outcome.status for record in whole.records} == {"ok"}


def test_a_second_call_takes_all_runs_from_file(whole, dlscale):
    before = {record.run_id for record in whole.records}
    study = reproduced(whole).study
    again = small(dlscale, study, whole.out, WHOLE[study])
    assert again.code == 0, again.stderr[-4000:]
    assert {record.run_id for record in again.records} == before
    assert [cell.runs for cell in reproduced(again).cells] == [cell.runs for cell in reproduced(whole).cells]
