"""Prevents: an edge of a window without a line in Caffe's log, an altered or lost log, missed turning points of
NVCaffe's log, GPUs or threads that Caffe does not get, a weight counted twice or not at all.

A script on PATH stands in for `caffe`; it writes lines like the real ones, NVCaffe's after a log of version 0.17.3."""

import argparse
import json
import math
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import snapshot_caffe
import train_caffe
from hypothesis import given
from hypothesis import strategies as st

PROGRAM = Path(train_caffe.__file__)
FLAGS = (
    "--model=lenet --image-size=32 --num-classes=10 --batch=8 --iterations=4 --warmup=2 --window=2 --precision=fp32 "
    "--device=gpu --devices=2 --strategy=caffe --data=synthetic --learning-rate=0.001 --momentum=0.9 --weight-decay=0.0001 "
    "--seed=1 --threads=3 --cpus-per-worker=0 --loader-workers=0"
)
NVCAFFE = """\
I0706 00:58:37.872867 50590 caffe.cpp:250] Starting Optimization
I0706 00:58:37.872867 50591 solver.cpp:190] [1.1] Starting Optimization on GPU 1
I0706 00:58:37.976377 50590 solver.cpp:342]     [0.0] Iteration 0 (0.0752842 s), loss = 2.43165
I0706 00:58:37.976423 50590 sgd_solver.cpp:180] [0.0] Iteration 0, lr = 0.01, m = 0.9, lrm = 0.1, wd = 0.0005, gs = 1
I0706 00:58:38.019762 50590 solver.cpp:342]     [0.0] Iteration 1 (0.0433818 s), loss = 2.31412
I0706 00:58:38.065419 50590 solver.cpp:342]     [0.0] Iteration 2 (0.0456489 s), loss = 2.32283
I0706 00:58:41.201983 50590 solver.cpp:337]     [0.0] Iteration 4 (31.2456 iter/s, 0.063s/2 iter), loss = 0.231036
I0706 00:58:44.370079 50590 solver.cpp:337]     [0.0] Iteration 6 (31.5658 iter/s, 0.063s/2 iter), 1.1/10.7ep, loss = nan
not a line of glog's, and no \xff UTF-8
I0706 00:58:44.370080 50590 solver.cpp:337]     [0.0] Iteration 8 (31.2589 iter/s, 0.031s/1 iter), 1.1/10.7ep, loss = 0.1
"""


