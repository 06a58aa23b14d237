"""Profiling passes through the whole suite: they run after the measured run, can be shown, and regrade to the same."""

import json
import re

import pytest

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(scope="module")
def ended(dlscale, tmp_path_factory):
    done = dlscale(
        "bench",
        "--framework=mxnet",
        "--model=lenet",
        "--device=cpu",
        "--workers=1",
        "--profile=kernels,memory",
        "--profile-after=6",
        "--profile-iterations=3",
        out=tmp_path_factory.mktemp("profiled"),
    )
    assert done.code == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def passes(ended):
    return {record.profile.kind: record for record in ended.records if record.profiled}


def test_one_measured_run_and_a_pass_of_each_kind(ended, passes):
    assert passes.keys() == {"kernels", "memory"}
    (measured,) = [record for record in ended.records if not record.profiled]
    assert measured.measurement.throughput is not None
    assert measured.scaling.speedup.value == 1.0
    for record in passes.values():
        assert record.validity.status in ("valid", "degraded"), record.validity
        assert record.measurement.throughput is None
        assert record.trial.key == measured.trial.key
        assert record.provenance.recorded_at > measured.provenance.recorded_at


def test_a_pass_records_its_request(passes):
    for record in passes.values():
        assert (record.profile.after, record.profile.iterations) == (6, 3)
    assert passes["kernels"].profile.categories
    assert passes["memory"].profile.memory


def test_a_pass_is_named_below_the_table_and_can_be_printed(ended, passes, dlscale):
    directory = ended.out / passes["kernels"].run_id
    assert f"profile: dlscale profile {directory}" in ended.stdout
    shown = dlscale("profile", directory)
    assert shown.code == 0, shown.stderr
    assert "convolution" in shown.stdout
    assert json.loads(dlscale("profile", directory, "--json").stdout)["kind"] == "kernels"


def test_regrading_gives_the_same_records(ended, dlscale):
    again = dlscale("regrade", ended.out)
    assert again.code == 0, again.stderr
    assert again.stdout.count(": same") == 3, again.stdout


def test_a_plan_shows_the_passes_with_their_flags(dlscale):
    done = dlscale(
        "bench",
        "--dry-run",
        "--framework=mxnet",
        "--model=lenet",
        "--device=cpu",
        "--workers=1",
        "--profile=region",
        "--profile-after=300",
    )
    assert done.code == 0, done.stderr
    title, *_ = [line for line in done.stdout.splitlines() if "profile of regions" in line]
    assert re.match(r"# mxnet 1.9.1 lenet on 1 worker × \d+ cores?, profile of regions", title)
    assert "--profile=region --profile-after=300 --profile-iterations=5" in done.stdout
