"""What the published figures are of, and in which units each may stand: a throughput in percent is a slip, not a figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator

Unit = Literal[
    "images/s",
    "sequences/s",
    "sentences/s",
    "tokens/s",
    "us",
    "ms",
    "s",
    "min",
    "h",
    "days",
    "weeks",
    "%",
    "x",
    "W",
    "MHz",
    "MB",
    "GB",
    "MiB",
    "GiB",
    "GB/s",
    "Gb/s",
    "TFLOP/s",
    "SMs",
    "cores",
    "images",
    "classes",
    "pixels",
    "epochs",
    "iterations",
    "nats",
    "unstated",
]
"""`x` is a ratio; `unstated` stands where the source prints no unit and none can be told from it."""

RATE: Final[tuple[Unit, ...]] = ("images/s", "sequences/s", "sentences/s", "tokens/s")
TIME: Final[tuple[Unit, ...]] = ("us", "ms", "s", "min", "h", "days", "weeks")
BYTES: Final[tuple[Unit, ...]] = ("MB", "GB", "MiB", "GiB")
PERCENT: Final[tuple[Unit, ...]] = ("%",)
RATIO: Final[tuple[Unit, ...]] = ("x",)

METRICS: Final[Mapping[str, tuple[Unit, ...]]] = {
    # of a whole job, or of each of its devices
    "throughput": RATE,
    "throughput_per_gpu": RATE,
    "training_time": TIME,
    "total_time": TIME,
    "full_training_time": TIME,
    "iteration_time": TIME,
    "steady_time_share": PERCENT,
    "inference_time": TIME,
    "time_per_batch": TIME,
    "time_forward": TIME,
    "time_backward": TIME,
    "time_forward_backward": TIME,
    "time_to_train_runs": TIME,
    "time_to_train_score": TIME,
    "time_to_train_median": TIME,
    "train_loss": ("nats",),
    "val_loss": ("nats",),
    "accuracy": PERCENT,
    "epochs_to_converge": ("epochs",),
    "perf": ("unstated",),
    # one configuration against another
    "speedup": RATIO,
    "speed_ratio": RATIO,
    "throughput_ratio": RATIO,
    "time_ratio": RATIO,
    "throughput_gain": PERCENT,
    "scaling_efficiency": PERCENT,
    # what the devices did meanwhile
    "gpu_utilisation": PERCENT,
    "gpu_utilisation_min": PERCENT,
    "gpu_utilisation_avg": PERCENT,
    "gpu_utilisation_max": PERCENT,
    "gpu_compute_utilisation": PERCENT,
    "fp32_utilisation": PERCENT,
    "gpu_memory": BYTES,
    "power_idle": ("W",),
    "power_min": ("W",),
    "power_avg": ("W",),
    "power_max": ("W",),
    "node_power_mean_per_run": ("W",),
    "achievable_matmul_tflops": ("TFLOP/s",),
    # what a profiler saw
    "kernel_concurrency": PERCENT,
    "concurrent_kernel_time": TIME,
    "profiled_time": TIME,
    "compute_time_share": PERCENT,
    "nccl_broadcast_time_share": PERCENT,
    "winograd_time_share": PERCENT,
    "maxpoolbackward_time_share": PERCENT,
    "memory_api_time_shares": PERCENT,
    "cudaLaunchKernel_api_time_share": PERCENT,
    "memory_copy_throughput_figure": PERCENT,
    "average_flop_count": ("x",),
    "kernel_time_share": PERCENT,
    "copy_size": BYTES,
    "copy_throughput": ("GB/s",),
    "copy_overlap": PERCENT,
    # what it ran on, and how long
    "fp64_peak": ("TFLOP/s",),
    "fp32_peak": ("TFLOP/s",),
    "memory": BYTES,
    "memory_bandwidth": ("GB/s",),
    "memory_clock": ("MHz",),
    "clock": ("MHz",),
    "tdp": ("W",),
    "last_level_cache": BYTES,
    "multiprocessors": ("SMs",),
    "cores": ("cores",),
    "tensor_cores": ("cores",),
    "cpu_cores_total": ("cores",),
    "ethernet_bandwidth": ("Gb/s",),
    "infiniband_bandwidth": ("Gb/s",),
    "host_gpu_bus_bandwidth": ("GB/s",),
    "image_size": ("pixels",),
    "training_images": ("images",),
    "validation_images": ("images",),
    "inference_images": ("images",),
    "samples_per_run": ("images",),
    "classes": ("classes",),
    "training_epochs": ("epochs",),
    "full_training_epochs": ("epochs",),
    "profile_start_after": ("iterations",),
    "profiled_iterations": ("iterations",),
    "profiler_timeout": TIME,
    "job_time_limit": TIME,
}
"""Every quantity that a figure or a finding may name, with its units."""


def _known(metric: str) -> str:
    if metric not in METRICS:
        raise ValueError(f"no such metric; known: {', '.join(sorted(METRICS))}")
    return metric


Metric = Annotated[str, AfterValidator(_known)]
