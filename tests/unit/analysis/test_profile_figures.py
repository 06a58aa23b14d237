"""Rows and events of a profiling pass into its `Profile`; every expected number is counted by hand.

Prevents: profiler overhead in the utilisation; kernels of several streams adding up to more than the elapsed time; a kernel counted in the
region where it ran instead of the one that launched it; an operator's time counted again for each enclosing operator, or lost because it
has children; mixed clocks of ranks; a missing figure without a reason.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_rows import ALL_REDUCE, BN, GEMM, WINOGRAD, call, copy, env, kernel, op, region, start, stop, table
from program_events import program_event

from runner.analysis.profile.figures import analyse
from runner.core.events import FlopCount, Memory, Regions
from runner.core.profile import Profile


def profile(frame, *events) -> Profile:
    found = analyse(frame, events or (env(), start(), stop()))
    assert found is not None
    return found


def reasons(found):
    return {one.figure: one.reason for one in found.unavailable}


class TestUtilisation:
    def test_kernels_of_several_streams_count_once(self):
        # 0 to 0.5 with one nested, 0.6 to 0.9 of two that overlap: busy 0.8 of 2 s; 1.05 kernel seconds; 0.25 s with two.
        found = profile(table(kernel(0.0, 0.5), kernel(0.1, 0.3), kernel(0.6, 0.85), kernel(0.8, 0.9)))
        (gpu,) = found.gpus
        assert (gpu.device, gpu.rank) == ("gpu0", 0)
        assert gpu.busy_s == pytest.approx(0.8)
        assert gpu.compute_percent == pytest.approx(40.0)
        assert gpu.concurrency.mean == pytest.approx(1.05 / 0.8)
        assert gpu.concurrency.most == 2
        assert gpu.concurrency.parallel_percent == pytest.approx(100 * 0.25 / 0.8)
        assert gpu.kernels_per_step == 2
        assert found.gpu_total == gpu.model_copy(update={"device": "all", "rank": None})

    def test_elapsed_excludes_the_profilers_overhead(self):
        # Two steps took 1.5 s each under the profiler and 1 s each without: 3 s less its overhead of 1 s.
        found = profile(table(kernel(0.0, 0.5)), env(), start(plain=(1.0, 1.0)), stop(steps=(1.5, 1.5)))
        assert (found.gpus[0].profiled_s, found.gpus[0].elapsed_s) == (3.0, 2.0)
        assert found.gpus[0].compute_percent == pytest.approx(25.0)
        assert (found.steps.plain_step_s, found.steps.profiled_step_s) == (1.0, 1.5)
        assert found.steps.overhead_percent == pytest.approx(50.0)
        # Kernels that take longer than the unprofiled steps were slowed, too: both are those under the profiler.
        found = profile(table(kernel(0.0, 2.4)), env(), start(plain=(1.0,)), stop(steps=(1.5, 1.5)))
        assert (found.gpus[0].elapsed_s, found.gpus[0].compute_percent) == (3.0, pytest.approx(80.0))
        # Elapsed is at least the union, and unprofiled steps that were slower add nothing.
        found = profile(table(kernel(0.0, 3.5)), env(), start(plain=(1.0,)), stop(steps=(1.5, 1.5)))
        assert (found.gpus[0].elapsed_s, found.gpus[0].compute_percent) == (3.5, 100.0)
        found = profile(
            table(kernel(0.0, 1.0), copy(1.0, 1.5, 100)), env(), start(plain=(2.0,)), stop(steps=(1.0, 1.0))
        )
        assert (found.gpus[0].elapsed_s, found.gpus[0].compute_percent) == (2.0, 50.0)  # copies are not compute
        assert found.steps.overhead_percent == pytest.approx(-50.0)

    def test_waiting_in_collectives_is_separate(self):
        found = profile(table(kernel(0.0, 0.5), kernel(0.4, 1.4, ALL_REDUCE)))
        assert found.gpus[0].compute_percent == pytest.approx(70.0)
        assert found.gpus[0].own_compute_percent == pytest.approx(25.0)

    def test_each_rank_and_device_has_its_own_clock(self):
        frame = table(
            kernel(0.0, 1.0),
            kernel(5000.0, 5000.5, rank=1, device=1),
            kernel(5000.2, 5000.4, rank=1, device=2),
        )
        found = profile(frame, env(), start(0), stop(0), start(1), stop(1, steps=(0.5, 0.5)))
        assert [(gpu.device, gpu.rank, gpu.compute_percent) for gpu in found.gpus] == [
            ("gpu0", 0, pytest.approx(50.0)),
            ("gpu1", 1, pytest.approx(50.0)),
            ("gpu2", 1, pytest.approx(20.0)),
        ]
        # 1 + 0.5 + 0.2 busy seconds in 2 + 1 + 1.
        assert found.gpu_total.compute_percent == pytest.approx(100 * 1.7 / 4)

    def test_a_pass_of_a_single_region(self):
        """Two passages of 0.25 s: the profiler was off for the rest of the steps, which elapsed excludes."""
        frame = table(
            region(0.0, 0.25, "backward"),
            region(1.0, 1.25, "backward"),
            kernel(0.0, 0.2),
            kernel(1.0, 1.2),
        )
        found = profile(frame, env(), start(region="backward"), stop())
        assert found.gpus[0].elapsed_s == pytest.approx(0.5)
        assert found.gpus[0].compute_percent == pytest.approx(80.0)
        # The 0.8 s between the passages are no gap either.
        assert [round(gap.seconds, 9) for gap in found.gaps] == [0.05, 0.05]

    def test_a_region_has_its_share_of_the_profilers_overhead(self):
        """The overhead of whole steps was taken off the region: ResNet-18's at batch 4 was busy for 100 % of what was left."""
        passages = (region(0.0, 0.25, "backward"), region(1.0, 1.25, "backward"))
        frame = table(*passages, kernel(0.0, 0.1), kernel(1.0, 1.1))
        found = profile(frame, env(), start(region="backward", plain=(0.8, 0.8)), stop())
        # Steps of 2 s took 0.4 s more, a quarter of that in 0.5 s of the region.
        assert found.gpus[0].elapsed_s == pytest.approx(0.4)
        assert found.gpus[0].compute_percent == pytest.approx(50.0)

    rows = st.lists(
        st.tuples(st.floats(0, 10), st.floats(0, 3), st.integers(0, 1), st.sampled_from([GEMM, ALL_REDUCE])),
        max_size=12,
    )

    @settings(max_examples=40)
    @given(rows, st.floats(0.01, 5), st.floats(0.01, 5))
    def test_percentages_stay_within_0_and_100(self, rows, plain, profiled):
        frame = table(*(kernel(at, at + long, name, device=device) for at, long, device, name in rows))
        found = profile(frame, env(), start(plain=(plain,)), stop(steps=(profiled,)))
        for gpu in (*found.gpus, *([found.gpu_total] if found.gpu_total else [])):
            assert 0 <= gpu.own_compute_percent <= 100
            assert 0 <= gpu.compute_percent <= 100
            assert gpu.busy_s <= gpu.elapsed_s * (1 + 1e-9)