def arguments(**changes):
    flags = {"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.0001, "device": "cpu", "seed": 1}
    return argparse.Namespace(**{**flags, "warmup": 4, "window": 4, "iterations": 10, **changes})


def number(definition, name):
    return int(re.search(rf"^{name}: (\d+)$", definition, flags=re.MULTILINE).group(1))


@given(warmup=st.integers(1, 60), window=st.integers(1, 60), iterations=st.integers(1, 300))
def test_every_edge_of_a_window_has_a_log_line_before_the_last(warmup, window, iterations):
    args = arguments(warmup=warmup, window=window, iterations=iterations)
    definition = train_caffe.solver(args, "/tmp/x", nvidia=False, snapshot=False)
    display, end = number(definition, "display"), number(definition, "max_iter")
    edges = [*range(warmup, warmup + iterations, window), warmup + iterations]
    assert all(edge % display == 0 for edge in edges)
    # Caffe 1.0 logs no rate at the end; NVCaffe numbers the last iteration as the end.
    assert edges[-1] < end - 1


def test_a_solver_is_sgd_with_momentum_and_decay_at_a_fixed_rate():
    assert train_caffe.solver(arguments(), "/tmp/x", nvidia=True, snapshot=True).splitlines() == [
        'net: "/tmp/x/net.prototxt"',
        "base_lr: 0.02",
        'lr_policy: "fixed"',
        "momentum: 0.9",
        "weight_decay: 0.0001",
        "display: 2",
        "max_iter: 16",
        "snapshot_after_train: true",
        'snapshot_prefix: "/tmp/x/weights"',
        "solver_mode: CPU",
        "random_seed: 1",
        "store_blobs_in_old_format: true",
    ]


@pytest.fixture
def stand_in(tmp_path):
    """Run the program with scripts for `caffe` and `nvidia-smi`; return their input and its output."""

    def run(*changed, version="0.17.3", log=NVCAFFE, end="exit 0"):
        (tmp_path / "log").write_bytes(log.encode("latin-1"))
        (tmp_path / "model").write_bytes(layer("Convolution", [3.0, -4.0]))
        caffe = f"""#!/bin/sh
            if [ "$1" = --version ]; then echo "caffe version {version}"; exit; fi
            definitions=$(dirname "${{2#-solver=}}")
            {{ echo "$@"; env; cat "$definitions"/*.prototxt; }} >{tmp_path}/told
            cp {tmp_path}/model "$definitions"/weights_iter_8.caffemodel
            cat {tmp_path}/log >&2
            echo "h:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/IPC" >"$NCCL_DEBUG_FILE"
            {end}
        """
        nvidia_smi = """#!/bin/sh
            for n in 0 1; do echo "GPU $n: Tesla V100-SXM2-16GB (UUID: GPU-0-$n)"; done
        """
        for name, body in (("caffe", caffe), ("nvidia-smi", nvidia_smi)):
            (tmp_path / name).write_text(body)
            (tmp_path / name).chmod(0o755)
        changes = {
            "TMPDIR": str(tmp_path),
            "NCCL_DEBUG_FILE": f"{tmp_path}/nccl.%p.log",
            "GLOG_minloglevel": "2",
            "CUDA_VERSION": "10.2.89",
        }
        env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", **changes}
        argv = [sys.executable, str(PROGRAM), *FLAGS.split(), *changed]
        done = subprocess.run(argv, capture_output=True, env=env, timeout=60, stdin=subprocess.DEVNULL)
        prefix = b"::dlscale:: "
        events = [json.loads(line[len(prefix) :]) for line in done.stdout.splitlines() if line.startswith(prefix)]
        told = tmp_path / "told"
        return done, events, told.read_text() if told.exists() else ""

    return run


def test_nvcaffe_gets_gpus_and_threads_and_its_log_passes_unchanged(stand_in):
    done, events, told = stand_in()
    assert done.returncode == 0
    assert done.stderr == NVCAFFE.encode("latin-1")
    names = [event["event"] for event in events]
    start = ["phase", "env", "run_start", "phase", "first_step"]
    assert names == [*start, "warmup_end", "net", "usage", "net", "usage", "nccl", "run_stop"]
    assert events[1]["device_names"] == ["Tesla V100-SXM2-16GB"] * 2
    assert events[1]["framework_version"] == "0.17.3"
    assert events[1]["cuda"] == "10.2.89"
    assert events[2]["world_size"] == 2
    assert events[2]["global_batch"] == 16
    assert [event["where"] for event in events[6:10]] == ["start", "start", "stop", "stop"]
    assert "via P2P/IPC" in events[10]["lines"][0]
    assert (events[11]["iterations"], events[11]["samples"], events[11]["parameter_norm"]) == (4, 64, 5)
    assert told.splitlines()[0].endswith("/solver.prototxt -gpu=0,1")
    for line in ("OMP_NUM_THREADS=3", "OPENBLAS_NUM_THREADS=3", "GLOG_minloglevel=0", "GLOG_logtostderr=1"):
        assert line in told.splitlines()
    assert "solver_mode: GPU" in told
    assert "dim: 8 dim: 3" in told  # NVCaffe does not divide the batch of DummyData


@pytest.mark.parametrize(("end", "expected"), [("exit 7", 7), ("kill -ABRT $$", 134)])
def test_a_failure_of_caffe_is_the_programs_failure(stand_in, end, expected):
    done, events, _ = stand_in(end=end)
    assert done.returncode == expected
    assert done.stderr == NVCAFFE.encode("latin-1")
    assert "run_stop" not in [event["event"] for event in events]


def test_a_caffe_that_stops_early_is_no_success(stand_in):
    """Caffe exits with 0 after a SIGINT from outside."""
    done, events, _ = stand_in(log=NVCAFFE.partition("I0706 00:58:44")[0])
    assert done.returncode == 1
    assert done.stderr.decode().endswith(
        "Caffe stopped before iteration 6, the last one to be measured; its log is above\n"
    )
    assert "run_stop" not in [event["event"] for event in events]


@pytest.mark.parametrize(
    ("flags", "version", "said"),
    [
        (["--precision=fp16"], "1.0.0", "needs NVCaffe"),
        (["--warmup=1"], "0.17.3", "no rate before iteration 3"),
        (["--devices=3"], "0.17.3", "nvidia-smi lists 2 GPUs"),
        (["--device=cpu"], "0.17.3", "one CPU worker"),
        (["--strategy=single"], "0.17.3", "needs --strategy=caffe"),
        (["--strategy=horovod"], "0.17.3", "is not Caffe's"),
        (["--model=inception-v3"], "0.17.3", "alexnet, googlenet, googlenet-bvlc"),
        (["--precision=tf32"], "0.17.3", "ask for fp32"),
        (["--data=/nowhere"], "0.17.3", "pack_lmdb.py"),
        (["--profile=region"], "0.17.3", "ask for kernels or memory"),
        (["--profile=metrics"], "0.17.3", "ask for kernels or memory"),
        (["--profile=kernels", "--profile-region=input"], "0.17.3", "leave it out"),
    ],
)
def test_what_caffe_cannot_do_is_refused_in_one_line(stand_in, flags, version, said):
    done, events, told = stand_in(*flags, version=version)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert not told
    assert "run_start" not in [event["event"] for event in events]


def test_half_precision_needs_nvcaffe(stand_in):
    _, _, told = stand_in("--precision=fp16")
    assert "default_forward_type: FLOAT16" in told


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({"classes": ["a"] * 11}, "has 11 classes"),
        ({"size": 31}, "holds images of 31 pixels"),
        ({"images": 15}, "too few for 2 batches of 8"),
        ({}, None),
    ],
)
def test_a_data_set_must_fit_the_model_and_the_batch(stand_in, tmp_path, index, said):
    lmdb = tmp_path / "images.lmdb"
    lmdb.mkdir()
    (lmdb / "data.mdb").touch()
    whole = {"classes": ["a", "b"], "images": 16, "skipped": [], "size": 32, **index}
    lmdb.with_suffix(".json").write_text(json.dumps(whole))
    done, _, told = stand_in(f"--data={lmdb}")
    if said:
        assert done.returncode == 2
        assert said in done.stderr.decode()
        assert done.stderr.count(b"\n") == 1
    else:
        assert "batch_size: 16" in told


