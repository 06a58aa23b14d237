"""Peak of CPU workers.

Prevents: a core credited with units that its kind lacks (one 512-bit unit for two, Zen 4's halves for whole ones); bf16 credited to a
processor without it; a peak without a clock; an unknown processor with a guessed peak.
"""

from __future__ import annotations

import pytest

from runner.flop.cpu import CpuShare, cpus_peak, per_cycle
from runner.machine.processor import Processor

AVX2 = ("sse2", "avx", "fma", "avx2")
AVX512 = (*AVX2, "avx512f")
ZEN4 = (*AVX512, "avx512_bf16")


def processor(vendor, family, model, flags):
    return Processor(vendor=vendor, family=family, model=model, flags=flags, core_threads=())


def intel(model, flags):
    return processor("GenuineIntel", 6, model, flags)


def amd(family, model, flags):
    return processor("AuthenticAMD", family, model, flags)


# Operations a cycle in single precision, by hand: units × lanes × 2.
SINGLE = [
    ("Nehalem", intel(26, ("sse2",)), "Xeon X5570", 8),
    ("Ivy Bridge", intel(62, ("sse2", "avx")), "Xeon E5-2650 v2", 16),
    ("Broadwell", intel(79, AVX2), "Xeon E5-2690 v4", 32),
    ("Skylake server", intel(85, AVX512), "Intel(R) Xeon(R) Gold 6148 CPU", 64),
    ("one unit", intel(85, AVX512), "Intel(R) Xeon(R) Silver 4114 CPU", 32),
    ("one unit", intel(85, AVX512), "Intel(R) Xeon(R) Gold 5118 CPU", 32),
    ("two units", intel(85, AVX512), "Intel(R) Xeon(R) Gold 5122 CPU", 64),
    ("Ice Lake server", intel(106, AVX512), "Intel(R) Xeon(R) Silver 4314 CPU", 64),
    ("Tiger Lake", intel(140, AVX512), "11th Gen Intel(R) Core(TM) i7", 32),
    ("Gracemont", intel(190, AVX2), "Intel(R) N100", 16),
    ("Zen", amd(23, 1, AVX2), "AMD EPYC 7601", 16),
    ("Zen 2", amd(23, 49, AVX2), "AMD EPYC 7742", 32),
    ("Zen 3", amd(25, 1, AVX2), "AMD EPYC 7763", 32),
    ("Zen 4", amd(25, 17, ZEN4), "AMD EPYC 9654", 32),
    ("Zen 5 server", amd(26, 2, ZEN4), "AMD EPYC 9755", 64),
    ("Zen 5 desktop", amd(26, 68, ZEN4), "AMD Ryzen 9 9950X", 64),
    ("Zen 5 notebook", amd(26, 36, ZEN4), "AMD Ryzen AI 9 HX 370", 32),
    ("Hygon", processor("HygonGenuine", 24, 1, AVX2), "Hygon C86 7185", 16),
]


@pytest.mark.parametrize(("kind", "found", "name", "flop"), SINGLE, ids=[f"{row[0]}: {row[2]}" for row in SINGLE])
def test_operations_a_cycle(kind, found, name, flop):
    assert per_cycle(found, name, "fp32").flop == flop
    assert per_cycle(found, name, "fp64").flop == flop / 2


@pytest.mark.parametrize(
    ("found", "flop", "units"),
    [
        (intel(143, (*ZEN4, "amx_bf16")), 1024, "an AMX matrix unit"),
        (intel(85, ZEN4), 128, "two 512-bit FMA units in bf16"),  # Cooper Lake
        (amd(25, 17, ZEN4), 64, "two 256-bit FMA units in bf16"),
        (amd(25, 1, AVX2), 32, "two 256-bit FMA units"),  # computed in fp32
    ],
)
def test_bf16_is_what_its_instructions_do(found, flop, units):
    rate = per_cycle(found, "", "bf16")
    assert (rate.flop, rate.units) == (flop, units)


@pytest.mark.parametrize(
    "found",
    [
        amd(21, 2, ("sse2", "avx", "fma")),  # two cores share their units
        processor("CentaurHauls", 7, 59, AVX2),
        amd(99, 1, AVX512),
        intel(1, ()),
    ],
)
def test_an_unknown_processor_has_no_peak(found):
    assert per_cycle(found, "Oddity", "fp32") is None
    share = CpuShare(processor=found, cpu_model="Oddity", cores=2, clock_mhz=1000.0, clock_source="told")
    assert cpus_peak([share], "fp32") == (
        f"no fp32 operations a cycle are known for Oddity ({found.vendor} family {found.family} model {found.model})"
    )


def test_the_peak_by_hand_with_its_method_in_words():
    """2 cores × 32 × 2.5 GHz are 160 GFLOP/s, and 8 × 64 × 2 GHz are 1,024."""
    zen4 = CpuShare(
        processor=amd(25, 17, ZEN4), cpu_model="AMD EPYC", cores=2, clock_mhz=2500.0, clock_source="mean clock"
    )
    skylake = CpuShare(
        processor=intel(85, AVX512), cpu_model="Xeon Gold 6148", cores=8, clock_mhz=2000.0, clock_source="told"
    )
    found = cpus_peak([zen4, skylake], "fp32")
    assert found.tflops == pytest.approx(0.160 + 1.024)
    assert found.bandwidth_gb_s is None
    assert found.source == (
        "AMD EPYC: 2 cores × 32 FLOP a cycle (two 256-bit FMA units) × 2500 MHz (mean clock) + "
        "Xeon Gold 6148: 8 cores × 64 FLOP a cycle (two 512-bit FMA units) × 2000 MHz (told)"
    )


def test_hosts_that_are_alike_are_named_once_with_their_number():
    share = CpuShare(processor=amd(25, 17, ZEN4), cpu_model="AMD EPYC", cores=2, clock_mhz=2500.0, clock_source="told")
    found = cpus_peak([share, share], "fp32")
    assert found.tflops == pytest.approx(0.320)
    assert found.source.startswith("2 × (AMD EPYC: 2 cores × 32 FLOP a cycle")


@pytest.mark.parametrize("precision", ["tf32", "fp16"])
def test_precisions_that_no_program_computes_on_cpus_have_no_peak(precision):
    assert per_cycle(amd(25, 17, ZEN4), "AMD EPYC", precision) is None


def test_without_flags_or_clock_there_is_no_peak_and_the_reason_is_said():
    blind = CpuShare(processor=None, cpu_model="AMD EPYC", cores=2, clock_mhz=2500.0, clock_source="told")
    assert cpus_peak([blind], "fp32") == "the record does not tell what instructions AMD EPYC has"
    timeless = CpuShare(processor=amd(25, 17, ZEN4), cpu_model=None, cores=2, clock_mhz=None, clock_source="told")
    assert cpus_peak([timeless], "fp32") == "the clock of this processor is not known"
