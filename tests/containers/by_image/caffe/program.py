"""Inside the image: the training program runs Caffe from its first iteration to its last, and exits like Caffe.

Prevents an edge of a window without a line in Caffe's log, a log altered on its way, milestones in the wrong order,
a norm that includes statistics or synthetic images, a failure of Caffe that looks like success, a Caffe that keeps training
after its program was stopped.
"""

import json
import math
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import caffe
import data_caffe
import numpy as np
from models_caffe import Net, extend
from snapshot_caffe import parameter_norm

PROGRAM = Path(__file__).parents[4] / "workloads/imagenet_cnn/train_caffe.py"
PREFIX = "::dlscale:: "


FLAGS = (
    "--model=lenet --image-size=32 --num-classes=10 --batch=8 --iterations=10 --warmup=4 --window=4 --precision=fp32 --device=cpu "
    "--devices=1 --strategy=single --data=synthetic --learning-rate=0.001 --momentum=0.9 --weight-decay=0.0001 --seed=1 "
    "--threads=1 --cpus-per-worker=1 --loader-workers=0"
)


def command(**flags):
    """The command of the small run above, with some flags changed: the last of duplicate flags wins."""
    changed = [f"--{name}={value}" for name, value in flags.items()]
    return [sys.executable, str(PROGRAM), *FLAGS.split(), *changed]


def run(**flags):
    done = subprocess.run(command(**flags), capture_output=True, check=False)
    events = [json.loads(line[len(PREFIX) :]) for line in done.stdout.decode().splitlines() if line.startswith(PREFIX)]
    return done.returncode, events, done.stderr.decode()


def start_endless_run(**streams):
    """Start an endless run and wait until it measures: its process, and the status file of Caffe's process."""
    process = subprocess.Popen(command(iterations=1000000), stdout=subprocess.PIPE, **streams)
    for line in process.stdout:
        if b"warmup_end" in line:
            break
    (caffe_pid,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return process, Path(f"/proc/{caffe_pid}/status")


# A complete run: windows of 4 have edges at 4, 8, 12 and 14, so Caffe logs every second iteration.
code, events, log = run()
assert code == 0, log
names = [event["event"] for event in events]
start = ["phase", "env", "run_start", "phase", "first_step", "warmup_end"]
assert names == [*start, "net", "usage", "net", "usage", "run_stop"], names
by_name = {event["event"]: event for event in events}
assert by_name["env"]["framework_version"] == "1.0.0"
assert by_name["run_start"]["global_batch"] == 8
# 20 x 3 x 25 + 20, 50 x 20 x 25 + 50, 500 x 50 x 25 + 500, 10 x 500 + 10
assert by_name["run_start"]["parameters"] == 1520 + 25050 + 625500 + 5010
assert by_name["run_stop"]["samples"] == 80
# He's initialization for convolutions and 0.01 for the rest: 2 / 75 x 1500 + 2 / 500 x 25000 + 0.0001 x 630000 = 203.
assert math.isclose(by_name["run_stop"]["parameter_norm"], math.sqrt(203), rel_tol=0.05)
lines = re.findall(r"^I.*\] Iteration (\d+) \((?:\S+) iter/s, \S+s/2 iters\), loss = (\S+)$", log, flags=re.MULTILINE)
assert [int(number) for number, _ in lines] == [0, 2, 4, 6, 8, 10, 12, 14], log
assert abs(float(lines[0][1]) - math.log(10)) < 0.5
assert all(math.isfinite(float(loss)) for _, loss in lines)
assert log.count("Optimization Done.") == 2
assert not list(Path(tempfile.gettempdir()).glob("dlscale-caffe-*")), "definitions are left behind"

# A failure of Caffe is a failure of its program: an invalid data set.
with tempfile.TemporaryDirectory() as folder:
    broken = Path(folder) / "broken.lmdb"
    broken.mkdir()
    (broken / "data.mdb").write_bytes(b"no database" * 1000)
    index = {"classes": ["one", "two"], "images": 100, "skipped": [], "size": 37}
    broken.with_suffix(".json").write_text(json.dumps(index))
    code, events, log = run(data=broken)
    assert code == 128 + signal.SIGABRT, (code, log)
    assert "MDB_INVALID" in log
    assert events[-1]["event"] == "run_start"

# When terminated, it ends Caffe.
process, status = start_endless_run(stderr=subprocess.PIPE)
process.terminate()
while process.stderr.read(65536):
    pass
assert process.wait(timeout=30) == 128 + signal.SIGTERM
assert not status.exists()

# When killed, it takes Caffe along.
process, status = start_endless_run(stderr=subprocess.DEVNULL)
process.kill()
process.wait(timeout=30)
deadline = time.monotonic() + 30
while status.exists() and "State:\tZ" not in status.read_text() and time.monotonic() < deadline:
    time.sleep(0.05)
assert not status.exists() or "State:\tZ" in status.read_text(), "Caffe trains on"

# Impossible requests are refused in one line before anything starts.
for flags in (
    {"devices": 2},
    {"strategy": "caffe"},
    {"strategy": "ddp"},
    {"precision": "bf16"},
    {"model": "inception-v3"},
    {"data": "/nowhere"},
    {"device": "gpu", "precision": "fp16"},
):
    code, events, log = run(**flags)
    assert code == 2, (flags, log)
    assert log.count("\n") == 1, (flags, log)
    assert not [event for event in events if event["event"] == "run_start"]

# The norm of a snapshot, compared with Caffe's own blobs.
net = Net("norm", nvidia=False)
data_caffe.synthetic(net, batch=2, image_size=32, num_classes=10, seed=1)
extend(net, "resnet18", 32, 10)
with tempfile.TemporaryDirectory() as folder:
    definition, weights = Path(folder) / "net.prototxt", Path(folder) / "weights.caffemodel"
    definition.write_text(net.text())
    built = caffe.Net(str(definition), caffe.TRAIN)
    built.forward()
    built.save(str(weights))
    trained = [blob.data for layer in built.layers if layer.type not in {"Bias", "BatchNorm"} for blob in layer.blobs]
    expected = math.sqrt(sum(float(np.square(blob, dtype=np.float64).sum()) for blob in trained))
    assert math.isclose(parameter_norm(weights), expected, rel_tol=1e-9)
