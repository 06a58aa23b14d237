"""Real images: decoded by the framework's own pipeline; damaged ones are counted and named; the loss falls."""

import os

import pytest

pytestmark = pytest.mark.usefixtures("nothing_left")
LEARN = ("--batch=16", "--iterations=30", "--warmup=2", "--workers=1", "--device=cpu", "--image-size=32")


# First the framework that one test uses alone, at the same position: otherwise, pytest would train another one twice.
@pytest.fixture(scope="module", params=["pytorch", "caffe", "mxnet", "tensorflow"])
def ended(request, dlscale, sample, tmp_path_factory):
    words = (f"--framework={request.param}", f"--data={sample}", *LEARN)
    loaders = ("--loader-workers=2",) if request.param == "pytorch" else ()
    return dlscale("bench", *words, *loaders, out=tmp_path_factory.mktemp(request.param))


def test_it_learns_the_sample_set(ended, sample):
    assert ended.code == 0, ended.stderr
    record = ended.records[0]
    assert record.validity.status in ("valid", "degraded"), record.validity
    assert record.trial.data == str(sample)
    assert record.trial.num_classes == record.trial.dataset.classes >= 5
    curve = record.measurement.losses["0"]
    assert sum(curve[-8:]) < sum(curve[:8])


def test_damaged_images_are_named_and_skipped(ended):
    names = [name.rpartition("/")[2] for name in ended.records[0].measurement.images_skipped]
    assert names == ["cut_short.jpg", "no_image.jpg"]


@pytest.mark.parametrize(
    ("framework", "files"),
    [
        ("mxnet", ["set.idx", "set.json", "set.rec"]),
        ("caffe", ["set.json", "set.lmdb"]),
        ("tensorflow", ["set.json", "set.tfrecord"]),
    ],
)
def test_a_packed_file_is_the_same_data(dlscale, sample, tmp_path, framework, files):
    tmp_path.chmod(0o755)  # pytest makes it private to root
    packed = tmp_path / files[-1]
    done = dlscale("data", "pack", sample, f"--out={packed}", "--image-size=32")
    assert done.code == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    trained = dlscale("bench", f"--framework={framework}", f"--data={packed}", *LEARN, out=tmp_path / "out")
    assert trained.code == 0, trained.stderr
    assert trained.records[0].trial.dataset.images == 160


def test_data_readable_only_by_root_is_refused_with_the_command_that_opens_it(dlscale, sample, tmp_path):
    """A job in a container never runs as root, and would fail on its first image."""
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "a.jpg").write_bytes(next(sample.glob("*/*.jpg")).read_bytes())
    tmp_path.chmod(0o700)
    if os.getuid():
        return  # whoever owns the data also runs the job
    done = dlscale("bench", "--framework=pytorch", f"--data={tmp_path}", *LEARN, out=tmp_path / "out")
    assert done.code == 2
    assert f"type `chmod o+rx {tmp_path}`" in done.stderr


def test_pytorch_does_not_read_recordio(dlscale, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "set.rec").touch()
    (tmp_path / "set.idx").touch()
    (tmp_path / "set.json").write_text('{"classes": ["ant"], "images": 5, "skipped": []}')
    done = dlscale("bench", "--framework=pytorch", f"--data={tmp_path / 'set.rec'}", *LEARN, out=tmp_path / "out")
    assert done.code == 2
    assert "FRAMEWORK=pytorch reads a folder" in done.stderr


@pytest.mark.parametrize("ended", ["pytorch"], indirect=True)
def test_the_requested_loader_workers_run_and_the_input_is_timed_separately(ended):
    (record,) = ended.records
    assert record.trial.loader_workers == 2
    assert record.measurement.input_alone_per_s > 0
    assert record.outcome.phases_s["input_alone"] >= 2


def test_decoding_on_a_gpu_is_refused_for_training_on_cpus(dlscale, sample, tmp_path):
    ended = dlscale("bench", "--framework=pytorch", f"--data={sample}", *LEARN, "--decode=gpu", out=tmp_path)
    assert ended.code == 2
    assert "DECODE=gpu needs a GPU that trains" in ended.stderr
    assert ended.records == []
