"""The figures of a run's arithmetic, as a record keeps them, and the peaks that they are held against."""

from __future__ import annotations

from typing import Literal

from runner.frozen import Frozen


class Peak(Frozen):
    """What all devices of a run could do together.

    Attributes:
        tflops: dense, in 1e12 floating-point operations a second, at the precision of the run.
        bandwidth_gb_s: of their memory, in 1e9 bytes a second; None where nobody says.
        source: what it is made from, in words.
    """

    tflops: float
    bandwidth_gb_s: float | None
    source: str


def utilisation_percent(achieved_tflops: float | None, peak_tflops: float | None) -> tuple[float | None, bool]:
    """Achieved ÷ peak in percent, and whether it was more than 100 and is None for that."""
    if achieved_tflops is None or not peak_tflops:
        return None, False
    above = achieved_tflops > peak_tflops
    return None if above else 100 * achieved_tflops / peak_tflops, above


class FlopFigures(Frozen):
    """Model FLOP of one run, and where it stands under the roofline of its devices.

    The roofline: S. Williams, A. Waterman and D. Patterson, "Roofline: an insightful visual performance model for multicore
    architectures", CACM 52(4), 2009. Model FLOP utilisation: A. Chowdhery et al., "PaLM", https://arxiv.org/abs/2204.02311, appendix B.

    Attributes:
        forward_flop_per_sample, backward_flop_per_sample: by `method`.
        achieved_tflops: both times the throughput, of all devices; None without a throughput.
        peak_tflops: dense, of all devices at the precision of the run; None where it is not known.
        peak_source: what the peak is made from, or `unavailable: <reason>`.
        mfu_percent: achieved ÷ peak; None without both, and where it would be more than 100.
        above_peak: whether it would be: the peak or the count is wrong for this run, and says nothing of it.
        bandwidth_gb_s: peak of the devices' memory, of all of them, in 1e9 bytes a second.
        dram_bytes_per_sample: what really went between the devices and their memory.
        intensity_flop_per_byte: achieved FLOP for each of those bytes.
        ridge_flop_per_byte: peak FLOP/s ÷ peak bandwidth: below it memory bounds what can be achieved, above it arithmetic.
        roofline: which of the two.
        roofline_source: where the bytes were counted, or `unavailable: <reason>`.
    """

    forward_flop_per_sample: float
    backward_flop_per_sample: float
    method: str
    achieved_tflops: float | None
    peak_tflops: float | None
    peak_source: str
    mfu_percent: float | None
    above_peak: bool = False
    bandwidth_gb_s: float | None = None
    dram_bytes_per_sample: float | None = None
    intensity_flop_per_byte: float | None = None
    ridge_flop_per_byte: float | None = None
    roofline: Literal["memory", "compute"] | None = None
    roofline_source: str
