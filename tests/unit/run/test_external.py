"""Prevents benchmarking an external program as if it were the suite's: ignored flags, comparisons of different commands, figures that its log
does not contain, a speedup without a baseline, a job that outlives its runner, records that cannot be read or regraded.
"""

import json
import math
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dialect_logs
import examples
import jsonschema
import pytest
from commands import run_to_end
from records import record

from runner.analysis.grading.grade import scaling
from runner.analysis.summarize import summarize
from runner.cluster.cluster import Cluster
from runner.commands.regrade import regrade
from runner.core.errors import RequestError
from runner.core.events import Loss
from runner.core.log_pattern import LogPattern
from runner.core.node import Member
from runner.core.record import Outcome, RunPlan, Validity
from runner.core.request import Request
from runner.core.trial import ExternalTrial, Trial
from runner.core.wire import NodeWires
from runner.engines import docker_options
from runner.engines.base import DATA
from runner.engines.docker import DockerPlan
from runner.images.custom_image import CustomImage, FoundImage
from runner.plan.discovery import ExternalResources
from runner.plan.engine import EngineChoice
from runner.plan.external import image_label, plan_command
from runner.plan.layout import container
from runner.report import matrix
from runner.results import store
from runner.results.store import RunWriter, baseline_for, named_baseline
from runner.run.grading import grade_external
from runner.run.trial_runner import TrialRunner, readers

LEASE = examples.ROOT / "workloads" / "lease.sh"
OK = Outcome(status="ok", reason=None, exit_codes={"w0": 0}, started=0.0, phases_s={"create": 0.5})
COMMAND = ("python3", "train.py", "--epochs", "2")
IMAGE = FoundImage(reference="corp/net:7", id="sha256:7")
DOCKER = DockerPlan("/suite/workloads")
PATTERN = LogPattern(lines=(r"took (?P<ms>\d+) ms",), unit="tokens")


def request(**changes):
    return Request.model_validate({"image": "corp/net:7", "command": COMMAND, "repeat": 1} | changes)


def resources(node=None, device="cpu", image=IMAGE, data=None):
    node = node or examples.node()
    return ExternalResources(
        cluster=Cluster("here", node.name, (Member(node, NodeWires()),)),
        device=device,
        engine=EngineChoice("docker", None),
        out=Path("/nowhere"),
        image=CustomImage(found=image, framework="", device=device),
        data=data,
    )


def trials(node=None, device="cpu", image=IMAGE, **changes):
    return plan_command(request(**changes), resources(node, device, image, changes.get("data")))


# Requests