class TestCopies:
    def test_direction_size_and_overlap(self):
        # 0.3 s of copying, 0.1 s of it concurrent with a kernel; 3e8 bytes in 0.3 s.
        frame = table(
            kernel(0.0, 0.5),
            copy(0.4, 0.6, 10**8),
            copy(0.7, 0.8, 2 * 10**8),
            copy(0.9, 0.95, 4, "Memcpy DtoH (Device -> Pageable)"),
        )
        first, second = profile(frame).copies
        assert (first.direction, first.count, first.bytes, first.mean_bytes) == ("HtoD", 2, 3 * 10**8, 1.5 * 10**8)
        assert first.throughput_gb_s == pytest.approx(1.0)
        assert first.overlap_percent == pytest.approx(100 / 3)
        assert (second.direction, second.bytes, second.overlap_percent) == ("DtoH", 4, 0.0)
        elsewhere = profile(table(kernel(0.0, 1.0, device=1), copy(0.0, 1.0, 10)))
        assert elsewhere.copies[0].overlap_percent == 0.0  # the kernel of another GPU hides nothing

    def test_copies_of_unknown_size(self):
        (one,) = profile(table(copy(0.0, 1.0, None))).copies
        assert (one.bytes, one.throughput_gb_s, one.mean_bytes) == (None, None, None)


