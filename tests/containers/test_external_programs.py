"""External programs in real containers: MXNet's Speedometer and `caffe train` unmodified, logs in no dialect, jobs that
outlive their runner, and images without Python, without a shell, or missing altogether.
"""

import io
import json
import re
import tarfile
from contextlib import suppress
from pathlib import Path

import docker
import pytest
from commands import ROOT, containers_of, run_to_end
from waiting import wait_until

PROGRAMS = ROOT / "tests" / "containers" / "foreign"
LOGS = ROOT / "tests" / "golden" / "dialects"
MXNET = "dlscale/mxnet:1.9.1"
CAFFE = "dlscale/caffe:1.0"
SPEEDOMETER = ("python3", "/dlscale/data/speedometer.py")
CHATTER = "echo Hello there; while :; do echo still here; sleep 0.2; done"


@pytest.fixture(autouse=True)
def nothing_left(client, tmp_path):
    """After the test, none of its runs has a container, running or not; a removal in progress finishes soon."""
    yield
    assert wait_until(lambda: not containers_of(client, tmp_path / "out", all=True), 60)


@pytest.fixture
def bench(client, tmp_path):
    """Benchmark a command once, in a separate process."""

    def call(image, *words, flags=(), timeout=300):
        out = tmp_path / "out"
        argv = ["bench", "--image", image, "--device=cpu", "--repeat=1", *flags, f"--out={out}", "--", *words]
        return run_to_end(argv, out=out, timeout=timeout)

    return call


def log_of(ended):
    return next(ended.out.glob("*/logs/*.log")).read_text()


def test_mxnets_own_speedometer(ensure_image, bench, dlscale):
    flags = ("--batch=16", "--dialect=auto", f"--data={PROGRAMS}")
    done = bench(ensure_image(MXNET), *SPEEDOMETER, "81", flags=flags)
    assert done.code == 0, done.stderr
    (record,) = done.records
    assert record.trial.command == (*SPEEDOMETER, "81")
    assert record.trial.dialect == "mxnet"
    assert record.validity.status in ("valid", "degraded"), record.validity
    # The log by another route: each line covers ten batches of 16.
    speeds = [float(speed) for speed in re.findall(r"Speed: ([\d.]+) samples/sec", log_of(done))]
    assert len(speeds) == 8
    assert record.measurement.samples == 8 * 160
    assert record.measurement.training_time_s == pytest.approx(sum(160 / speed for speed in speeds))
    kept = speeds[record.measurement.steady.first_window :]
    expected = 160 * len(kept) / sum(160 / speed for speed in kept)
    assert record.measurement.throughput.value == pytest.approx(expected)
    assert len(record.measurement.losses["0"]) == 8
    assert f"{MXNET}: python3 /dlscale/data/speedometer.py 81" in done.stdout
    assert "dialect mxnet, batch 16 per device (as asked)" in done.stdout
    assert "samples/s" in done.stdout
    before = (done.out / record.run_id / "record.json").read_bytes()
    assert dlscale("regrade", done.out).stdout.count(": same") == 1
    assert (done.out / record.run_id / "record.json").read_bytes() == before


def test_caffes_own_binary(ensure_image, bench, client):
    flags = ("--dialect=caffe", "--batch=32", f"--data={PROGRAMS}")
    done = bench(ensure_image(CAFFE), "caffe", "train", "--solver=/dlscale/data/solver.prototxt", flags=flags)
    assert done.code == 0, done.stderr
    (record,) = done.records
    assert record.image.id == client.images.get(CAFFE).id
    assert record.image.reference == CAFFE
    # 120 iterations, one line per 10; the first line ends no window, nor does the forward pass after the last iteration.
    assert record.measurement.iterations == 110
    assert record.measurement.samples == 110 * 32
    assert record.measurement.throughput.value > 0
    assert log_of(done).count("iter/s") == 12
    # Constant labels are soon learned.
    assert record.measurement.losses["0"][0] > record.measurement.losses["0"][-1]