def dlscale(*words, env=None):
    return run_to_end(["bench", *words], env=env, timeout=120)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--", "python3", "train.py"], "'python3 train.py' is a command without an image to run it in"),
        (["--engine=host", "--", "python3", "x.py"], "'python3 x.py' is a command without an image to run it in"),
        (["--image=i:1"], "--image i:1 has no command; type `dlscale bench --image i:1 -- COMMAND ...`"),
        (["--dialect=mxnet"], "--dialect reads the log of a command of yours; give --image IMG"),
        (["--image=i:1", "--mount={here}/gone", "--", "x"], "/gone does not exist"),
        (["--image=i:1", "--strategy=ddp", "--framework=mxnet", "--", "x"], "--framework and --strategy apply to"),
        # A flag with the default value would be ignored all the same.
        (["--image=i:1", "--precision=fp32", "--", "x"], "--precision applies to"),
        (["--image=i:1", "--seed=1", "--", "x"], "--seed applies to"),
        (
            ["--image=i:1", "--workers=1,2", "--", "x"],
            "WORKERS=1,2 is a sweep, and the command has no placeholder for the number of devices; write {workers} in it",
        ),
        (["--env=A=1"], "--env sets a variable of a command of yours; give --image IMG"),
        (["--image=i:1", "--env=A", "--", "x"], "ENV=A is not NAME=VALUE; type for example --env OMP_NUM_THREADS=4"),
        (["--image=i:1", "--name=a/b", "--", "x"], "NAME=a/b is not a valid name"),
        (["--image=i:1", "--workdir=here", "--", "x"], "WORKDIR=here is not an absolute path"),
        (["--image=i:1", "--pattern=time (", "--", "x"], "PATTERN=time (: it is not a valid regular expression"),
        (["--image=i:1", "--pattern=(?P<s>x)", "--dialect=caffe", "--", "x"], "--pattern and --dialect caffe both say"),
        (["--image=i:1", "--baseline=r", "--", "x", "{{gpus}}"], "--baseline r is not needed: the command has a"),
        (["--image=i:1", "--engine=venv", "--", "x"], "--image i:1 runs only in a container, and ENGINE=venv is"),
        (["--image=i:1", "--dialect=mxnte", "--batch=1", "--", "x"], "unknown DIALECT 'mxnte'; did you mean mxnet?"),
        (["--image=i:1", "--dialect=mxnet", "--", "x"], "MXNet's log does not state the batch size; give --batch N"),
        (["--image=i:1", "--nodes=2", "--", "x"], "--image runs a command of yours on one host"),
        (
            ["--image=i:1", "--data={here}/gone", "--", "x"],
            f"is not a folder; give the folder to show the command at {DATA}",
        ),
        (["--image=i:1", "--", "x"], "no Docker engine answers"),
    ],
)
def test_each_mistake_is_reported_in_one_sentence_and_starts_nothing(tmp_path, words, says):
    words = [word.format(here=tmp_path) for word in words]
    done = dlscale(f"--out={tmp_path / 'out'}", *words, env={"DOCKER_HOST": "unix:///nowhere.sock"})
    assert done.code == 2, done.stderr
    assert says in done.stderr
    assert done.stderr.startswith("dlscale: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


# Plans


def test_a_trial_holds_the_request_and_nothing_more():
    (trial,) = trials(batch=32, warmup=10)
    asked = {"image": "corp/net:7", "command": COMMAND, "dialect": "auto", "batch_per_device": 32, "warmup": 10}
    here = {"device": "cpu", "world_size": 1, "cpus_per_worker": 2, "data": None, "repeat": 1}
    assert trial == ExternalTrial(**asked, **here, key=trial.key)
    assert [found.repeat for found in trials(repeat=3)] == [1, 2, 3]


def test_only_runs_of_the_same_command_and_image_share_a_key():
    four = examples.gpu_node(4)
    (one,) = trials(four, "gpu")
    rebuilt = IMAGE.model_copy(update={"id": "sha256:8"})
    same = [trials(four, "gpu", gpus=(4,)), trials(four, "gpu", dialect="caffe"), trials(four, "gpu", repeat=2)[1:]]
    other = [
        trials(four, "gpu", command=(*COMMAND, "--fast")),
        trials(four, "gpu", image=rebuilt),
        trials(four, "gpu", batch=64),
        trials(four, "gpu", warmup=5),
        trials(four, "gpu", data=Path("/data/set")),
        trials(four, "cpu"),
        trials(examples.gpu_node(4, name="there"), "gpu"),
    ]
    assert {found.key for (found,) in same} == {one.key}
    assert one.key not in {found.key for (found,) in other}
    # Two CPU workers have half of the cores each, so they are other devices than one worker with all cores.
    assert trials()[0].key != trials(workers=(2,))[0].key


@pytest.mark.parametrize(
    ("device", "changes", "says"),
    [
        ("gpu", {"gpus": (2,)}, "here offers no GPU (no NVIDIA GPU on the PCI bus); ask for DEVICE=cpu"),
        ("cpu", {"workers": (3,)}, "WORKERS=3 asked, here offers 2 cores; ask for 2 or fewer"),
    ],
)
def test_more_devices_than_the_machine_has_are_refused(device, changes, says):
    with pytest.raises(RequestError, match=re.escape(says)):
        trials(device=device, **changes)


def test_a_command_with_a_placeholder_sweeps_scales_and_gets_a_baseline():
    command = ("torchrun", "--nproc_per_node={gpus}", "train.py", "${gpus}", "{}")
    four = trials(examples.gpu_node(4), "gpu", command=command, gpus=(2, 4), repeat=2)
    assert [(one.world_size, one.repeat) for one in four] == [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2)]
    assert four[1].command == ("torchrun", "--nproc_per_node=2", "train.py", "${gpus}", "{}")
    assert len({one.key for one in four}) == 1
    # A worker has the same number of cores at every scale.
    two = trials(examples.node(cores=(0, 1, 2, 3)), command=("x", "{workers}"), workers=(2,))
    assert [(one.world_size, one.cpus_per_worker) for one in two] == [(1, 2), (2, 2)]