class TestShares:
    def test_categories_and_names(self):
        frame = table(
            kernel(0, 3, WINOGRAD),
            kernel(3, 4, BN),
            kernel(4, 7, WINOGRAD),
            copy(7, 8, 1),
            {"kind": "set", "name": "Memset (Device)", "start": 8, "duration": 2},
        )
        found = profile(frame)
        assert [(one.category, one.count, one.seconds, one.share_percent) for one in found.categories] == [
            ("convolution_winograd", 2, 6.0, 60.0),
            ("memset", 1, 2.0, 20.0),
            ("batch_norm_forward", 1, 1.0, 10.0),
            ("copy_htod", 1, 1.0, 10.0),
        ]
        first = found.kernels[0]
        assert (first.name, first.count, first.mean_s, first.share_percent) == (WINOGRAD, 2, 3.0, 60.0)
        assert found.work == "kernels"

    def test_calls_of_the_cuda_api(self):
        frame = table(
            kernel(0, 1),
            call(0.0, 0.3),
            call(0.3, 0.6, "cudaLaunchKernel_v7000"),
            call(0.6, 0.9, "cudaEventDestroy"),
            call(0.9, 1.2, "cudaMalloc"),
        )
        found = profile(frame)
        assert [(one.name, one.count) for one in found.calls] == [
            ("cudaLaunchKernel", 2),
            ("cudaEventDestroy", 1),
            ("cudaMalloc", 1),
        ]
        assert {one.call_class: one.share_percent for one in found.call_classes} == {
            "launch": pytest.approx(50.0),
            "event": pytest.approx(25.0),
            "memory_management": pytest.approx(25.0),
        }
        assert found.launches_per_step == 1.0
        assert profile(table(kernel(0, 1), call(0.0, 0.3, "cudaMalloc"))).launches_per_step is None, "none was traced"

    def test_a_name_of_thousands_of_characters_is_shortened_in_the_record(self):
        found = profile(table(kernel(0, 1, "void cutlass::Kernel<" + "x" * 3000)))
        assert len(found.kernels[0].name) == 240


class TestRegions:
    def test_a_kernel_belongs_to_the_region_that_launched_it(self):
        """The second kernel runs while the program is already in backward; the third has no call and follows its operator."""
        frame = table(
            region(0.0, 1.0, "forward"),
            region(1.0, 2.0, "backward"),
            call(0.1, 0.2, correlation=1),
            call(0.9, 1.0, correlation=2),
            op(1.5, 1.6, "aten::mm", op=7),
            kernel(0.2, 0.4, correlation=1),
            kernel(1.1, 1.4, correlation=2),
            kernel(2.0, 2.5, op=7),
            kernel(3.0, 3.1),
        )
        forward, backward, nowhere = profile(frame).regions
        assert (forward.name, backward.name, nowhere.name) == ("forward", "backward", None)
        # Over two steps.
        assert (forward.step_s, forward.pieces_per_step) == (0.5, 1.0)
        assert forward.work_s == pytest.approx(0.25)
        assert backward.work_s == pytest.approx(0.25)
        assert nowhere.work_s == pytest.approx(0.05)
        assert forward.share_percent == pytest.approx(100 * 0.5 / 1.1)

    def test_equal_correlations_of_two_ranks_are_not_mixed(self):
        frame = table(
            region(0.0, 1.0, "forward"),
            call(0.1, 0.2, correlation=1),
            kernel(2.0, 2.2, correlation=1),
            region(0.0, 1.0, "backward", rank=1),
            call(0.1, 0.2, correlation=1, rank=1),
            kernel(2.0, 2.2, correlation=1, rank=1),
        )
        found = profile(frame, env(), start(0), stop(0), start(1), stop(1))
        assert [(one.name, one.share_percent) for one in found.regions] == [("forward", 50.0), ("backward", 50.0)]

    def test_a_pass_for_regions_has_only_their_times(self):
        timed = [
            program_event(Regions, name=name, seconds=seconds)
            for name, seconds in (("step", (0.8, 0.9)), ("input", (0.1, 0.3)))
        ]
        found = profile(None, env("cpu"), start(kind="region", source="clock"), *timed, stop())
        assert [(one.name, one.step_s, one.work_s) for one in found.regions] == [
            ("input", pytest.approx(0.2), None),
            ("step", pytest.approx(0.85), None),
        ]
        assert reasons(found) == {"kernels": "a pass for region traces none; ask for PROFILE=kernels"}


