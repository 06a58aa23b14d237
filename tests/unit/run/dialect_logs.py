"""Real logs for the tests of dialects, and a loop that reads them as `execute` does: line by line, then the end."""

from pathlib import Path

from runner.run.dialects import DIALECTS
from runner.run.dialects.base import Facts

GOLDEN = Path(__file__).parents[2] / "golden" / "dialects"

# All complete logs, each with its dialect and the facts from its command line.
WHOLE = {
    "caffe-1.0.log": ("caffe", {}),
    "caffe-1.0-test-phases.log": ("caffe", {"batch_per_device": 32}),
    "caffe_1.0.log": ("caffe", {"batch_per_device": 64}),
    "nvcaffe-0.15-two-gpus.log": ("caffe", {"batch_per_device": 128, "devices": 2}),
    "nvcaffe-0.16.log": ("caffe", {"batch_per_device": 32}),
    "mxnet-0.7-node.log": ("mxnet", {"batch_per_device": 256}),
    "mxnet-1.4-epochs.log": ("mxnet", {"batch_per_device": 128}),
    "mxnet-1.9.1.log": ("mxnet", {"batch_per_device": 16}),
    "mxnet-1.9.1-no-reset.log": ("mxnet", {"batch_per_device": 16}),
    "tf_cnn_benchmarks-1-gpu.log": ("tf_cnn_benchmarks", {}),
    "tf_cnn_benchmarks-horovod-2-gpus.log": ("tf_cnn_benchmarks", {"devices": 2}),
    "horovod-pytorch-4-gpus.log": ("horovod", {"devices": 4}),
    "horovod-tensorflow2-8-gpus.log": ("horovod", {"devices": 8}),
    "nccl-1-res-column.log": ("nccl-tests", {"devices": 4}),
    "nccl-tests-8-gpus.log": ("nccl-tests", {"devices": 8}),
    "nccl-tests-2.17-mpi.log": ("nccl-tests", {"devices": 8}),
    "nccl-tests-2.10-error-column.log": ("nccl-tests", {"devices": 2}),
}


def facts(**changes):
    return Facts(**({"batch_per_device": None, "devices": 1, "warmup": None, "container": "w0"} | changes))


def text(name):
    return (GOLDEN / name).read_text(encoding="utf-8")


def read(dialect, log, **changes):
    """The events of a log, whose line n is received at n seconds."""
    reader = DIALECTS[dialect](facts(**changes))
    lines = log.splitlines()
    events = [event for n, line in enumerate(lines) for event in reader.feed(line, received=float(n))]
    return [*events, *reader.close(received=float(len(lines)))]


def of(kind, events):
    return [event for event in events if event.event == kind]