def test_name_variables_and_workdir_reach_the_container_and_the_key():
    (trial,) = trials(name="nano gpt", env=(("A", "b c"), ("HOME", "/h")), workdir="/w")
    found = container(trial, resources(), DOCKER, run_id="r")
    assert (found.env["A"], found.env["HOME"], found.workdir, trial.name) == ("b c", "/h", "/w", "nano gpt")
    assert "--workdir /w" in " ".join(docker_options.docker_run(found, None))
    assert docker_options.create_options(found, None)["working_dir"] == "/w"
    # A name does not change the key; a variable does.
    assert trial.key == trials(env=(("HOME", "/h"), ("A", "b c")), workdir="/w")[0].key
    more = {"lines": PATTERN.lines, "unit": "images"}
    others = ({}, {"env": (("A", "1"),)}, {"workdir": "/w"}, {"pattern": PATTERN}, {"pattern": LogPattern(**more)})
    assert len({trials(**one)[0].key for one in others}) == len(others)


@pytest.mark.parametrize(
    ("command", "changes", "batch"),
    [
        (("x", "--batch-size", "64"), {"pattern": PATTERN}, 64),
        (("x", "-b", "64"), {"pattern": PATTERN, "workers": (2,)}, 64),
        (("x", "--batch-size", "64"), {"pattern": PATTERN, "batch": 32}, 32),
        (("x", "--batch-size", "64"), {"dialect": "mxnet"}, 64),
        (("x", "--batch-size", "64"), {}, 64),
        # MXNet's programs divide their batch among devices, and `-b` of nccl-tests is in bytes.
        (("x", "--batch-size", "64"), {"workers": (2,)}, None),
        (("all_reduce_perf", "-b", "8"), {}, None),
        (("x", "--batch-size", "64"), {"dialect": "horovod"}, None),
    ],
)
def test_the_batch_is_read_from_the_command_and_reported(command, changes, batch):
    said = []
    found = plan_command(request(command=command, **changes), resources(), say=said.append)
    assert found[0].batch_per_device == batch
    stated = (
        f"batch 64 a device, from `{' '.join(command[1:])}` in the command; --batch N or --scaling strong overrides it"
    )
    assert said == ([stated] if batch == 64 else [])


def test_a_named_run_is_the_baseline(tmp_path):
    one, _, graded = logged("mxnet-1.9.1.log", "mxnet", batch=16)
    (tmp_path / "base").mkdir()
    store.write_record(tmp_path / "base", recorded(one, graded, "base"))
    found = named_baseline(tmp_path / "base", out=tmp_path, device="gpu")
    on = replace(resources(examples.gpu_node(8), "gpu"), baseline=found)
    (two,) = plan_command(request(gpus=(2,), command=("other",)), on)
    assert two.key == one.key
    assert baseline_for(two, [found]) == found
    with pytest.raises(RequestError, match="is degraded on 1 gpu; name a run on one cpu"):
        named_baseline(tmp_path / "base", out=tmp_path, device="cpu")
    with pytest.raises(RequestError, match="is not in .*/elsewhere, where the new runs go; give --out"):
        named_baseline(tmp_path / "base", out=tmp_path / "elsewhere", device="gpu")


def sweep(monkeypatch, out, asked, named=None):
    """Run a request with the runs in `out` on file; return the started scales, each with its baseline's id, and the ids of all runs."""
    started = []

    def ran(_, trial, shown, baseline):
        started.append((trial.world_size, baseline.run_id if baseline else None))
        graded = grade_external(trial, outcome=OK, events=logged("mxnet-1.9.1.log", "mxnet", batch=16)[1])
        return out / f"{trial.world_size}", recorded(trial, graded, f"ran-on-{trial.world_size}")

    monkeypatch.setattr(TrialRunner, "_launch", lambda _, trial: trial)
    monkeypatch.setattr(TrialRunner, "_run", ran)
    on = replace(resources(examples.gpu_node(8), "gpu"), out=out, baseline=named)
    prepared = SimpleNamespace(image_used=None)
    shown = SimpleNamespace(stage=lambda _: None, begin=lambda *_: "")
    runner = TrialRunner(asked, on, prepared, shown, (), "n", lambda _, __: None)
    return started, [record.run_id for _, record in runner.run_all(plan_command(asked, on))]


