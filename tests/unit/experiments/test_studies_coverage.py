"""The coverage table of docs/studies.md.

Prevents: a metric of a source without a row; a declared difference that the table omits; too many rows with `can't`, or one for a device that an
image supports.
"""

import examples
import pytest

from runner.core.yamlfile import load as read
from runner.experiments.studies.coverage import state
from runner.experiments.studies.observe import is_measured
from runner.experiments.studies.study import DIRECTORY, Block, Same, Shown, Study, load_study, study_names
from runner.images.catalog import load_images

STUDIES = {name: read(DIRECTORY / f"{name}.yaml", Study) for name in study_names()}


@pytest.mark.parametrize("name", STUDIES)
def test_every_metric_of_a_source_is_shown_and_every_block_is_used(name):
    study, source = load_study(name)
    has = {figure.metric for figure in source.figures if is_measured(figure)}
    has |= {part.metric for finding in source.findings for part in finding.parts}
    assert has <= {metric for shown in study.shows for metric in shown.metrics}
    assert {block.id for block in study.blocks} == {block for shown in study.shows for block in shown.blocks}


def test_at_most_six_items_cannot_be_run_and_no_image_supports_their_devices():
    reasons = [shown.cant for study in STUDIES.values() for shown in study.shows if shown.cant]
    assert len(reasons) <= 6
    assert all("compute capability 3." in reason for reason in reasons)
    known = {float(one) for image in load_images(examples.ROOT).images for one in image.compute_capabilities}
    assert min(known) >= 5


def made_up(differs, **changes):
    block = {
        "id": "own",
        "says": "made up",
        "where": {"framework": "mxnet"},
        "models": {"googlenet": "googlenet"},
        "batches": (64,),
        "image_size": 224,
        "iterations": 100,
        "differs": differs,
    }
    own = Block.model_validate(block | changes)
    return Study(id="own", source="own", title="Own", same=Same(why="made up"), tolerances=(), blocks=(own,))


@pytest.mark.parametrize(
    ("differs", "changes", "metrics", "told"),
    [
        ((), {}, ("throughput",), "covered"),
        (({"field": "batch", "published": "not stated (32 elsewhere)", "here": "32"},), {}, ("throughput",), "covered"),
        (({"field": "loss", "published": "a", "here": "b"},), {}, ("throughput",), "differs in loss"),
        (({"field": "training time", "published": "a", "here": "b"},), {}, ("throughput",), "covered"),
        (
            ({"field": "training time", "published": "a", "here": "b"},),
            {},
            ("training_time",),
            "differs in training time",
        ),
        ((), {"where": {"framework": "mxnet", "data": "real"}}, ("throughput",), "differs in data"),
        (
            ({"field": "updates", "published": "a", "here": "b", "stands_in": True},),
            {},
            ("throughput",),
            "covered; where another framework stands in, also in updates",
        ),
    ],
)
def test_a_difference_is_listed_if_it_concerns_a_shown_metric(differs, changes, metrics, told):
    study = made_up(differs, **changes)
    assert state(study, Shown(what="Figure 1", metrics=metrics, blocks=("own",))) == told


def test_items_without_runs_are_covered_as_data_or_say_why_not():
    study = made_up(())
    assert state(study, Shown(what="Table 1")) == "covered as data"
    assert state(study, Shown(what="Figure 1", cant="Kepler")) == "can't: Kepler"
