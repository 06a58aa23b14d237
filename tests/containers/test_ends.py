"""Orphans and lost records: a runner killed or interrupted in mid-run, samplers that outlive it, a disk that fills up, a job that fails."""

import json
import signal
import time

import pytest
from commands import containers_of, running, samplers
from disks import fill
from waiting import wait_until

LONG = (
    *("--framework=mxnet", "--device=cpu", "--model=lenet", "--batch=4", "--iterations=100000", "--repeat=1"),
    "--threads=1",
)


def training(client, out):
    """Whether a training is in its measured windows."""
    return any('"event":"window"' in path.read_text() for path in out.glob("*/events.jsonl"))


@pytest.mark.alone
def test_clean_spares_a_live_run_and_kill_9_of_its_runner_leaves_nothing(start, client, dlscale, tmp_path):
    """Prevents: a bench that fails with "killed" because somebody runs clean at the same time; orphaned containers that hold devices after their
    runner was killed, and exited ones that nobody removes; a sampler that never exits."""
    process = start("bench", *LONG, "--workers=1", f"--out={tmp_path}")
    assert wait_until(lambda: training(client, tmp_path), 60)
    before, watching = running(client, tmp_path), samplers(process)
    assert before
    assert watching
    (run,) = (path.parent.name for path in tmp_path.glob("*/plan.json"))
    done = dlscale("clean")
    assert done.code == 0
    assert f"left {run} as it is: its runner is alive; end that by Ctrl-C" in done.stdout
    assert running(client, tmp_path) == before
    assert process.poll() is None
    process.kill()
    process.wait()
    assert wait_until(lambda: not containers_of(client, tmp_path, all=True), 60)
    assert wait_until(lambda: not any(sampler.is_running() for sampler in watching), 10)
    assert not list(tmp_path.glob("*/record.json"))
    assert list(tmp_path.rglob(".*")) == []
    assert client.containers.list(all=True, filters={"label": "dlscale.run-id"}) == []
    assert dlscale("clean").stdout == "nothing to remove\n"


@pytest.mark.parametrize(
    ("signals", "code"),
    [([signal.SIGINT] * 3, 3), ([signal.SIGTERM], 143), ([signal.SIGHUP], 129)],
    ids=["impatient", "timeout", "terminal closed"],
)
def test_a_signalled_run_ends_in_order_and_leaves_its_record(start, client, tmp_path, signals, code):
    process = start("bench", *LONG, "--workers=1", f"--out={tmp_path}")
    assert wait_until(lambda: training(client, tmp_path), 60)
    watching = samplers(process)
    assert watching
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
    assert wait_until(lambda: not any(sampler.is_running() for sampler in watching), 10)


@pytest.mark.usefixtures("nothing_left")
def test_a_wall_clock_limit_is_a_failed_run(dlscale, tmp_path):
    done = dlscale("bench", *LONG, "--workers=1", "--timeout=12s", out=tmp_path)
    assert done.code == 3
    record = done.records[0]
    assert record.outcome.status == "timeout"
    assert "no end after 12 s" in done.stdout + done.stderr


TRAINS = (*LONG, "--workers=1")
# Writes nothing after its start.
SLEEPS = (
    "--image=dlscale/mxnet:1.9.1",
    "--device=cpu",
    "--telemetry-hz=0",
    "--repeat=1",
    "--",
    "sh",
    "-c",
    "echo asleep; sleep 600",
)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("job", [(TRAINS, '"event":"window"'), (SLEEPS, "asleep")], ids=["busy", "silent"])
def test_a_full_disk_ends_the_run_immediately_and_is_named(start, ensure_image, dlscale, small_disk, job):
    """Once, a run noticed after 97 s, or never if it wrote nothing, and left half a line and a `.probe`."""
    words, begun = job
    ensure_image("dlscale/mxnet:1.9.1")
    process = start("bench", f"--out={small_disk}", *words)
    assert wait_until(lambda: begun in "".join(path.read_text() for path in raw_files(small_disk)), 120)
    fill(small_disk)
    _, stderr = process.communicate(timeout=240)
    assert process.returncode == 3, stderr
    assert "Traceback" not in stderr
    (run,) = (path.parent for path in small_disk.glob("*/plan.json"))
    why = f"{run}: can't be written (No space left on device); free some space or choose another OUT=DIR"
    assert why in stderr
    if (run / "record.json").exists():
        outcome = json.loads((run / "record.json").read_text())["outcome"]
        assert (outcome["status"], why in outcome["reason"]) == ("failed", True)
    (small_disk / "filler").unlink()
    assert not list(small_disk.glob("*/record.json")) or dlscale("regrade", small_disk).code == 0
    for path in raw_files(small_disk):
        assert path.read_text().endswith("\n")
    assert list(small_disk.rglob(".*")) == []


def raw_files(out):
    """Files of a folder's runs that are written line by line."""
    return [*out.glob("*/*.jsonl"), *out.glob("*/logs/*.log")]