def test_a_sweep_runs_its_baseline_or_takes_it_from_file(monkeypatch, tmp_path):
    asked = request(command=("x", "{gpus}"), gpus=(2,))
    started, runs = sweep(monkeypatch, tmp_path, asked)
    assert (started, runs) == ([(1, None), (2, "ran-on-1")], ["ran-on-1", "ran-on-2"])
    # A valid baseline on file is not run again.
    one = plan_command(asked, resources(examples.gpu_node(8), "gpu"))[0]
    _, _, graded = logged("mxnet-1.9.1.log", "mxnet", batch=16)
    kept = recorded(one, replace(graded, validity=Validity(status="valid", reasons=())), "kept")
    (tmp_path / "kept").mkdir()
    store.write_record(tmp_path / "kept", kept)
    assert sweep(monkeypatch, tmp_path, asked) == ([(2, "kept")], ["kept", "ran-on-2"])


def test_a_named_baseline_takes_precedence_over_one_on_file(monkeypatch, tmp_path):
    asked = request(gpus=(2,))
    assert sweep(monkeypatch, tmp_path, asked) == ([(2, None)], ["ran-on-2"])
    one, _, graded = logged("mxnet-1.9.1.log", "mxnet", batch=16)
    named = (tmp_path / "base", recorded(one, graded, "base"))
    assert sweep(monkeypatch, tmp_path, asked, named) == ([(2, "base")], ["base", "ran-on-2"])


def test_the_container_is_as_confined_as_every_job_and_runs_under_the_shell_lease():
    node = examples.gpu_node(4)
    vendor = IMAGE.model_copy(update={"entrypoint": ("/opt/vendor/entrypoint.sh",)})
    (trial,) = trials(node, "gpu", gpus=(2,))
    found = container(trial, resources(node, "gpu", vendor, Path("/data/set")), DOCKER, run_id="run-1")
    assert " ".join(docker_options.docker_run(found, "nvidia")) == (
        "docker run --interactive --name dlscale-run-1-worker0 --user 10001:10001 --network none --rm --read-only --cap-drop ALL "
        "--security-opt no-new-privileges --tmpfs /tmp:rw,exec,nosuid,nodev,mode=1777,size=1024m --shm-size 1024m "
        "--pids-limit 8192 --ulimit core=0:0 --log-driver none --cpuset-cpus 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15 "
        '--memory 7168m --gpus "device=0,1" --mount type=bind,source=/suite/workloads,target=/dlscale/workloads,readonly '
        "--mount type=bind,source=/data/set,target=/dlscale/data,readonly "
        "--label dlscale.role=worker --label dlscale.run-id=run-1 --env HOME=/tmp --env PYTHONDONTWRITEBYTECODE=1 "
        "--env PYTHONUNBUFFERED=1 --env USER=bench --entrypoint /bin/sh corp/net:7 /dlscale/workloads/lease.sh "
        "/opt/vendor/entrypoint.sh python3 train.py --epochs 2"
    )


def test_cpu_workers_get_their_share_of_the_cores():
    eight = examples.node(cores=tuple(range(8)))
    (three,) = trials(eight, workers=(3,))
    assert container(three, resources(eight), DOCKER, run_id="r").cpus == (0, 1, 2, 3, 4, 5)
    (one,) = trials(eight)
    assert container(one, resources(eight), DOCKER, run_id="r").cpus == tuple(range(8))


def test_an_images_label_is_valid_in_container_names():
    assert image_label("nvcr.io/a/net:1@sha256:0") == "net-1-sha256-0"
    assert len(image_label(f"a:{'t' * 128}")) <= 60


# Figures from the log


