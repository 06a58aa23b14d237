"""Inside the image: one device with a batch of 2b and two with b each train the same network on the same samples, by every strategy.

Prevents gradients that are summed or not averaged at all, a replica that trains on another's samples, weights that start or drift
apart, a shared batch on which ranks of one model disagree, XLA that computes something else, workers that end badly because the first left
early.
"""

import importlib.util
import itertools
import json
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

WORKLOADS = Path(__file__).parents[4] / "workloads"
MARK = "::dlscale:: "
BATCH, WARMUP, ITERATIONS = 4, 2, 18
FLAGS = f"""
    --model=lenet --image-size=32 --num-classes=10 --iterations={ITERATIONS} --warmup={WARMUP} --window=6 --precision=fp32 --device=cpu
    --data=synthetic --learning-rate=0.001 --momentum=0.9 --weight-decay=0.0001 --seed=1 --threads=1 --cpus-per-worker=0
    --loader-workers=1
""".split()


def free_ports(count):
    """Ports of the loopback that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def train(strategy, batch, *options: str, devices=1, launcher=()):
    """Run the training program: the events of all its ranks."""
    flags = [*FLAGS, f"--strategy={strategy}", f"--batch={batch}", f"--devices={devices}", *options]
    program = [sys.executable, WORKLOADS / "imagenet_cnn/train_tensorflow.py", *flags]
    done = subprocess.run([*launcher, *program], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, f"{strategy}: exit code {done.returncode}\n{done.stderr}"
    lines = (line[line.index(MARK) + len(MARK) :] for line in done.stdout.splitlines() if MARK in line)
    return [json.loads(line) for line in lines]


def curve(events):
    """Loss of each iteration, mean over the ranks."""
    ranks = sorted({event["rank"] for event in events})
    losses = {rank: [] for rank in ranks}
    for event in events:
        if event["event"] == "loss":
            losses[event["rank"]] += event["values"]
    return np.mean([losses[rank] for rank in ranks], axis=0)


def agree(events, *, name, processes):
    """Two replicas of one model: equal losses on the shared batch, equal weights; together they trained on every sample."""
    by_name = {key: [event for event in events if event["event"] == key] for key in ("run_start", "eval", "run_stop")}
    assert [event["world_size"] for event in by_name["run_start"]] == [2] * processes, name
    assert [event["global_batch"] for event in by_name["run_start"]] == [2 * BATCH] * processes, name
    assert sum(event["samples"] for event in by_name["run_stop"]) == ITERATIONS * 2 * BATCH, name
    for iteration in (WARMUP, WARMUP + ITERATIONS):
        losses = [event["losses"] for event in by_name["eval"] if event["iteration"] == iteration]
        flat = list(itertools.chain(*losses))
        assert len(flat) == 2, f"{name}: {losses}"
        np.testing.assert_allclose(flat[0], flat[1], rtol=1e-6, err_msg=name)
    norms = [event["parameter_norm"] for event in by_name["run_stop"]]
    np.testing.assert_allclose(norms, norms[0], rtol=1e-9, err_msg=name)


expected = curve(train("single", 2 * BATCH))
assert len(expected) == WARMUP + ITERATIONS
assert expected[-1] < 0.8 * expected[0], f"the losses do not go down: {expected}"
cluster = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
workers = [sys.executable, WORKLOADS / "tf_workers.py", f"--cluster={cluster}", "--first=0", "--count=2"]
runs = {
    "mirrored": (1, train("mirrored", BATCH, devices=2)),
    "mirrored with XLA": (1, train("mirrored", BATCH, "--xla", devices=2)),
    "multiworker": (2, train("multiworker", BATCH, launcher=workers)),
}
if importlib.util.find_spec("horovod"):
    horovodrun = [Path(sys.executable).with_name("horovodrun"), "--gloo", "--num-proc=2"]
    runs["horovod"] = 2, train("horovod", BATCH, "--compression=none", launcher=horovodrun)
for name, (processes, events) in runs.items():
    agree(events, name=name, processes=processes)
    np.testing.assert_allclose(curve(events), expected, rtol=1e-3, err_msg=name)