def test_a_program_that_writes_the_suites_events(ensure_image, bench):
    done = bench(
        ensure_image(MXNET), "python3", "/dlscale/data/speaks.py", flags=("--dialect=events", f"--data={PROGRAMS}")
    )
    assert done.code == 0, done.stderr
    (record,) = done.records
    assert record.measurement.throughput.value == pytest.approx(640.0)
    assert record.measurement.samples == 320


def test_a_bandwidth_test_is_reported_in_its_own_unit(ensure_image, bench):
    """`cat` prints the log of a real run on two GPUs."""
    log = "nccl-tests-2.10-error-column.log"
    done = bench(ensure_image(MXNET), "cat", f"/dlscale/data/{log}", flags=("--workers=2", f"--data={LOGS}"))
    if "offers 1 cores" in done.stderr:
        pytest.skip("two workers need two cores")
    assert done.code == 0, done.stderr
    assert done.records[0].trial.dialect == "nccl-tests"
    assert "GB/s" in done.stdout
    assert "105.5" in done.stdout


def test_a_log_in_no_known_dialect_fails_and_quotes_its_first_line(ensure_image, bench):
    done = bench(ensure_image(MXNET), "sh", "-c", "echo; echo Hello there; echo and good bye")
    assert done.code == 3
    (record,) = done.records
    assert record.outcome.status == "failed"
    assert record.validity.status == "invalid"
    assert "no line is in any dialect (caffe, mxnet, tf_cnn_benchmarks, horovod, nccl-tests)" in record.outcome.reason
    assert "the first line that was tried: 'Hello there'" in record.outcome.reason
    assert record.outcome.reason in done.stderr
    assert record.trial.dialect == "auto"
    assert log_of(done).splitlines() == ["", "Hello there", "and good bye"]


def test_an_unknown_batch_ends_the_run_at_the_first_line_that_needs_it(ensure_image, bench):
    """Prevents hours of training whose log turns out to need a number that was never requested."""
    done = bench(ensure_image(MXNET), *SPEEDOMETER, "100000000", flags=(f"--data={PROGRAMS}",))
    assert done.code == 3
    assert "give BATCH, the samples a device takes at once" in done.records[0].outcome.reason


def test_a_failed_command_is_reported_with_its_last_line(ensure_image, bench):
    done = bench(ensure_image(MXNET), "python3", "/no/such.py")
    assert done.code == 3
    assert "exit code 2; it last said: python3: can't open file" in done.records[0].outcome.reason
    missing = bench(ensure_image(MXNET), "trian.py")
    assert missing.code == 3
    assert "trian.py: not found" in missing.records[-1].outcome.reason


def test_a_command_is_as_confined_as_every_job(ensure_image, bench):
    probe = "id -u; touch /x 2>&1; touch /dlscale/data/x 2>&1; ls /sys/class/net; grep CapBnd /proc/self/status"
    done = bench(ensure_image(MXNET), "sh", "-c", probe, flags=(f"--data={PROGRAMS}",))
    user, root, data, interfaces, capabilities = log_of(done).splitlines()
    assert user != "0"
    assert "denied" in root or "Read-only" in root
    assert "denied" in data or "Read-only" in data
    assert interfaces == "lo"
    assert capabilities.split() == ["CapBnd:", "0000000000000000"]


def test_a_missing_image_is_refused_and_never_pulled(bench):
    done = bench("dlscale-test/no-such-image:1", "true")
    assert done.code == 2
    assert "type `docker pull dlscale-test/no-such-image:1` there, or `dlscale images load`" in done.stderr
    assert not list(done.out.glob("*"))
    assert bench("NOT A NAME", "true").code == 2