def logged(name, dialect, **changes):
    """The trial of a program that wrote this log, its events, and their grades."""
    (trial,) = trials(examples.gpu_node(8), "gpu", dialect=dialect, **changes)
    events = dialect_logs.read(
        dialect, dialect_logs.text(name), devices=trial.world_size, batch_per_device=trial.batch_per_device
    )
    return trial, events, grade_external(trial, outcome=OK, events=events)


def test_throughput_is_samples_over_seconds_in_the_logs_unit_and_no_wire_is_guessed():
    _, _, found = logged("mxnet-1.9.1.log", "mxnet", batch=16)
    assert found.measurement.throughput.unit == "samples/s"
    # Eight lines of 20 batches of 16: 320 samples each, in 320 ÷ speed seconds.
    speeds = [9027.35, 11697.76, 12359.13, 12382.05, 10215.68, 12380.34, 12431.48, 9524.86]
    assert found.measurement.samples == 8 * 320
    assert found.measurement.training_time_s == pytest.approx(sum(320 / speed for speed in speeds))
    assert found.measurement.parameters is None
    assert set(found.measurement.parameter_norms.values()) == {None}
    assert found.transport.used == "none"


def test_a_pattern_reads_a_log_in_its_own_unit():
    (trial,) = trials(pattern=PATTERN, command=("x", "-b", "8"), repeat=1)
    (reader,) = readers(trial, [container(trial, resources(), DOCKER, run_id="r")]).values()
    events = [event for ms in (5, 5, 5, 5) for event in reader.feed(f"took {ms} ms", received=0.0)]
    found = grade_external(trial, outcome=OK, events=[*events, *reader.close(received=1.0)])
    assert found.measurement.throughput.unit == "tokens/s"
    assert found.measurement.throughput.value == pytest.approx(8 / 0.005)
    assert found.validity.status == "valid"
    setting = summarize([(Path("a"), recorded(trial, found))]).setting
    assert setting == "log read by a pattern, batch 8 per device (as asked)"


def graded_sweep(scale, line="", **asked):
    """Grade a run whose log says 5 ms per step, whatever its number of workers."""
    pattern = LogPattern(lines=(r"took (?P<ms>\d+) ms", r"world (?P<devices>\d+)", r"rank (?P<rank>\d+)"))
    asked = {"pattern": pattern, "command": ("x", "{workers}"), "batch": 8, "workers": (2,)} | asked
    trial = trials(**asked)[scale - 1]
    (reader,) = readers(trial, [container(trial, resources(), DOCKER, run_id="r")]).values()
    events = [event for text in (*line.splitlines(), *["took 5 ms"] * 5) for event in reader.feed(text, received=0.0)]
    return trial, grade_external(trial, outcome=OK, events=[*events, *reader.close(received=1.0)])


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("", "degraded"),
        ("world 2", "valid"),
        ("rank 0\nrank 1", "valid"),
        ("[1,0]<stdout>:a\n[1,1]<stdout>:b", "valid"),
    ],
)
def test_a_run_on_several_devices_is_valid_only_if_its_log_shows_them(line, status):
    """Otherwise a command that ignores its number of workers is valid, with a speedup of 2.000 and an efficiency of 100 %."""
    _, found = graded_sweep(2, line)
    assert found.validity.status == status
    assert ("2 CPU workers" in "".join(found.validity.reasons)) == (status == "degraded")
    assert graded_sweep(1)[1].validity.status == "valid"


def test_with_strong_scaling_the_batch_is_the_total_of_all_devices():
    one, alone = graded_sweep(1, scaling="strong")
    two, shared = graded_sweep(2, scaling="strong")
    assert one.key == two.key != graded_sweep(2)[0].key
    assert scaling(two, "two", shared, recorded(one, alone)).speedup.value == pytest.approx(1.0)
    assert summarize([(Path("a"), recorded(two, shared))]).setting.endswith("batch 8 of all devices (as asked)")
    with pytest.raises(RequestError, match="SCALING=strong asked, and batch 9"):
        graded_sweep(2, scaling="strong", batch=9)


def test_a_bandwidth_test_has_a_bandwidth_and_no_training():
    _, _, found = logged("nccl-tests-2.10-error-column.log", "nccl-tests", gpus=(2,))
    assert found.measurement.throughput.model_dump() == {"value": 105.46, "ci95": None, "unit": "GB/s"}
    assert found.measurement.training_time_s is None
    assert found.measurement.windows == ()
    assert (found.validity.status, found.transport.used) == ("valid", "unknown")