class TestCounters:
    def test_weighted_and_unweighted(self):
        """3 s at 20 % and 1 s at 60 %, twice: (0.6 + 1.2) ÷ 5 weighted, (20 + 60 + 60) ÷ 3 unweighted."""
        frame = table(
            kernel(0, 3, WINOGRAD, fp32_percent=20, tensor_percent=0, dram_bytes=100, flop=900),
            kernel(3, 4, GEMM, fp32_percent=60, tensor_percent=10, dram_bytes=50, flop=300),
            kernel(4, 5, GEMM, fp32_percent=60, tensor_percent=10, dram_bytes=50),
            kernel(5, 6, BN),
        )
        counters = profile(frame).counters
        assert counters.fp32_percent == pytest.approx(100 * (0.2 * 3 + 0.6 * 2) / 5)
        assert counters.fp32_unweighted_percent == pytest.approx(140 / 3)
        assert counters.tensor_percent == pytest.approx(4.0)
        assert counters.dram_bytes_per_step == 100
        assert counters.flop_per_kernel == 600, "of the two that tell it"
        assert counters.covered_percent == pytest.approx(100 * 5 / 6)
        assert [(one.name, one.fp32_percent) for one in counters.low] == [(WINOGRAD, pytest.approx(20.0))]

    def test_serialized_kernels_have_no_start(self):
        frame = table({"kind": "kernel", "name": GEMM, "duration": 0.5, "fp32_percent": 30.0})
        found = profile(frame, env(), start(kind="metrics", source="cuda profiler api"), stop())
        assert found.gpus == ()
        assert found.counters.fp32_percent == 30.0
        assert found.categories[0].seconds == 0.5
        assert reasons(found)["GPU compute utilisation"] == "the rows of the kernels have no start"


def test_calls_of_a_whole_process_have_no_figure_per_step():
    frame = table(call(-5, -4, "cuDeviceGetAttribute"), call(1, 4, "cudaLaunchKernel_v7000"))
    found = profile(frame, env(), start(kind="calls", source="CUPTI", plain=()), stop())
    assert [(one.name, one.share_percent) for one in found.calls] == [
        ("cudaLaunchKernel", 75),
        ("cuDeviceGetAttribute", 25),
    ]
    assert (found.launches_per_step, found.steps.overhead_percent) == (None, None)
    assert reasons(found) == {"kernels": "a pass for calls traces none; ask for PROFILE=kernels"}


class TestGaps:
    def test_the_longest_with_their_neighbours(self):
        frame = table(kernel(1.0, 2.0, GEMM), kernel(1.5, 2.5, WINOGRAD), copy(3.5, 4.0, 1), kernel(4.25, 5.0, BN))
        first, second = profile(frame).gaps
        assert (first.start_s, first.seconds, first.after) == (1.5, 1.0, WINOGRAD)
        assert first.before == "Memcpy HtoD (Pinned -> Device)"
        assert (second.start_s, second.seconds, second.before) == (3.0, 0.25, BN)