def test_a_dry_run_prints_what_runs_and_starts_nothing(ensure_image, bench):
    flags = ("--batch=16", "--dialect=mxnet", f"--data={PROGRAMS}")
    printed = bench(ensure_image(MXNET), *SPEEDOMETER, "21", flags=(*flags, "--dry-run"))
    assert printed.code == 0
    assert not printed.out.exists()
    ran = bench(ensure_image(MXNET), *SPEEDOMETER, "21", flags=flags).records[0]
    plan = json.loads(next(printed.out.glob("*/plan.json")).read_text())
    lines = [line.replace("RUN1", ran.run_id) for line in printed.stdout.splitlines() if not line.startswith("#")]
    assert plan["command_lines"] == lines
    assert "speedometer.py 21" in lines[0]
    assert "monitor.py" in lines[1]


@pytest.fixture
def no_python(ensure_image, client):
    """The image of MXNet without its Python."""
    recipe = f"FROM {ensure_image(MXNET)}\nUSER root\nRUN rm -f /usr/bin/python3* && ! command -v python3\n"
    image, _ = client.images.build(
        fileobj=io.BytesIO(recipe.encode()), rm=True, forcerm=True, tag="dlscale-test/no-python:1"
    )
    yield "dlscale-test/no-python:1"
    client.images.remove(image.id, force=True)


@pytest.fixture
def no_shell(client):
    """An image that contains one file, and no program."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("empty"), io.BytesIO())
    client.api.import_image_from_data(content.getvalue(), repository="dlscale-test/no-shell", tag="1")
    yield "dlscale-test/no-shell:1"
    client.images.remove("dlscale-test/no-shell:1", force=True)


@pytest.fixture
def hostroot(client):
    """An image with only the links that lead to /usr."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in ("bin", "sbin", "lib", "lib64"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
    client.api.import_image_from_data(content.getvalue(), repository="dlscale-test/hostroot", tag="1")
    yield "dlscale-test/hostroot:1"
    client.images.remove("dlscale-test/hostroot:1", force=True)


def test_a_mounted_usr_runs_in_an_empty_image(bench, hostroot):
    """Use this machine's own shell and Python."""
    if not (Path("/usr/bin/python3").exists() and Path("/lib").is_symlink()):
        pytest.skip("this machine has no Python in /usr, or no merged /usr")
    program = ("python3", "/dlscale/data/speaks.py")
    flags = ("--dialect=events", "--mount=/usr", f"--data={PROGRAMS}")
    done = bench(hostroot, *program, flags=flags)
    assert done.code == 0, done.stderr
    assert done.records[0].measurement.samples == 320
    without = bench(hostroot, *program, flags=(flags[0], flags[2]))
    assert without.code == 3


def test_an_image_without_a_shell_fails_with_the_engines_own_error(bench, no_shell):
    done = bench(no_shell, "/empty")
    assert done.code == 3
    assert "docker would not start dlscale-" in done.records[0].outcome.reason
    assert "/bin/sh" in done.records[0].outcome.reason


def test_a_killed_runner_takes_its_job_along_in_an_image_without_python(start, client, no_python, tmp_path):
    kill_9(start, client, no_python, tmp_path / "out", "sh", "-c", CHATTER)


def test_a_killed_runner_takes_a_job_along_that_ignores_signals_and_has_children(start, client, ensure_image, tmp_path):
    deaf = f"trap '' TERM; setsid sh -c '{CHATTER}' & {CHATTER}"
    kill_9(start, client, ensure_image(MXNET), tmp_path / "out", "sh", "-c", deaf)


def kill_9(start, client, image, out, *words):
    """Prevents orphaned containers that hold devices after their runner was killed."""
    process = start("bench", "--image", image, "--device=cpu", "--repeat=1", f"--out={out}", "--", *words)
    assert wait_until(lambda: any("still here" in path.read_text() for path in out.glob("*/logs/*.log")), 60)
    assert containers_of(client, out)
    process.kill()
    process.wait()
    assert wait_until(lambda: not containers_of(client, out), 15)
    assert not list(out.glob("*/record.json"))
    # Another test's `bench` may clean up too; `nothing_left` checks that somebody did.
    for container in containers_of(client, out, all=True):
        with suppress(docker.errors.APIError):
            container.remove()