def test_a_run_is_judged_by_what_its_log_can_show():
    trial, events, found = logged("mxnet-1.9.1.log", "mxnet", batch=16)
    assert len(found.measurement.losses["0"]) == 8
    broken = [e.model_copy(update={"values": (None,)}) if isinstance(e, Loss) else e for e in events]
    assert reasons(trial, broken) == "a loss in the log is not finite; a smaller learning rate may train"
    assert reasons(trial, []) == "the log tells how long nothing took"
    failed = OK.model_copy(update={"status": "failed", "reason": "w0: exit code 1"})
    assert reasons(trial, events, failed) == "the run failed: w0: exit code 1"


def reasons(trial, events, outcome=OK):
    found = grade_external(trial, outcome=outcome, events=events).validity
    assert found.status == "invalid"
    return "; ".join(found.reasons)


def test_too_few_windows_are_not_steady():
    trial, events, _ = logged("mxnet-1.9.1.log", "mxnet", batch=16)
    for windows, said in ((3, "3 windows were"), (1, "1 window was")):
        some = [event for event in events if event.event != "window" or event.index < windows]
        found = grade_external(trial, outcome=OK, events=some).validity
        assert found.status == "degraded"
        assert found.reasons == (f"{said} timed; whether the rate settled takes 4",)


# Records and reports


def recorded(trial, graded, name="run-1", baseline=None):
    parts = {part: getattr(graded, part) for part in ("outcome", "measurement", "transport", "validity")}
    against = scaling(trial, name, graded, baseline)
    return record(run_id=name).model_copy(update={"trial": trial, "scaling": against, **parts})


def test_a_record_states_which_kind_of_program_ran(tmp_path):
    trial, _, graded = logged("mxnet-1.9.1.log", "mxnet", batch=16)
    store.write_record(tmp_path, recorded(trial, graded))
    found = store.read_record(tmp_path)
    assert found.trial == trial
    fields = json.loads((tmp_path / "record.json").read_text())
    jsonschema.validate(fields, json.loads(store.record_schema()))
    store.write_record(tmp_path, record())
    assert isinstance(store.read_record(tmp_path).trial, Trial)


def test_regrading_reproduces_the_record(tmp_path):
    trial, events, graded = logged("nccl-tests-2.10-error-column.log", "nccl-tests", gpus=(2,))
    writer = RunWriter(tmp_path / "run-1")
    writer.create(RunPlan(run_id="run-1", trial=trial, containers=(), command_lines=()))
    for event in events:
        writer.event(event)
    writer.finish(recorded(trial, graded))
    old, new = regrade(tmp_path / "run-1")
    assert new.model_dump_json(by_alias=True) == old.model_dump_json(by_alias=True)


def test_a_speedup_needs_a_baseline_of_the_same_command():
    one, events, graded = logged("mxnet-1.9.1.log", "mxnet", batch=16)
    base = recorded(one, graded)
    two = one.model_copy(update={"world_size": 2})
    double = [e.model_copy(update={"samples": 2 * e.samples}) if e.event == "window" else e for e in events]
    faster = grade_external(two, outcome=OK, events=double)
    assert baseline_for(two, [(Path("a"), base)]) == (Path("a"), base)
    assert scaling(two, "two", faster, base).speedup.value == pytest.approx(2.0)
    other = recorded(one.model_copy(update={"key": "f" * 16}), graded)
    assert baseline_for(two, [(Path("a"), other)]) is None
    found = summarize([(Path("a"), recorded(two, faster))])
    assert found.rows[0].speedup is None
    assert "- 2 GPUs: no baseline, this command has no run on one device on file" in matrix.markdown(found)


