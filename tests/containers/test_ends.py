"""Orphans and lost records: the runner killed or interrupted in mid-run, a disk that fills, a job that fails."""

import json
import signal
import subprocess
import time
from contextlib import suppress

import pytest
from commands import containers_of, running
from waiting import wait_until

LONG = (
    "--framework=mxnet",
    "--device=cpu",
    "--model=lenet",
    "--batch=4",
    "--iterations=100000",
    "--repeat=1",
    "--threads=1",
)


def training(client, out):
    """Whether a training is in its measured windows."""
    return any('"event":"window"' in path.read_text() for path in out.glob("*/events.jsonl"))


@pytest.mark.alone
@pytest.mark.parametrize("workers", [1, 2])
def test_kill_9_of_the_runner_leaves_no_container_running(start, client, dlscale, tmp_path, workers):
    """Orphan containers that hold devices after their runner was killed."""
    process = start("bench", *LONG, f"--workers={workers}", f"--out={tmp_path}")
    assert wait_until(lambda: training(client, tmp_path), 60)
    assert running(client, tmp_path)
    process.kill()
    process.wait()
    assert wait_until(lambda: not running(client, tmp_path), 10)
    assert not list(tmp_path.glob("*/record.json"))
    done = dlscale("clean")
    assert done.code == 0
    assert "removed dlscale-" in done.stdout
    assert client.containers.list(all=True, filters={"label": "dlscale.run-id"}) == []
    assert dlscale("clean").stdout == "nothing to remove\n"


@pytest.mark.alone
def test_clean_leaves_a_run_alone_whose_runner_is_alive(start, client, dlscale, tmp_path):
    """A bench that failed with "killed" because somebody cleaned up beside it."""
    process = start("bench", *LONG, "--workers=1", f"--out={tmp_path}")
    assert wait_until(lambda: training(client, tmp_path), 60)
    before = running(client, tmp_path)
    (run,) = (path.parent.name for path in tmp_path.glob("*/plan.json"))
    done = dlscale("clean")
    assert done.code == 0
    assert f"left {run} as it is: its runner is alive; end that by Ctrl-C" in done.stdout
    assert running(client, tmp_path) == before
    assert process.poll() is None


@pytest.mark.parametrize(
    ("signals", "code"),
    [([signal.SIGINT], 3), ([signal.SIGINT] * 3, 3), ([signal.SIGTERM], 143), ([signal.SIGHUP], 129)],
    ids=["Ctrl-C", "impatient", "timeout", "terminal closed"],
)
def test_a_run_that_is_told_to_end_does_so_in_order_and_leaves_its_record(start, client, tmp_path, signals, code):
    process = start("bench", *LONG, "--workers=1", f"--out={tmp_path}")
    assert wait_until(lambda: training(client, tmp_path), 60)
    for number in signals:
        process.send_signal(number)
        time.sleep(0.3)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == code, stderr
    assert list(containers_of(client, tmp_path, all=True)) == []
    record = json.loads(next(tmp_path.glob("*/record.json")).read_text())
    assert record["outcome"]["status"] == "interrupted"
    assert record["validity"]["status"] == "invalid"
    assert record["measurement"]["samples"] > 0
    assert not list(tmp_path.glob("*/.reserve"))
    assert list(tmp_path.glob("*/telemetry.parquet"))


@pytest.mark.usefixtures("nothing_left")
def test_a_wall_clock_limit_is_a_failed_run(dlscale, tmp_path):
    done = dlscale("bench", *LONG, "--workers=1", "--timeout=12s", out=tmp_path)
    assert done.code == 3
    record = done.records[0]
    assert record.outcome.status == "timeout"
    assert "no end after 12 s" in done.stdout + done.stderr


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "small"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting a small file system needs root: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.usefixtures("nothing_left")
def test_a_disk_that_fills_in_mid_run_leaves_a_record_that_says_so(start, client, small_disk):
    process = start("bench", *LONG, "--workers=1", f"--out={small_disk}")
    assert wait_until(lambda: training(client, small_disk), 60)
    with suppress(OSError):  # the run may have taken some meanwhile
        (small_disk / "filler").write_bytes(b"x" * free_bytes(small_disk))
    _, stderr = process.communicate(timeout=240)
    assert process.returncode == 3, stderr
    assert "Traceback" not in stderr
    records = list(small_disk.glob("*/record.json"))
    if records:
        record = json.loads(records[0].read_text())
        assert record["outcome"]["status"] == "failed"
        assert "No space left on device" in record["outcome"]["reason"]
    else:
        assert "No space left on device" in stderr


def free_bytes(path):
    """Bytes free on a file system, as df counts them."""
    return int(
        subprocess.run(
            ["df", "--output=avail", "-B1", str(path)], capture_output=True, text=True, check=True
        ).stdout.split()[1]
    )
