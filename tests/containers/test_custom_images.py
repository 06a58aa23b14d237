"""The suite's own programs in an image that it did not build, in real containers.

Prevents: a training that fails because of a vendor's entry point, or that runs without it; a mount that the programs can't see, or can
write to; a record that can't be regraded, or does not say which image ran; a dry run that prints something other than what runs.
"""

import io
import json

import pytest
from commands import ROOT

pytestmark = pytest.mark.usefixtures("nothing_left")

OWN = "dlscale/mxnet:1.9.1"
VENDORS = "dlscale-test/vendor:1"
SAYS = 'cat /vendor/word; touch /vendor/x 2>&1; exec "$@"\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The mounted folder: a word, and the image's entry point."""
    shown = tmp_path_factory.mktemp("vendor")
    (shown / "word").write_text("shown by the host\n")
    (shown / "entrypoint.sh").write_text(SAYS)
    shown.chmod(0o755)  # pytest's own temporary directories are private to root
    return shown


@pytest.fixture(scope="module")
def vendors(ensure_image, client):
    """MXNet's image under another name, whose entry point is not in the image but mounted."""
    recipe = f'FROM {ensure_image(OWN)}\nENTRYPOINT ["/bin/sh", "/vendor/entrypoint.sh"]\n'
    image, _ = client.images.build(fileobj=io.BytesIO(recipe.encode()), rm=True, forcerm=True, tag=VENDORS)
    yield image
    client.images.remove(VENDORS, force=True)


@pytest.fixture(scope="module")
def ended(dlscale, vendors, folder, tmp_path_factory):
    """One training on one worker and one on two."""
    flags = (f"--image={VENDORS}", f"--mount={folder}:/vendor,{ROOT / 'docs'}:/opt/docs", "--framework=mxnet")
    done = dlscale("bench", *flags, "--device=cpu", "--workers=1,2", out=tmp_path_factory.mktemp("given"))
    assert done.code == 0, done.stderr
    return done


def test_one_and_two_workers_train_as_in_the_suites_own_image(ended):
    assert [record.trial.world_size for record in ended.records] == [1, 2]
    for record in ended.records:
        # On a busy machine, a tiny run may be unsteady but not wrong.
        assert record.validity.status in ("valid", "degraded"), record.validity
        assert record.measurement.samples == record.trial.iterations * record.trial.global_batch
    assert ended.record(2).trial.kvstore == "dist_sync"
    assert ended.record(2).scaling.baseline_run_id == ended.record(1).run_id


def test_the_record_names_the_image_and_the_framework_version_in_it(ended, vendors):
    for record in ended.records:
        assert (record.image.reference, record.image.id) == (VENDORS, vendors.id)
        assert record.trial.version == VENDORS
        assert record.provenance.framework_version == "1.9.1"
    assert "mxnet 1.9.1: " in ended.stdout
    assert VENDORS in ended.stdout


def test_every_container_starts_with_the_images_entry_point_and_reads_the_mounts(ended, folder):
    for record in ended.records:
        logs = list((ended.out / record.run_id / "logs").glob("*-worker*.log"))
        assert len(logs) == record.trial.world_size
        for log in logs:
            word, refused = log.read_text().splitlines()[:2]
            assert word == "shown by the host"
            assert "denied" in refused or "Read-only" in refused
    assert sorted(path.name for path in folder.iterdir()) == ["entrypoint.sh", "word"]


def test_regrading_gives_the_same(ended, dlscale):
    assert dlscale("regrade", ended.out).stdout.count(": same") == 2


def test_a_dry_run_prints_what_ran_and_starts_nothing(ended, dlscale, folder, tmp_path):
    """Compare with the run on one worker: the run on two has new ports each time."""
    mounts = (f"--mount={folder}:/vendor", f"--mount={ROOT / 'docs'}:/opt/docs")
    flags = (f"--image={VENDORS}", *mounts, "--framework=mxnet", "--device=cpu", "--workers=1,2", "--dry-run")
    printed = dlscale("bench", *flags, out=tmp_path / "out")
    assert printed.code == 0, printed.stderr
    assert not (tmp_path / "out").exists()
    ran = ended.record(1)
    plan = json.loads((ended.out / ran.run_id / "plan.json").read_text())
    lines = [line.replace("RUN1", ran.run_id) for line in printed.stdout.splitlines() if not line.startswith("#")]
    assert plan["command_lines"] == lines[: len(plan["command_lines"])]


def test_a_missing_image_is_refused_and_nothing_is_built(dlscale, tmp_path):
    done = dlscale("bench", "--image=dlscale-test/no-such-image:1", "--framework=mxnet", out=tmp_path / "out")
    assert done.code == 2
    assert "type `docker pull dlscale-test/no-such-image:1`" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_framework_missing_from_the_image_fails_with_its_name(ensure_image, dlscale, tmp_path):
    flags = (f"--image={ensure_image(OWN)}", "--framework=pytorch", "--device=cpu", "--workers=1")
    done = dlscale("bench", *flags, out=tmp_path / "out")
    assert done.code == 3
    assert "No module named 'torch'" in done.records[0].outcome.reason
