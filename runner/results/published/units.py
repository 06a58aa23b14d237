"""What the published figures are of, and in which units each may stand: a throughput in percent is a slip, not a figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator

RateUnit = Literal["images/s", "sequences/s", "sentences/s", "tokens/s"]
TimeUnit = Literal["us", "ms", "s", "min", "h", "days", "weeks"]
BytesUnit = Literal["MB", "GB", "MiB", "GiB"]
Other = Literal[
    "GB/s", "Gb/s", "TFLOP/s", "SMs", "cores", "images", "classes", "pixels", "epochs", "iterations", "nats"
]
Unit = Literal[RateUnit, TimeUnit, "%", "x", "W", "MHz", BytesUnit, Other, "unstated"]
"""`x` is a ratio; `unstated` stands where the source prints no unit and none can be told from it."""

RATE: Final[tuple[Unit, ...]] = get_args(RateUnit)
TIME: Final[tuple[Unit, ...]] = get_args(TimeUnit)
BYTES: Final[tuple[Unit, ...]] = get_args(BytesUnit)

_METRICS: Final[tuple[tuple[tuple[Unit, ...], str], ...]] = (
    # of a whole job, or of each of its devices
    (RATE, "throughput throughput_per_gpu"),
    (TIME, "training_time total_time full_training_time iteration_time inference_time time_per_batch"),
    (TIME, "time_forward time_backward time_forward_backward"),
    (TIME, "time_to_train_runs time_to_train_score time_to_train_median"),
    (("%",), "steady_time_share accuracy"),
    (("nats",), "train_loss val_loss"),
    (("epochs",), "epochs_to_converge"),
    (("unstated",), "perf"),
    # one configuration against another
    (("x",), "speedup speed_ratio throughput_ratio time_ratio"),
    (("%",), "throughput_gain scaling_efficiency"),
    # what the devices did meanwhile
    (("%",), "gpu_utilisation gpu_utilisation_min gpu_utilisation_avg gpu_utilisation_max"),
    (("%",), "gpu_compute_utilisation fp32_utilisation"),
    (BYTES, "gpu_memory"),
    (("W",), "power_idle power_min power_avg power_max node_power_mean_per_run"),
    (("TFLOP/s",), "achievable_matmul_tflops"),
    # what a profiler saw
    (("%",), "kernel_concurrency compute_time_share nccl_broadcast_time_share winograd_time_share"),
    (("%",), "maxpoolbackward_time_share memory_api_time_shares cudaLaunchKernel_api_time_share"),
    (("%",), "memory_copy_throughput_figure kernel_time_share copy_overlap"),
    (TIME, "concurrent_kernel_time profiled_time"),
    (("x",), "average_flop_count"),
    (BYTES, "copy_size"),
    (("GB/s",), "copy_throughput"),
    # what it ran on, and how long
    (("TFLOP/s",), "fp64_peak fp32_peak"),
    (BYTES, "memory last_level_cache"),
    (("GB/s",), "memory_bandwidth host_gpu_bus_bandwidth"),
    (("Gb/s",), "ethernet_bandwidth infiniband_bandwidth"),
    (("MHz",), "memory_clock clock"),
    (("W",), "tdp"),
    (("SMs",), "multiprocessors"),
    (("cores",), "cores tensor_cores cpu_cores_total"),
    (("pixels",), "image_size"),
    (("images",), "training_images validation_images inference_images samples_per_run"),
    (("classes",), "classes"),
    (("epochs",), "training_epochs full_training_epochs"),
    (("iterations",), "profile_start_after profiled_iterations"),
    (TIME, "profiler_timeout job_time_limit"),
)
METRICS: Final[Mapping[str, tuple[Unit, ...]]] = {name: units for units, names in _METRICS for name in names.split()}
"""Every quantity that a figure or a finding may name, with its units."""


def _known(metric: str) -> str:
    if metric not in METRICS:
        raise ValueError(f"no such metric; known: {', '.join(sorted(METRICS))}")
    return metric


Metric = Annotated[str, AfterValidator(_known)]
