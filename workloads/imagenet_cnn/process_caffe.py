"""The image's Caffe: its version, its devices, and its binary as a process. Standard library and syntax of Python 3.6 only."""

import ctypes
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import process
from arguments import refuse

PR_SET_PDEATHSIG = 1
READY = b"Starting Optimization"  # the net is built; NVCaffe logs it for each GPU
# A line with a loss; lines with a learning rate or a test have none.
ITERATION = re.compile(rb"\] +(?:\[\S+\] )?Iteration (\d+)\b.*, loss = (\S+)")


def caffe_version():
    """The version in `caffe --version`, such as 1.0.0 or 0.17.3."""
    output = subprocess.run(["caffe", "--version"], stdout=subprocess.PIPE, check=True).stdout.decode()
    return re.search(r"version (\S+)", output).group(1)


def is_nvidia(version):
    """Whether this is NVIDIA's Caffe, whose versions are all below 1."""
    return version.startswith("0.")


def gpu_names(devices):
    """Names of the GPUs that Caffe will use, as listed by nvidia-smi."""
    try:
        output = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, check=False).stdout.decode()
    except OSError:
        output = ""
    names = re.findall(r"^GPU \d+: (.*?) \(UUID", output, flags=re.MULTILINE)
    if len(names) < devices:
        refuse(f"--device=gpu --devices={devices}, nvidia-smi lists {len(names)} GPUs")
    return names[:devices]


def environment(args, version):
    """Software and devices; CUDA's versions are those stated by NVIDIA's image."""
    facts = {"framework": "caffe", "framework_version": version, "device_names": []}
    if args.device == "gpu":
        facts["device_names"] = gpu_names(args.devices)
        facts.update({name: os.environ.get(name.upper() + "_VERSION") for name in ("cuda", "cudnn", "nccl")})
    return process.environment(args, **facts)


def start(args, caffe_args):
    """Start `caffe`; it dies with this process, and a SIGTERM or SIGINT to this process ends it."""
    argv = ["caffe", *caffe_args]
    if args.device == "gpu":
        argv.append("-gpu=" + ",".join(str(number) for number in range(args.devices)))
    env = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "OPENBLAS_NUM_THREADS": str(args.threads)}
    env.update(GLOG_logtostderr="1", GLOG_minloglevel="0")  # log everything, and write no log files
    if "NCCL_DEBUG_FILE" in env:  # NCCL would insert Caffe's process id into the name; `events.nccl` expects this one's
        env["NCCL_DEBUG_FILE"] = env["NCCL_DEBUG_FILE"].replace("%p", str(os.getpid()))
    prctl = ctypes.CDLL(None).prctl
    end_with_parent = partial(prctl, PR_SET_PDEATHSIG, signal.SIGKILL)
    # preexec_fn is safe here, because there is only one thread.
    process = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, preexec_fn=end_with_parent)  # noqa: PLW1509
    # Caffe handles SIGINT and SIGHUP itself, after the iteration and with exit code 0; SIGTERM ends it immediately.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.terminate())
    return process


def lines(process):
    for line in iter(process.stderr.readline, b""):
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
        yield line