class TestCpu:
    def test_an_operator_s_own_time(self):
        """A convolution of 0.6 s around an allocation of 0.1 s, within a module of 0.7 s: 0.5, 0.1 and 0.1 s."""
        frame = table(
            op(0.0, 0.7, "nn.Module: Conv2d_0", op=1),
            op(0.0, 0.6, "aten::mkldnn_convolution", op=2, parent=1),
            op(0.1, 0.2, "aten::empty", op=3, parent=2),
            op(0.8, 1.1, "aten::mm", op=4),
        )
        found = profile(frame, env("cpu"), start(), stop())
        assert {one.name: (one.category, pytest.approx(one.seconds)) for one in found.kernels} == {
            "aten::mkldnn_convolution": ("convolution_other", 0.5),
            "aten::mm": ("gemm", 0.3),
            "nn.Module: Conv2d_0": ("convolution_other", 0.1),
            "aten::empty": ("other", 0.1),
        }
        assert found.work == "operators"
        assert sum(one.share_percent for one in found.categories) == pytest.approx(100)

    def test_gpu_figures_say_why_they_are_missing(self):
        found = profile(table(op(0, 1, "aten::mm", op=1)), env("cpu"), start(), stop())
        assert (found.gpus, found.gpu_total, found.copies, found.calls, found.counters) == ((), None, (), (), None)
        assert set(reasons(found).values()) == {"no NVIDIA device"}
        assert {"GPU compute utilisation", "FP32 utilisation", "kernel concurrency"} <= set(reasons(found))

    def test_operators_on_a_gpu_are_not_mistaken_for_kernels(self):
        found = profile(
            table(op(0, 1, "Convolution", op=1, device=0)), env("gpu"), start(source="mxnet.profiler"), stop()
        )
        assert (found.work, found.gpus) == ("operators", ())
        assert reasons(found)["GPU compute utilisation"] == "mxnet.profiler shows no kernels"


def memory(phase, *, rank=0, device="host", peak_bytes=1):
    sizes = {"allocated_bytes": 1, "reserved_bytes": None, "peak_bytes": peak_bytes}
    return program_event(Memory, rank=rank, phase=phase, device=device, **sizes)


def test_memory_and_counts_of_a_pass_are_kept_in_the_order_of_a_step():
    told = [
        memory("backward"),
        memory("forward", rank=1, device="gpu0", peak_bytes=9),
        memory("model"),
        memory("forward"),
    ]
    flop = [
        program_event(FlopCount, rank=rank, source="torch", phase="forward", flop_per_sample=2e9) for rank in (1, 0)
    ]
    found = profile(None, env("cpu"), start(kind="memory"), stop(), *told, *flop)
    places = [(one.rank, one.phase) for one in found.memory]
    assert places == [(0, "model"), (0, "forward"), (0, "backward"), (1, "forward")]
    assert (found.memory[-1].peak_bytes, found.memory[-1].reserved_bytes) == (9, None)
    assert [one.flop_per_sample for one in found.flop] == [2e9]


class TestMissing:
    def test_no_profiled_rank_or_no_rows(self):
        assert analyse(None, [env()]) is None
        found = profile(table())
        assert (found.work, found.categories, found.kernels, found.regions) == (None, (), (), ())
        assert reasons(found)["GPU compute utilisation"] == "torch.profiler shows no kernels"

    def test_a_rank_that_did_not_end_is_named(self):
        found = profile(table(kernel(0, 1), kernel(0, 1, rank=1)), env(), start(0), start(1), stop(0))
        assert [gpu.rank for gpu in found.gpus] == [0]
        assert found.steps is None
        assert reasons(found)["elapsed time of rank 1"] == "it did not end its pass"

    def test_rows_without_a_duration_are_left_out_and_named(self):
        frame = table(kernel(0, 1), {"kind": "kernel", "name": GEMM, "start": 2.0})
        found = profile(frame)
        assert found.kernels[0].count == 1
        assert reasons(found)["some rows"] == "1 have no duration and are left out"
