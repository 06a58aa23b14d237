"""The main job with real containers: the record agrees with the machine, the engine and the programs."""

import json
import platform
import shutil
import subprocess

import psutil
import pytest
from commands import ROOT, as_valid

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(scope="module", params=["mxnet", "pytorch"])
def ended(request, dlscale, tmp_path_factory):
    done = dlscale(
        "bench",
        f"--framework={request.param}",
        "--device=cpu",
        "--workers=1,2",
        out=tmp_path_factory.mktemp(request.param),
    )
    assert done.code == 0, done.stderr
    return done


def test_two_scales_leave_two_valid_records_and_reports(ended):
    assert [record.trial.world_size for record in ended.records] == [1, 2]
    for record in ended.records:
        # On a busy machine, a tiny run may be unsteady but not wrong.
        assert record.validity.status in ("valid", "degraded"), record.validity
        assert record.outcome.status == "ok"
        assert set(record.outcome.exit_codes.values()) == {0}
    name = ended.records[0].matrix_id
    reports = sorted(path for path in ended.out.iterdir() if path.is_file())
    timed = ["-collectives.csv"] if ended.records[1].measurement.collectives else []
    assert [path.name.removeprefix(name) for path in reports] == [*timed, "-power.png", ".csv", ".md", ".png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in reports if path.suffix == ".png")


def test_the_table_and_the_record_are_printed(ended):
    printed = " ".join(ended.stdout.split())
    assert "--repeat=3 gives one" in printed
    assert "2 workers × 1 core" in printed
    assert f"results: {ended.out / ended.records[0].matrix_id}*" in ended.stdout


def test_samples_of_all_ranks_add_up_and_all_ranks_hold_one_model(ended):
    for record in ended.records:
        scale = record.trial.world_size
        assert record.trial.processes == scale
        assert record.trial.global_batch == 4 * scale
        assert record.measurement.samples == record.trial.iterations * record.trial.global_batch == 48
        assert len(record.measurement.parameter_norms) == scale
        norms = list(record.measurement.parameter_norms.values())
        assert max(norms) == pytest.approx(min(norms), rel=1e-6)
        assert {len(curve) for curve in record.measurement.losses.values()} == {2 + record.trial.iterations}


def test_throughput_agrees_with_the_raw_windows(ended):
    """Compare with the raw events by another route: total samples over the span of the slowest rank."""
    record = ended.record(1)
    lines = (ended.out / record.run_id / "events.jsonl").read_text().splitlines()
    windows = [event for event in map(json.loads, lines) if event["event"] == "window"]
    kept = windows[record.measurement.steady.first_window :]
    assert record.measurement.throughput.value == pytest.approx(
        sum(w["samples"] for w in kept) / sum(w["seconds"] for w in kept), rel=1e-3
    )
    assert record.measurement.training_time_s == pytest.approx(sum(w["seconds"] for w in windows), rel=1e-3)


def test_speedup_is_relative_to_the_run_of_the_same_matrix(ended):
    one, two = ended.record(1), ended.record(2)
    assert two.scaling.baseline_run_id == one.run_id
    assert two.scaling.speedup.value == pytest.approx(
        two.measurement.throughput.value / one.measurement.throughput.value
    )
    assert two.scaling.efficiency.value == pytest.approx(two.scaling.speedup.value / 2)
    assert two.scaling.speedup.ci95 is None  # of a single run each


def test_gradients_of_two_workers_cross_the_loopback_of_their_own_network(ended):
    assert ended.record(1).transport.used == "none"
    two = ended.record(2)
    assert two.transport.used == "loopback"
    assert {entry.interface for entry in two.transport.evidence.traffic} == {"lo"}
    # Each step transfers at least one gradient, 4 bytes per parameter.
    assert two.transport.evidence.traffic[0].tx_bytes > two.measurement.parameters * 4 * two.trial.iterations


def test_the_record_agrees_with_the_machine(ended, client):
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    for record in ended.records:
        image = client.images.get(record.image.reference)
        assert record.image.id == image.id
        assert record.image.lock_sha256 == image.labels["dlscale.lock.sha256"]
        assert record.engine == "docker"
        assert record.engine_details.version == client.version()["Version"]
        assert record.provenance.git.commit == commit
        assert record.provenance.host.hostname == platform.node()
        assert record.provenance.host.kernel == platform.release()
        assert record.provenance.host.memory_mib == pytest.approx(psutil.virtual_memory().total / 2**20, abs=2)
        assert record.provenance.host.threads == psutil.cpu_count()
        assert record.provenance.python.startswith("3.11.")
        assert record.provenance.framework == record.trial.framework
        assert record.trial.version.startswith(record.provenance.framework_version.partition("+")[0])
        assert record.provenance.command[-1] == f"--out={ended.out}"


def test_each_rank_measures_the_peak_of_its_cores(ended):
    for record in ended.records:
        lines = (ended.out / record.run_id / "events.jsonl").read_text().splitlines()
        peaks = [event for event in map(json.loads, lines) if event["event"] == "peak"]
        assert [event["rank"] for event in sorted(peaks, key=lambda event: event["rank"])] == [
            *range(record.trial.processes)
        ]
        flop = record.measurement.flop
        assert flop.peak_tflops == pytest.approx(sum(event["flop_per_s"] for event in peaks) / 1e12)
        assert flop.above_peak or 0 < flop.mfu_percent <= 100
        assert record.outcome.phases_s["probe_peak"] < 10


def test_phases_are_recorded_separately_and_fit_into_the_total(ended):
    for record in ended.records:
        phases = record.outcome.phases_s
        assert {"build", "create", "import", "model", "warmup", "measure", "total"} <= set(phases)
        assert phases["import"] + phases["measure"] < phases["total"]
        assert 0 < record.measurement.first_step_s < phases["total"]


def test_regrading_gives_the_same_digits(ended, dlscale):
    before = {path: path.read_bytes() for path in ended.out.glob("*/record.json")}
    done = dlscale("regrade", ended.out)
    assert done.code == 0
    assert done.stdout.count(": same") == len(before) == 2
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_dry_run_prints_what_ran(ended, dlscale):
    framework = ended.records[0].trial.framework
    printed = dlscale("bench", f"--framework={framework}", "--device=cpu", "--workers=1,2", "--dry-run")
    assert printed.code == 0
    commands = [line for line in printed.stdout.splitlines() if not line.startswith("#")]
    ran = []
    for number, record in enumerate(ended.records, start=1):
        plan = json.loads((ended.out / record.run_id / "plan.json").read_text())
        ran += [line.replace(record.run_id, f"RUN{number}") for line in plan["command_lines"]]
    # The rendezvous port is new each time.
    assert [_without_port(line) for line in commands] == [_without_port(line) for line in ran]


def _without_port(line):
    return [word for word in line.split() if not word.startswith(("DMLC_PS_ROOT_PORT=", "--master-port="))]


@pytest.mark.parametrize("ended", ["mxnet"], indirect=True)
@pytest.mark.parametrize("status", ["valid", "degraded"])
def test_a_later_run_of_two_workers_reuses_a_valid_baseline(ended, dlscale, tmp_path, status):
    framework, baseline = ended.records[0].trial.framework, ended.record(1).run_id
    shutil.copytree(ended.out / baseline, tmp_path / baseline)
    as_valid(tmp_path / baseline, status)
    done = dlscale("bench", f"--framework={framework}", "--device=cpu", "--workers=2", out=tmp_path)
    assert done.code == 0, done.stderr
    *baselines, two = done.records
    assert [one.trial.world_size for one in baselines] == [1] * (1 if status == "valid" else 2)
    assert (two.scaling.baseline_run_id == baseline) == (status == "valid")
    assert (f"1-device baseline on file: {baseline}" in done.stderr) == (status == "valid")
