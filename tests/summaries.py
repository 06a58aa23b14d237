"""Summaries for tests of reports: four GPUs with one degraded row and one invalid, and two CPU workers."""

from __future__ import annotations

from pathlib import Path

from runner.analysis.summarize import Row, Summary
from runner.core.measurement import Interval, StepParts


def row(scale: int = 1, **changes) -> Row:
    """A valid row of 100 images/s per device, plus or minus 2 %."""
    rate = 100.0 * scale
    figures = {
        "scale": scale,
        "device": "gpu",
        "throughput": rate,
        "throughput_ci95": Interval(low=0.98 * rate, high=1.02 * rate),
        "training_time_s": 18.2,
        "speedup": float(scale),
        "efficiency": 1.0,
        "repeats": 3,
        "status": "valid",
    }
    return Row.model_validate(figures | changes)


def unusable(scale: int, status: str, *reasons: str, **figures) -> Row:
    return Row(scale=scale, device="gpu", repeats=0, status=status, reasons=reasons, **figures)


def summary(*rows: Row, **changes) -> Summary:
    facts = {
        "title": "mxnet 1.9.1-cu112: resnet50 train",
        "rows": rows,
        "image_reference": "dlscale/mxnet:1.9.1-cu112",
        "engine": "docker",
        "engine_reason": None,
        "machine": "node1: 4 × Tesla V100",
        "setting": "resnet50 224×224, batch 64 per device, fp32, weak scaling",
        "date": "2026-11-21",
        "record_dirs": (Path("results/node1/one"), Path("results/node1/two")),
    }
    return Summary.model_validate(facts | changes)


GPUS = summary(
    row(1, throughput=361.84, throughput_ci95=Interval(low=360.1, high=363.9), training_time_s=35.37),
    row(
        2,
        throughput=713.2,
        throughput_ci95=Interval(low=704.0, high=722.0),
        training_time_s=35.9,
        speedup=1.971,
        speedup_ci95=Interval(low=1.943, high=1.999),
        efficiency=0.9855,
        efficiency_ci95=Interval(low=0.9715, high=0.9995),
        status="degraded",
        reasons=("GPU 1 was throttled for 12 % of the measured window (power cap)",),
    ),
    row(
        3,
        throughput=1102.0,
        throughput_ci95=Interval(low=1090.0, high=1114.0),
        training_time_s=34.85,
        speedup=3.046,
        speedup_ci95=Interval(low=3.01, high=3.08),
        efficiency=1.0153,
        efficiency_ci95=Interval(low=1.003, high=1.027),
    ),
    unusable(4, "invalid", "nvlink was asked for and shared memory was used"),
    unusable(8, "failed", "rank 5 ended with exit code 137", "the kernel killed it for memory"),
)

CPUS = summary(
    row(1, device="cpu worker", throughput=35.21, throughput_ci95=Interval(low=34.6, high=35.9)),
    row(
        2,
        device="cpu worker",
        throughput=61.02,
        throughput_ci95=Interval(low=59.6, high=62.4),
        speedup=1.733,
        speedup_ci95=Interval(low=1.671, high=1.795),
        efficiency=0.8665,
        efficiency_ci95=Interval(low=0.8355, high=0.8975),
    ),
    title="mxnet 1.9.1: resnet18 train",
    machine="vm: AMD EPYC, 2 cores",
    image_reference="images/mxnet/1.9.1/requirements.lock",
    engine="venv",
    engine_reason="no Docker engine answers, so the same locked requirements run in a virtual environment",
    setting="resnet18 32×32, batch 32 per device, fp32, weak scaling",
)


def parts(**changes) -> StepParts:
    """A step of 100 ms: 5 of input, 80 of compute, 5 of stragglers, 10 of communication."""
    values = {"step_s": 0.1, "input_waited_s": 0.02, "input_s": 0.005, "compute_s": 0.08}
    return StepParts.model_validate(
        values | {"stragglers_s": 0.005, "communication_s": 0.01, "exchange_alone_s": 0.0421} | changes
    )


NODES = summary(
    row(
        1,
        device="cpu worker",
        parts=parts(compute_s=0.095, stragglers_s=None, exchange_alone_s=None, communication_s=None),
    ),
    row(4, device="cpu worker", speedup=3.2, efficiency=0.8, parts=parts()),
    title="mxnet 1.9.1: resnet18 train",
    machine="AMD EPYC, 2 cores",
    setting="resnet18 32×32, batch 32 per device, fp32, weak scaling, kvstore dist_sync",
    wires="4 on 2 nodes over ethernet eth0, emulated 1gbit",
)