def field(number, content):
    """A bytes field in protocol buffers' wire format."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value):
    head, rest = value & 127, value >> 7
    return bytes([head | 128]) + varint(rest) if rest else bytes([head])


def layer(kind, *blobs):
    shape = field(7, field(1, varint(3)))
    contents = [field(7, shape + field(5, struct.pack(f"<{len(blob)}f", *blob))) for blob in blobs]
    return field(
        100, field(1, b"its name") + field(2, kind.encode()) + varint(10 << 3) + varint(300) + b"".join(contents)
    )


def test_the_norm_covers_weights_only(tmp_path):
    model = field(1, b"a net") + b"".join(
        [
            layer("Bias", [100.0] * 200),  # synthetic images
            layer("Convolution", [1.0, -2.0], [2.0]),
            layer("BatchNorm", [50.0], [60.0], [70.0]),  # Caffe 1.0: statistics only
            layer("Scale", [4.0], [0.0]),
            layer("BatchNorm", [50.0], [60.0], [70.0], [3.0], [1.0]),  # NVCaffe: followed by scale and shift
            layer("ReLU"),
            layer("InnerProduct", [1.0] * 300),
        ]
    )
    path = tmp_path / "weights.caffemodel"
    path.write_bytes(model)
    assert snapshot_caffe.parameter_norm(path) == pytest.approx(math.sqrt(1 + 4 + 4 + 16 + 9 + 1 + 300), rel=1e-12)
