"""Peak of CPU workers: physical cores × floating-point operations a cycle × clock.

Operations a cycle follow from vendor, family, model and flags (P. Cordes and others, "FLOPS per cycle for Sandy Bridge and Haswell and
others", stackoverflow.com/q/15655835; A. Fog, "The microarchitecture of Intel, AMD and VIA CPUs"; uops.info). A fused multiply-add is two.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runner.flop.model import Peak
from runner.flop.peak import Arithmetic
from runner.machine.processor import Processor

# Intel's CPUID models with two 512-bit units: Skylake, Cascade and Cooper Lake (one number for all), Ice Lake, Sapphire, Emerald and
# Granite Rapids servers, Xeon Phi. Other models with AVX-512 are clients, which have one.
_TWO_UNITS: Final = frozenset({85, 106, 108, 143, 207, 173, 174, 87, 133})
_SKYLAKE_SERVER: Final = 85
# Its cheaper ones have one all the same (Intel's ARK, "# of AVX-512 FMA Units").
_ONE_UNIT: Final = re.compile(r"Bronze|Silver|Gold 5(?!122\b|222\b)")
# Gracemont and Crestmont: 256 bits pass through 128-bit units in halves.
_EFFICIENT: Final = frozenset({175, 190})
_ZEN, _ZEN3_AND_4, _ZEN5 = 23, 25, 26
_FIRST_ZEN2: Final = 0x30
# Zen 5 for notebooks (Strix Point, Krackan Point) has units of 256 bits (numberworld.org, "Zen5's AVX512 Teardown").
_NARROW_ZEN5: Final = (range(0x20, 0x30), range(0x60, 0x70))
# A tile instruction makes 16 × 16 × 32 multiply-adds in 16 cycles (Intel 64 and IA-32 Optimization Reference Manual, "Intel AMX").
_AMX_BF16: Final = 1024


@dataclass(frozen=True, kw_only=True)
class PerCycle:
    """Floating-point operations that a core can do in a cycle, and on what."""

    flop: int
    units: str


@dataclass(frozen=True, kw_only=True)
class CpuShare:
    """What a job has of one host.

    Attributes:
        processor: None where the host did not tell.
        cpu_model: the processor's name; None where the host did not tell.
        cores: physical cores that the job's threads can keep busy.
        clock_mhz: of them; None where nobody knows.
        clock_source: where the clock is from, in words.
    """

    processor: Processor | None
    cpu_model: str | None
    cores: int
    clock_mhz: float | None
    clock_source: str


def fp32_per_cycle(processor: Processor, cpu_model: str | None) -> PerCycle | None:
    """What a core does in single precision; None for a processor whose units are not known."""
    flags = set(processor.flags)
    if processor.vendor == "GenuineIntel":
        return _intel(processor, flags, cpu_model or "")
    if processor.vendor in {"AuthenticAMD", "HygonGenuine"}:
        return _amd(processor, flags)
    return None


def _intel(processor: Processor, flags: set[str], cpu_model: str) -> PerCycle | None:
    if "avx512f" in flags:
        cheap = processor.model == _SKYLAKE_SERVER and _ONE_UNIT.search(cpu_model)
        if processor.model in _TWO_UNITS and not cheap:
            return PerCycle(flop=64, units="two 512-bit FMA units")
        return PerCycle(flop=32, units="one 512-bit FMA unit")
    if {"avx2", "fma"} <= flags:
        if processor.model in _EFFICIENT:
            return PerCycle(flop=16, units="two 128-bit FMA units")
        return PerCycle(flop=32, units="two 256-bit FMA units")
    if "avx" in flags:
        return PerCycle(flop=16, units="a 256-bit adder and a 256-bit multiplier")
    return PerCycle(flop=8, units="a 128-bit adder and a 128-bit multiplier") if "sse2" in flags else None


def _amd(processor: Processor, flags: set[str]) -> PerCycle | None:
    if not {"avx2", "fma"} <= flags:
        return None
    first_zen = processor.family == _ZEN and processor.model < _FIRST_ZEN2
    if first_zen or processor.vendor == "HygonGenuine":
        return PerCycle(flop=16, units="two 128-bit FMA units")
    if processor.family in {_ZEN, _ZEN3_AND_4}:  # of Zen 4 too, which does 512 bits in two halves
        return PerCycle(flop=32, units="two 256-bit FMA units")
    if processor.family == _ZEN5:
        if any(processor.model in models for models in _NARROW_ZEN5):
            return PerCycle(flop=32, units="two 256-bit FMA units")
        return PerCycle(flop=64, units="two 512-bit FMA units")
    return None


def per_cycle(processor: Processor, cpu_model: str | None, precision: Arithmetic) -> PerCycle | None:
    """What a core does in a cycle at a precision; None where that is not known, or no program computes so on CPUs.

    bf16 is that of the matrix unit, else of VDPBF16PS, which makes two multiply-adds a lane, else fp32's, in which it is then computed.
    """
    single = fp32_per_cycle(processor, cpu_model)
    if single is None or precision in {"tf32", "fp16"}:
        return None
    if precision == "fp64":
        return PerCycle(flop=single.flop // 2, units=single.units)
    if precision == "bf16" and "amx_bf16" in processor.flags:
        return PerCycle(flop=_AMX_BF16, units="an AMX matrix unit")
    if precision == "bf16" and "avx512_bf16" in processor.flags:
        return PerCycle(flop=2 * single.flop, units=f"{single.units} in bf16")
    return single


def cpus_peak(shares: Sequence[CpuShare], precision: Arithmetic) -> Peak | str:
    """The peak of the CPUs that train together, or why there is none; one share a host."""
    tflops = 0.0
    sources = []
    for share in shares:
        name = share.cpu_model or "this processor"
        if share.processor is None:
            return f"the record does not tell what instructions {name} has"
        rate = per_cycle(share.processor, share.cpu_model, precision)
        if rate is None:
            kind = f"{share.processor.vendor} family {share.processor.family} model {share.processor.model}"
            return f"no {precision} operations a cycle are known for {name} ({kind})"
        if share.clock_mhz is None:
            return f"the clock of {name} is not known"
        tflops += share.cores * rate.flop * share.clock_mhz * 1e6 / 1e12
        sources.append(
            f"{name}: {share.cores} {'core' if share.cores == 1 else 'cores'} × {rate.flop} FLOP a cycle ({rate.units}) × {share.clock_mhz:.0f} MHz "
            f"({share.clock_source})"
        )
    counted = Counter(sources)  # hosts that are alike once, with their number
    words = [source if count == 1 else f"{count} × ({source})" for source, count in counted.items()]
    return Peak(tflops=tflops, bandwidth_gb_s=None, source=" + ".join(words))
