"""Which Caffe runs here and on what, for the event `env`. Standard library and syntax of Python 3.6 only."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arguments import refuse


def caffe_version():
    """What `caffe --version` says, such as 1.0.0 or 0.17.3."""
    said = subprocess.run(["caffe", "--version"], stdout=subprocess.PIPE, check=True).stdout.decode()
    return re.search(r"version (\S+)", said).group(1)


def is_nvidia(version):
    """Whether this is NVIDIA's Caffe, whose versions stayed below 1."""
    return version.startswith("0.")


def gpu_names(devices):
    """Names of the GPUs that Caffe will use, as nvidia-smi lists them."""
    try:
        said = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, check=False).stdout.decode()
    except OSError:
        said = ""
    names = re.findall(r"^GPU \d+: (.*?) \(UUID", said, flags=re.MULTILINE)
    if len(names) < devices:
        refuse(f"--device=gpu --devices={devices}, nvidia-smi lists {len(names)} GPUs")
    return names[:devices]


def environment(args, version):
    """Software and devices; CUDA's versions as NVIDIA's image states them."""
    gpu = args.device == "gpu"
    return {
        "python": platform.python_version(),
        "framework": "caffe",
        "framework_version": version,
        "device": args.device,
        "device_names": gpu_names(args.devices) if gpu else [],
        "threads": args.threads,
        "cpus": sorted(os.sched_getaffinity(0)),
        "cuda": os.environ.get("CUDA_VERSION") if gpu else None,
        "cudnn": os.environ.get("CUDNN_VERSION") if gpu else None,
        "nccl": os.environ.get("NCCL_VERSION") if gpu else None,
    }
