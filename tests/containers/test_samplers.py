"""Samplers of a run with real containers: they observe this machine during the measured windows; `test_ends.py` checks that they never outlive it.

Prevents: a mean that includes the warm-up, samples that can't be read afterwards, a sampler that costs what it measures.
"""

import os

import pandas as pd
import pytest
from commands import background_commands, samplers
from waiting import wait_until

from runner.commands.regrade import regrade
from runner.results.store import read_plan, read_table

pytestmark = pytest.mark.usefixtures("nothing_left")

TRAINING = (
    *("--framework=mxnet", "--model=lenet", "--image-size=32", "--batch=8", "--warmup=4", "--repeat=1"),
    *("--threads=1", "--device=cpu"),
)


@pytest.fixture(scope="module")
def ended(dlscale, tmp_path_factory):
    out = tmp_path_factory.mktemp("watched")
    done = dlscale("bench", *TRAINING, "--workers=2", "--iterations=200", "-v", out=out, only="scaled")
    assert done.code == 0, done.stderr
    return done


def test_the_host_is_sampled_over_the_steady_windows(ended):
    record = ended.record(2)
    watched, steady = record.telemetry, record.measurement.steady
    counted = [window for window in record.measurement.windows if window.index >= steady.first_window]
    (span,) = watched.spans
    assert span.measured.start == min(window.start for window in counted)
    assert span.measured.end == max(window.start + window.seconds for window in counted)
    assert watched.samples == sum(window.samples for window in counted)
    (host,) = watched.hosts
    assert host.cores == os.cpu_count()
    # Two workers keep two cores busy.
    assert 100 * 2 / host.cores * 0.5 < host.cpu_percent.avg <= 100
    assert host.cpu_percent.min <= host.cpu_percent.avg <= host.cpu_percent.max
    assert host.memory_mib.avg > 100


def test_every_sample_is_in_the_table_and_the_raw_lines_are_removed(ended):
    directory = ended.out / ended.record(2).run_id
    assert sorted(path.suffix for path in directory.glob("telemetry.*")) == [".parquet"]
    samples = pd.DataFrame(read_table(directory, "telemetry"))
    assert set(samples.device) == {"host"}
    assert samples.t.is_monotonic_increasing
    (span,) = ended.record(2).telemetry.spans
    within = samples[(samples.t >= span.measured.start) & (samples.t <= span.measured.end)]
    assert len(within) > 1


def test_unavailable_telemetry_is_reported_with_its_reason(ended):
    missing = ended.record(2).telemetry.missing
    assert {entry.reason for entry in missing if entry.device == "gpu"} == {"no NVIDIA device"}
    assert ended.record(2).telemetry.gpus == ()
    assert "no NVIDIA device" in ended.stdout  # with --verbose


def test_each_container_reports_its_cpu_time_and_memory(ended):
    record = ended.record(2)
    workers = [spec.name for spec in read_plan(ended.out / record.run_id).containers if spec.role == "worker"]
    used = [record.measurement.used[name] for name in workers]
    seconds = record.measurement.training_time_s
    assert 0 < sum(one.cpu_s for one in used) < 3 * seconds  # two workers, without the time before the windows
    assert all(50 < one.memory_mib <= one.memory_peak_mib for one in used)


def test_regrading_gives_the_same_figures(ended):
    old, new = regrade(ended.out / ended.record(2).run_id)
    assert new.telemetry == old.telemetry
    assert new == old


def test_telemetry_can_be_switched_off(dlscale, tmp_path):
    done = dlscale("bench", *TRAINING, "--workers=1", "--iterations=20", "--telemetry-hz=0", out=tmp_path)
    assert done.code == 0, done.stderr
    (record,) = done.records
    assert record.telemetry is None
    assert not list(tmp_path.glob("*/telemetry.*"))


def test_a_killed_sampler_costs_the_run_only_its_samples(tmp_path):
    with background_commands() as begin:
        process = begin("bench", *TRAINING, "--workers=1", "--iterations=100", f"--out={tmp_path}")
        assert wait_until(lambda: list(tmp_path.glob("*/telemetry.jsonl")), 60)
        watching = samplers(process)
        assert watching
        for sampler in watching:
            sampler.kill()
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    (path,) = tmp_path.glob("*/record.json")
    text = path.read_text()
    assert "the sampler" in text
    assert '"status": "ok"' in text