def test_the_table_names_the_command_and_how_its_log_was_read():
    long = ("mpirun", *(word for n in range(40) for word in ("-x", f"VARIABLE_{n}")))
    (trial,) = trials(batch=32, warmup=5, dialect="caffe", command=long)
    graded = grade_external(trial, outcome=OK, events=[])
    found = summarize([(Path("a"), recorded(trial, graded))])
    assert found.title == "corp/net:7: mpirun -x VARIABLE_0 -x VARIABLE_1 -x VARIABLE_2 -x ..."
    assert found.setting == "dialect caffe, batch 32 per device (as asked), without the first 5 iterations"
    (plain,) = trials()
    assert summarize([(Path("a"), recorded(plain, graded))]).setting == "dialect auto"


def test_repeats_of_a_bandwidth_test_are_pooled_by_the_harmonic_mean():
    trial, _, graded = logged("nccl-tests-2.10-error-column.log", "nccl-tests", gpus=(2,))

    def run(value):
        throughput = graded.measurement.throughput.model_copy(update={"value": value})
        measurement = graded.measurement.model_copy(update={"throughput": throughput})
        return recorded(trial, graded).model_copy(update={"measurement": measurement})

    alone = summarize([(Path("a"), run(100.0))]).rows[0]
    assert (alone.throughput, alone.throughput_ci95, alone.training_time_s) == (pytest.approx(100.0), None, None)
    # The same bytes at 100 and at 300 GB/s: 2 ÷ (1/100 + 1/300).
    both = summarize([(Path("a"), run(100.0)), (Path("b"), run(300.0))]).rows[0]
    assert (both.throughput, both.throughput_ci95, both.unit, both.speedup) == (pytest.approx(150), None, "GB/s", None)
    # The logarithms of 100, 110 and 121 GB/s are ln 1.1 apart: t(2) × ln 1.1 ÷ sqrt(3).
    three = summarize([(Path(str(rate)), run(rate)) for rate in (100.0, 110.0, 121.0)]).rows[0]
    assert three.throughput == pytest.approx(3 / (1 / 100 + 1 / 110 + 1 / 121))
    assert three.throughput_ci95.high / three.throughput == pytest.approx(
        math.exp(4.30265 * math.log(1.1) / math.sqrt(3))
    )


# The shell's lease


@pytest.fixture(params=["dash", "bash"])
def shell(request, tmp_path):
    """Debian's and Red Hat's `/bin/sh`."""
    found = shutil.which(request.param)
    if found is None:
        pytest.skip(f"{request.param} is not installed")
    (tmp_path / "sh").symlink_to(found)
    return tmp_path / "sh"


@pytest.fixture
def leased(shell):
    """Start programs under the lease; the test holds the other end of their standard input."""
    started = []

    def start(*argv):
        process = subprocess.Popen(
            [shell, LEASE, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.stdin.close()
        process.wait(20)


UP = "import os, signal, sys, time; signal.signal(15, {handler}); print('up', flush=True); time.sleep(300)"


def test_the_exit_code_is_that_of_the_program(leased):
    assert leased("sh", "-c", "exit 7").wait(20) == 7
    assert leased("sh", "-c", "kill -9 $$").wait(20) == 137
    missing = leased("no-such-program", "x")
    assert missing.wait(20) == 127
    assert "no-such-program: " in missing.stderr.read()


def test_arguments_and_output_pass_unmodified_and_stdin_is_empty(leased):
    program = "import sys; print(sys.argv[1:], repr(sys.stdin.read())); print('err', file=sys.stderr)"
    process = leased(sys.executable, "-c", program, "a b", "$HOME", "*")
    assert process.wait(20) == 0
    assert process.stdout.read() == "['a b', '$HOME', '*'] ''\n"
    assert process.stderr.read() == "err\n"


@pytest.mark.parametrize(
    ("handler", "says"),
    [("lambda *_: (os.write(1, b'told\\n'), sys.exit())", "told\n"), ("signal.SIG_IGN", "")],
    ids=["listens", "is killed"],
)
def test_the_program_is_terminated_when_the_lease_stdin_closes(leased, handler, says):
    process = leased(sys.executable, "-c", UP.format(handler=handler))
    assert process.stdout.readline() == "up\n"
    process.stdin.close()
    assert process.wait(20) == 143
    assert process.stdout.read() == says  # reads until the end: no process holds the pipe any more


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_lease_terminates_the_program(leased, number):
    process = leased(sys.executable, "-c", UP.format(handler="signal.SIG_DFL"))
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    assert process.wait(20) == 143
