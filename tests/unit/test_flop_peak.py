"""Dense peaks of GPUs.

Prevents: a figure mistyped, doubled for sparse weights, or of half a board; the entry of another GPU whose name begins alike; a peak
for a slice of a GPU; a utilisation against arithmetic that a GPU does not have.
"""

from __future__ import annotations

import pytest

from runner.analysis.flop.figures import gpu_peak, gpus_peak, known_gpus

# As NVML and CUDA name them, and one figure of each entry: TFLOP/s in fp32 and GB/s, from the datasheets again.
NAMES = {
    "Tesla K20m": (3.52, 208),
    "Tesla K20Xm": (3.95, 250),
    "Tesla K40m": (5.04, 288),
    "Tesla K80": (4.365, 240),
    "Tesla M40": (6.84, 288),
    "Tesla M40 24GB": (6.84, 288),
    "GeForce GTX TITAN X": (6.6, 336.5),
    "NVIDIA GeForce GTX 1080 Ti": (11.34, 484),
    "NVIDIA TITAN X (Pascal)": (10.97, 480),
    "TITAN X (Pascal)": (10.97, 480),
    "NVIDIA TITAN Xp": (12.15, 547.7),
    "Quadro P4000": (5.3, 243),
    "Tesla P100-PCIE-16GB": (9.3, 732),
    "Tesla P100-PCIE-12GB": (9.3, 549),
    "Tesla P100-SXM2-16GB": (10.6, 732),
    "Tesla V100-PCIE-16GB": (14.0, 900),
    "Tesla V100S-PCIE-32GB": (16.4, 1134),
    "Tesla V100-SXM2-32GB": (15.7, 900),
    "Tesla V100-SXM3-32GB": (15.7, 900),
    "Tesla T4": (8.1, 320),
    "NVIDIA GeForce RTX 2080 Ti": (13.4, 616),
    "NVIDIA A10": (31.2, 600),
    "NVIDIA A30": (10.3, 933),
    "NVIDIA A40": (37.4, 696),
    "A100-SXM4-40GB": (19.5, 1555),
    "NVIDIA A100-PCIE-40GB": (19.5, 1555),
    "NVIDIA A100 80GB PCIe": (19.5, 1935),
    "NVIDIA A100-SXM4-80GB": (19.5, 2039),
    "NVIDIA GeForce RTX 3090": (35.6, 936),
    "NVIDIA L4": (30.3, 300),
    "NVIDIA L40S": (91.6, 864),
    "NVIDIA GeForce RTX 4090": (82.6, 1008),
    "NVIDIA RTX 6000 Ada Generation": (91.1, 960),
    "NVIDIA H100 PCIe": (51.2, 2039),
    "NVIDIA H100 80GB HBM3": (66.9, 3352),
    "NVIDIA H100 NVL": (60, 3938),
    "NVIDIA H200": (66.9, 4800),
    "NVIDIA H200 NVL": (60, 4800),
    "NVIDIA B200": (75, 7700),
    "NVIDIA GB200": (80, 8000),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_is_found_by_the_name_that_the_driver_gives_it(name):
    found = gpu_peak(name)
    assert (found.tflops["fp32"], found.bandwidth_gb_s) == NAMES[name]


def test_every_entry_is_found_by_some_name_and_no_name_by_two_entries():
    assert {gpu_peak(name).name for name in NAMES} == {gpu.name for gpu in known_gpus()}
    import re

    for name in NAMES:
        plain = re.sub(r"^(NVIDIA |Tesla |GeForce )+", "", name)
        assert sum(bool(re.fullmatch(gpu.name, plain, re.IGNORECASE)) for gpu in known_gpus()) == 1


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A10G",  # another clock and slower tensor cores than an A10
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "NVIDIA L40",
        "Quadro T400",
        "",
    ],
)
def test_another_gpu_has_no_peak(name):
    assert gpu_peak(name) is None
    assert gpus_peak([name], "fp32") == f"no peak is known for {name}"


@pytest.mark.parametrize("gpu", known_gpus(), ids=lambda gpu: gpu.name)
def test_figures_are_those_of_cores_and_clock_and_stand_in_the_ratios_of_their_units(gpu):
    """Sparse figures are twice the dense ones and would break these: tf32 is half of fp16, bf16 equal to it, fp64 no more than half of fp32.

    A fused multiply-add is two operations.
    """
    flops = gpu.tflops
    assert bool(gpu.cores and gpu.boost_mhz) == (gpu.name not in {"V100-SXM3-32GB(-H)?", "B200", "GB200"})
    if gpu.cores:
        assert gpu.cores * 2 * gpu.boost_mhz * 1e6 / 1e12 == pytest.approx(flops["fp32"], rel=0.02)
    assert set(gpu.tensor) <= set(flops)
    assert flops["fp64"] <= 0.51 * flops["fp32"]
    if "tf32" in flops:
        assert flops["fp16"] == flops["bf16"] == pytest.approx(2 * flops["tf32"], rel=0.03)
    if "fp16" in gpu.tensor:
        assert 1.9 <= flops["fp16"] / flops["fp32"] <= 32.1


@pytest.mark.parametrize(
    ("name", "tensor_fma_per_sm_and_cycle", "sms"),
    [
        # FMA of fp16 with fp32 accumulation, an SM and a cycle: V100 8 tensor cores × 64, A100 4 × 256 (their whitepapers).
        ("Tesla V100-SXM2-16GB", 512, 80),
        ("NVIDIA A100-SXM4-40GB", 1024, 108),
    ],
)
def test_tensor_cores_and_clock_make_the_fp16_figure(name, tensor_fma_per_sm_and_cycle, sms):
    gpu = gpu_peak(name)
    by_hand = sms * tensor_fma_per_sm_and_cycle * 2 * gpu.boost_mhz * 1e6 / 1e12
    assert gpu.tflops["fp16"] == pytest.approx(by_hand, rel=0.01)


def test_hoppers_tensor_cores_are_figured_at_a_lower_clock_than_its_cuda_cores():
    """132 SMs × 2,048 FMA × 2 × 1,830 MHz make 989.4: SXM5 boosts to 1,830 MHz with tensor cores busy."""
    assert gpu_peak("NVIDIA H200").tflops["bf16"] == pytest.approx(132 * 2048 * 2 * 1830e6 / 1e12, rel=0.001)


def test_devices_add_up_and_the_source_says_what_was_taken():
    found = gpus_peak(["NVIDIA H200"] * 4, "bf16")
    assert (found.tflops, found.bandwidth_gb_s) == (4 * 989.4, 4 * 4800)
    assert found.source.startswith("4 × NVIDIA H200: 989.4 TFLOP/s in bf16 on tensor cores; NVIDIA H200 datasheet")
    mixed = gpus_peak(["Tesla V100-SXM2-16GB", "NVIDIA H200"], "fp32")
    assert mixed.tflops == pytest.approx(66.9 + 15.7)
    assert "CUDA cores" in mixed.source


@pytest.mark.parametrize(
    ("name", "precision"), [("Tesla K80", "fp16"), ("Tesla V100-SXM2-16GB", "tf32"), ("Tesla T4", "bf16")]
)
def test_arithmetic_that_a_gpu_lacks_has_no_peak(name, precision):
    assert gpus_peak([name], precision) == f"{name} has no {precision} arithmetic of its own"
