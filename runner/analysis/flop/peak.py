"""Dense peaks of GPUs, by the driver's name of each, from `peaks.yaml`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from runner.core import yamlfile
from runner.core.frozen import Frozen
from runner.core.measurement import Peak

PEAKS: Final = Path(__file__).with_name("peaks.yaml")
Arithmetic = Literal["fp64", "fp32", "tf32", "fp16", "bf16"]
Positive = Annotated[float, Field(gt=0)]

_MAKER: Final = re.compile(r"^(?:NVIDIA |Tesla |GeForce )+")


class GpuPeak(Frozen):
    """One kind of GPU.

    Attributes:
        name: regular expression over the driver's whole name, without the maker's words before it.
        tflops: dense TFLOP/s by precision.
        tensor: precisions whose figure is that of the tensor cores.
        bandwidth_gb_s: of its memory, in 1e9 bytes a second.
        cores, boost_mhz: fp32 units and the clock that the figures are for; None where no source has both.
        source: name of the datasheet or whitepaper.
    """

    name: str
    tflops: dict[Arithmetic, Positive]
    tensor: tuple[Arithmetic, ...] = ()
    bandwidth_gb_s: Positive
    cores: int | None = None
    boost_mhz: int | None = None
    source: str

    @field_validator("name")
    @classmethod
    def _is_a_pattern(cls, name: str) -> str:
        re.compile(name)
        return name

    def unit(self, precision: Arithmetic) -> str:
        """What does arithmetic of a precision: `tensor cores` or `CUDA cores`."""
        return "tensor cores" if precision in self.tensor else "CUDA cores"


class Peaks(Frozen):
    """All kinds of GPU that are known."""

    gpus: tuple[GpuPeak, ...]


@lru_cache(maxsize=1)
def known_gpus() -> tuple[GpuPeak, ...]:
    """Every entry of `peaks.yaml`."""
    return yamlfile.load(PEAKS, Peaks).gpus


def gpu_peak(name: str) -> GpuPeak | None:
    """The entry of a GPU that the driver, or a framework, calls `name`; None for one that is not known."""
    plain = _MAKER.sub("", name)
    return next((gpu for gpu in known_gpus() if re.fullmatch(gpu.name, plain, re.IGNORECASE)), None)


def gpus_peak(names: Sequence[str], precision: Arithmetic) -> Peak | str:
    """The peak of GPUs that train together, or why there is none.

    Args:
        names: of each of them.
        precision: of the training.
    """
    tflops = bandwidth = 0.0
    sources = []
    for name, count in sorted(Counter(names).items()):
        gpu = gpu_peak(name)
        if gpu is None:
            return f"no peak is known for {name}"
        if precision not in gpu.tflops:
            return f"{name} has no {precision} arithmetic of its own"
        tflops += count * gpu.tflops[precision]
        bandwidth += count * gpu.bandwidth_gb_s
        sources.append(
            f"{count} × {name}: {gpu.tflops[precision]:g} TFLOP/s in {precision} on {gpu.unit(precision)}; {gpu.source}"
        )
    return Peak(tflops=tflops, bandwidth_gb_s=bandwidth, source=" + ".join(sources))
