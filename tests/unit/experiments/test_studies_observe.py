"""Runs of a cell as observations.

Prevents: repeats pooled by averaging rates; an invalid run in a figure; a speedup against the wrong run; concurrent trainings counted as
consecutive; a GPU's figure reported for a CPU; a missing figure without a reason; a full training extrapolated from images of another size.
"""

from __future__ import annotations

import math

import examples
import pytest
import studied
import swept
from records import events, record
from studied import observation

from runner.analysis.grading.measure import measure
from runner.core.measurement import AccuracyFigures, EpochFigures, LatencyFigures, Percentiles, RawWindow
from runner.core.profile import Copies, Counters, NameShare
from runner.core.telemetry import Range
from runner.core.trial import Concurrent
from runner.experiments.studies.measured import converged_at
from runner.experiments.studies.model import Altered, Cell, CellRun
from runner.experiments.studies.observe import derived, observed
from runner.results.published import load as published

DELL = published.load(published.DIRECTORY / "dell-emc-2016-p100.yaml")
CPU = studied.machine()
GPU = studied.machine(device="gpu", devices=(8,), device_name="NVIDIA H200")


def cell(**where):
    more = {name: where.pop(name) for name in ("case", "altered", "whole_time") if name in where}
    return Cell(id="cell", block="block", where={"framework": "mxnet", "model": "resnet18", **where}, **more)


def observe(runs, *, here=CPU, **where):
    """Return observations by metric, without those over time, and missing ones by metric."""
    found, missing = observed([CellRun(cell=cell(**where), runs=tuple(runs))], published=DELL, machine=here)
    by_metric = {}
    for one in found:
        by_metric.setdefault(one.metric if one.iterations is None else f"{one.metric} over time", []).append(one)
    return by_metric, {one.metric: one.why for one in missing}


def run(seconds=0.1, *, run_id="run-1", status="valid", update=None, **changes):
    """A run of 40 iterations at batch 32, of `seconds` each."""
    trial = examples.trial(**changes)
    figures = measure(events(trial, seconds=seconds), started=0.0, unit="images/s")
    found = record(run_id=run_id, trial=trial, status=status)
    return found.model_copy(update={"measurement": figures.model_copy(update=update or {})})


class TestRates:
    def test_repeats_are_pooled_by_samples_and_seconds(self):
        # 2 × 1,280 images in 4 + 12 s are 160/s; the mean of the rates, 320 and 106.7, would be 213.
        found, _ = observe([run(0.1, run_id="a"), run(0.3, run_id="b", repeat=2)], gpus=1)
        (rate,) = found["throughput"]
        assert rate.value == pytest.approx(160)
        assert (rate.ci95, rate.freedom) == (None, None)
        assert (rate.repeats, rate.degraded, rate.runs) == (2, 0, ("a", "b"))
        assert found["iteration_time"][0].value == pytest.approx(0.2)

    def test_three_repeats_have_an_interval(self):
        """Steps of 0.1 s, 2 % more and 2 % less on a logarithmic scale: t(2) × 0.02 ÷ sqrt(3)."""
        steps = [0.1 * math.exp(x) for x in (-0.02, 0.0, 0.02)]
        found, _ = observe([run(step, run_id=str(n), repeat=n) for n, step in enumerate(steps, start=1)], gpus=1)
        (rate,), (time,) = found["throughput"], found["iteration_time"]
        factor = math.exp(4.30265 * 0.02 / math.sqrt(3))
        assert (rate.repeats, rate.freedom, time.freedom) == (3, 2, 2)
        assert rate.ci95.high / rate.value == pytest.approx(factor)
        assert time.value / time.ci95.low == pytest.approx(factor)

    def test_iteration_time_does_not_depend_on_the_unit_of_throughput(self):
        """A GAN's iteration time was too short by the factor of batches that its critic reads."""
        one = run(0.1)
        windows = tuple(w.model_copy(update={"units": 5.0 * w.samples}) for w in one.measurement.windows)
        throughput = one.measurement.throughput.model_copy(update={"value": one.measurement.throughput.value * 5})
        counted = one.measurement.model_copy(update={"windows": windows, "throughput": throughput})
        found, _ = observe([one.model_copy(update={"measurement": counted})], gpus=1)
        assert found["throughput"][0].value == pytest.approx(1600)
        assert found["iteration_time"][0].value == pytest.approx(0.1)

    def test_invalid_runs_are_left_out(self):
        found, _ = observe([run(0.1, run_id="a"), run(9.9, run_id="b", status="invalid")], gpus=1)
        assert found["throughput"][0].value == pytest.approx(320)
        assert found["throughput"][0].runs == ("a",)

    def test_the_device_comes_from_the_record(self):
        """A run on file was attributed to the machine of the present study."""
        one = swept.measured(64, 1000)[1]
        found, _ = observe([one], here=GPU.model_copy(update={"device_name": "NVIDIA A100"}), gpus=1)
        assert found["throughput"][0].device_name == "NVIDIA H200"

    def test_without_a_usable_run_the_reason_is_kept(self):
        found, missing = observe([run(status="invalid")], gpus=1)
        assert "throughput" not in found
        assert missing["throughput"] == "made up"

    def test_the_time_of_a_whole_program_excludes_the_suites_own_passes(self):
        """The source takes it from a log's time stamps: 100 s in total, of which 2 create the container and 20 + 8 are the suite's own passes."""
        spent = {"build": 7.0, "create": 2.0, "total": 100.0, "import": 5.0, "probe_compute": 20.0, "input_alone": 8.0}
        one = run(0.1)
        one = one.model_copy(update={"outcome": one.outcome.model_copy(update={"phases_s": spent})})
        found, _ = observe([one], gpus=1, whole_time=True)
        assert found["training_time"][0].value == pytest.approx(70)
        assert "start-up" in found["training_time"][0].method
        fewer = Altered(field="iterations", published="4,000 iterations", here="20 iterations")
        found, missing = observe([one], gpus=1, whole_time=True, altered=(fewer,))
        assert "start-up" in missing["training_time"]
        assert found["samples_per_run"][0].value == 1280

    def test_training_time_is_the_mean_of_the_repeats_with_its_interval(self):
        """4, 8 and 36 s."""
        found, _ = observe([run(s, run_id=str(n), repeat=n) for n, s in enumerate((0.1, 0.2, 0.9), start=1)], gpus=1)
        time = found["training_time"][0]
        assert (time.value, time.freedom) == (pytest.approx(16), 2)
        assert time.ci95.high - time.value == pytest.approx(4.30265 * math.sqrt(304) / math.sqrt(3))
        assert found["samples_per_run"][0].value == 1280

    def test_windows_count_iterations_including_warmup(self):
        found, _ = observe([run(0.1)], gpus=1)
        windows = found["iteration_time over time"]
        assert [one.iterations for one in windows[:3]] == [6, 8, 10]
        assert windows[-1].iterations == 44
        assert windows[0].value == pytest.approx(0.1)

    def test_inference_has_total_time_and_time_per_batch(self):
        """The time per batch was that of an iteration, of which several overlap."""
        alone = Percentiles(p50=0.125, p90=0.2, p99=0.3, repeats=16)
        update = {"latency": LatencyFigures(with_transfer=alone, without_transfer=None), "in_flight": 4}
        found, _ = observe([run(0.1, mode="infer", update=update)], gpus=1, mode="inference")
        assert found["inference_time"][0].value == pytest.approx(4)
        assert found["time_per_batch"][0].value == pytest.approx(0.125)
        assert "training_time" not in found

    def test_an_inference_has_the_time_of_the_sources_samples_however_many_it_ran(self):
        """40 iterations of 32 in 4 s. Batch 1 had the time of fewer samples than a batch of all, and looked as fast."""
        for samples, seconds, counted in ((320, 1, 320), (1280, 4, 1280), (5120, 16, 5120), (None, 4, 1280)):
            planned = cell(gpus=1, mode="inference").model_copy(update={"samples": samples})
            observations, _ = observed(
                [CellRun(cell=planned, runs=(run(0.1, mode="infer"),))], published=DELL, machine=CPU
            )
            found = {one.metric: one.value for one in observations}
            assert found["inference_time"] == pytest.approx(seconds)
            assert found["samples_per_run"] == counted


class TestQuality:
    def epoch(self, number, accuracy):
        own = {"epoch": number, "iterations": 4, "train_loss": 2.0, "val_loss": None, "validation_samples": 100}
        return EpochFigures(**own, accuracy_percent=accuracy, seconds=1.0, elapsed_s=number)

    def test_learning_curves_are_observed_per_epoch(self):
        curve = tuple(self.epoch(number, accuracy) for number, accuracy in ((1, 50.0), (2, 80.0), (3, 80.5)))
        found, _ = observe([run(update={"epochs": curve})], gpus=1)
        assert [(one.epoch, one.value) for one in found["accuracy"]] == [(1, 50.0), (2, 80.0), (3, 80.5)]
        assert found["accuracy"][0].ci95 is None  # of a single process
        assert len(found["train_loss"]) == 3
        assert "val_loss" not in found
        assert found["epochs_to_converge"][0].value == 2

    def test_a_shortened_run_tells_no_epoch_of_convergence(self):
        """A run of five epochs in place of 50 has its best accuracy in one of the five, whether or not it has converged."""
        fewer = Altered(field="iterations", published="50 epochs", here="2 epochs")
        curve = tuple(self.epoch(number, accuracy) for number, accuracy in ((1, 50.0), (2, 80.0)))
        found, missing = observe([run(update={"epochs": curve})], gpus=1, altered=(fewer,))
        assert len(found["accuracy"]) == 2
        assert "may end before it converges" in missing["epochs_to_converge"]

    def test_a_run_whose_accuracy_still_rises_at_its_end_tells_no_epoch_of_convergence(self):
        curves = [
            tuple(self.epoch(number, accuracy) for number, accuracy in enumerate(accuracies, start=1))
            for accuracies in ((50.0, 80.0, 80.5), (50.0, 70.0, 80.0))
        ]
        runs = [run(run_id=str(number), repeat=number, update={"epochs": curve}) for number, curve in enumerate(curves)]
        found, missing = observe(runs, gpus=1)
        assert len(found["accuracy"]) == 3
        assert "still rose" in missing["epochs_to_converge"]

    @pytest.mark.parametrize(
        ("accuracies", "low", "high"),
        [
            ((50.0, 50.0, 50.0), 40.4, 59.6),  # Wilson's interval of 50 of 100: three repeats of one seed count as one
            ((30.0, 50.0, 70.0), 50 - 4.303 * 20 / 3**0.5, 50 + 4.303 * 20 / 3**0.5),  # Student's
        ],
    )
    def test_the_interval_of_an_accuracy_is_the_wider_of_repeats_and_images(self, accuracies, low, high):
        runs = [
            run(run_id=str(nth), repeat=nth, update={"epochs": (self.epoch(1, value),)})
            for nth, value in enumerate(accuracies, start=1)
        ]
        found, _ = observe(runs, gpus=1)
        assert found["accuracy"][0].ci95.low == pytest.approx(low, abs=0.05)
        assert found["accuracy"][0].ci95.high == pytest.approx(high, abs=0.05)

    @pytest.mark.parametrize(("accuracies", "epoch"), [((50, 79, 80), 2), ((50, 78.9, 80), 3), ((80, 50, 60), 1)])
    def test_converged_is_within_a_point_of_the_best(self, accuracies, epoch):
        assert converged_at(list(enumerate(accuracies, start=1))) == epoch

    def test_predictions(self):
        figures = AccuracyFigures(
            precision="int8",
            samples=1000,
            percent=70,
            reference="fp32",
            reference_percent=72,
            agree_percent=95,
            fit_iterations=4,
        )
        found, _ = observe([run(mode="infer", update={"accuracy": figures})], gpus=1)
        assert found["accuracy"][0].value == 70
        assert found["accuracy"][0].epoch is None


class TestCases:
    def training(self, number, case, *, start=0.0, seconds=4.0, repeat=1):
        window = RawWindow(rank=0, index=0, start=start, samples=1280, seconds=seconds)
        concurrent = Concurrent(trainings=2, case=case, number=number)
        update = {"windows": (window,), "training_time_s": seconds}
        return run(run_id=f"{case}-{number}-{repeat}", concurrent=concurrent, repeat=repeat, update=update)

    def total(self, *runs):
        found, missing = observe(list(runs), gpus=4, case="a case")
        assert set(found) <= {"total_time"}
        return found["total_time"][0].value if found else missing["total_time"]

    def test_concurrent_time_is_first_start_to_last_end_and_consecutive_time_the_sum(self):
        for case, total in (("together", 5.5), ("sequential", 9)):
            own = (self.training(1, case, start=100, seconds=4), self.training(2, case, start=100.5, seconds=5))
            assert self.total(*own) == total
        assert self.total(self.training(1, "one")) == 4

    def test_an_incomplete_case_is_missing(self):
        assert "not all of the trainings" in self.total(self.training(1, "together"))

    def test_each_repeat_is_a_separate_case(self):
        own = [
            self.training(number, "together", start=100 * repeat + number / 4, repeat=repeat)
            for repeat in (1, 2)
            for number in (1, 2)
        ]
        assert self.total(*own) == 4.25

    def test_trainings_that_start_far_apart_are_not_at_once(self):
        """Steps that take less time than lies between the starts run one after the other, and their time was mostly the pause."""
        own = [self.training(number, "together", start=2.0 * number, seconds=0.5) for number in (1, 2)]
        assert self.total(*own) == "trainings at once started 2.0 s apart, which is more than a tenth of their 2.5 s"


class TestDevices:
    def test_telemetry_of_a_gpu_is_observed(self):
        found, missing = observe([swept.measured(64, 1000)[1]], here=GPU, gpus=1)
        assert found["gpu_utilisation_avg"][0].value == pytest.approx(90)
        assert found["power_avg"][0].value == pytest.approx(600)
        idle = next(one for one in found["power_avg"] if one.state == "idle")
        assert idle.value == found["power_idle"][0].value == pytest.approx(75)
        assert found["fp32_utilisation"][0].value == pytest.approx(25)
        assert found["throughput"][0].device == "gpu"
        assert "temperature_avg" in missing
        assert "gpu_memory" in missing

    def test_temperature_has_mean_and_extremes(self):
        one = swept.measured(64, 1000)[1]
        (gpu,) = one.telemetry.gpus
        warm = gpu.model_copy(update={"temperature_c": Range(min=50, avg=60, max=65)})
        one = one.model_copy(update={"telemetry": one.telemetry.model_copy(update={"gpus": (warm,)})})
        found, _ = observe([one], here=GPU, gpus=1)
        assert [found[f"temperature_{end}"][0].value for end in ("min", "avg", "max")] == [50, 60, 65]
        assert found["temperature_avg"][0].unit == "°C"

    def test_a_cpu_that_stands_for_a_gpu_has_no_gpu_telemetry(self):
        found, missing = observe([swept.measured(64, 1000)[1]], gpus=1)
        assert "gpu_utilisation_avg" not in found
        assert missing["gpu_utilisation_avg"] == "no NVIDIA device"
        assert missing["fp32_utilisation"] == "no NVIDIA device"

    def test_runs_without_telemetry_say_so(self):
        _, missing = observe([run()], gpus=1)
        assert "not watched" in missing["power_avg"]


class TestPasses:
    def traced(self, **profile):
        found = swept.traced(64, 0.2, 0.1)[1]
        changes = {name: profile.pop(name) for name in ("world_size",) if name in profile}
        update = {"profile": found.profile.model_copy(update=profile), "trial": found.trial.model_copy(update=changes)}
        return found.model_copy(update=update)

    def test_utilisation_is_the_union_of_kernels(self):
        found, _ = observe([self.traced()], here=GPU, gpus=1)
        assert found["gpu_compute_utilisation"][0].value == pytest.approx(60)  # 0.3 of 0.5 s
        assert found["kernel_concurrency"][0].value == 0
        assert {one.name for one in found["kernel_time_share"]}

    def test_fp32_utilisation_is_reported_weighted_and_as_a_plain_mean(self):
        """CERN's report weights all kernels equally, however short."""
        one = self.traced()
        counters = Counters(
            fp32_percent=40.0,
            fp32_unweighted_percent=12.5,
            tensor_percent=None,
            dram_bytes_per_step=None,
            covered_percent=100.0,
            low=(
                NameShare(
                    name="sgemm",
                    category="gemm",
                    count=1,
                    seconds=1,
                    mean_s=1,
                    share_percent=9,
                    fp32_percent=3.5,
                ),
            ),
            flop_per_kernel=1.5e6,
        )
        one = one.model_copy(update={"profile": one.profile.model_copy(update={"counters": counters})})
        found, _ = observe([one], here=GPU, gpus=1)
        assert found["fp32_utilisation"][0].value == 40
        assert found["fp32_utilisation_unweighted"][0].value == 12.5
        assert found["average_flop_count"][0].value == 1.5e6
        assert [(one.name, one.value) for one in found["kernel_fp32_utilisation"]] == [("sgemm", 3.5)]

    def test_shares_are_of_all_seconds_of_work(self):
        work = {"convolution_winograd": 30, "broadcast": 20, "copy_htod": 40, "pooling_backward": 10}
        found, _ = observe([self.traced(categories=studied.categories(work), world_size=2)], here=GPU, gpus=2)
        shares = {"winograd": 30, "nccl_broadcast": 20, "compute": 40, "maxpoolbackward": 10}
        assert {name: found[f"{name}_time_share"][0].value for name in shares} == shares

    def test_flop_of_a_kernel_are_of_all_units_of_a_step(self):
        """A step of CERN's WGAN has five units a sample: a kernel had a fifth of its FLOP."""
        _, one = swept.measured(64, 1000)
        flop = one.measurement.flop  # 24 GFLOP of a unit
        traced = self.traced()
        traced = traced.model_copy(update={"measurement": traced.measurement.model_copy(update={"flop": flop})})
        windows = [window.model_copy(update={"units": 5.0 * window.samples}) for window in one.measurement.windows]
        units = one.model_copy(update={"measurement": one.measurement.model_copy(update={"windows": tuple(windows)})})
        kernels = traced.profile.gpu_total.kernels_per_step
        for measured, factor in ((one, 1), (units, 5)):
            found, _ = observe([measured, traced], here=GPU, gpus=1)
            assert found["average_flop_count"][0].value == pytest.approx(factor * 24e9 * 64 / kernels)
        speech = traced.model_copy(update={"trial": traced.trial.model_copy(update={"image_shape": None})})
        assert "average_flop_count" in observe([speech], here=GPU, gpus=1)[1]

    def test_one_gpu_broadcasts_nothing(self):
        _, missing = observe([self.traced()], here=GPU, gpus=1)
        assert missing["nccl_broadcast_time_share"] == "one device broadcasts nothing"

    def test_shares_of_calls_are_of_all_seconds_of_calls(self):
        own = {
            "cudaLaunchKernel": ("launch", 6.0),
            "cudaMalloc": ("memory_management", 3.0),
            "cudaEventDestroy": ("event", 1.0),
        }
        found, _ = observe([self.traced(**studied.calls(own))], here=GPU, gpus=1)
        assert found["cudaLaunchKernel_api_time_share"][0].value == pytest.approx(60)
        assert found["cudaEventDestroy_api_time_share"][0].value == pytest.approx(10)
        (own,) = found["memory_api_time_shares"]
        assert (own.name, own.value, own.method) == ("cudaMalloc", 100, "of calls about memory in whole steps")

    def test_the_suites_wait_at_the_end_of_a_profiled_part_is_no_call_of_the_source(self):
        """On an H200 it was 2 to 94 % of a backward pass' calls, the more the larger the batch, as if launches took less."""
        own = {"cudaDeviceSynchronize": ("synchronize", 30.0), "cudaLaunchKernel": ("launch", 9.0)}
        own["cudaEventDestroy"] = ("event", 1.0)
        found, _ = observe([self.traced(**studied.calls(own))], here=GPU, gpus=1)
        assert found["cudaLaunchKernel_api_time_share"][0].value == pytest.approx(90)
        assert found["cudaEventDestroy_api_time_share"][0].value == pytest.approx(10)

    def test_memory_calls_are_those_of_the_whole_process_if_recorded(self):
        """A donut chart of the source: parts of the whole process, start-up included; cuDeviceGetAttribute is one, a launch is not."""
        steps = self.traced(**studied.calls({"cudaMalloc": ("memory_management", 3.0)}))
        whole = {
            "cudaLaunchKernel": ("launch", 6.0),
            "cudaMalloc": ("memory_management", 1.0),
            "cuDeviceGetAttribute": ("attributes", 2.0),
            "cudaSetDevice": ("other", 1.0),
        }
        process = self.traced(kind="calls", **studied.calls(whole))
        found, _ = observe([steps, process], here=GPU, gpus=1)
        own = {one.name: one.value for one in found["memory_api_time_shares"]}
        assert own == {"cudaMalloc": 25, "cuDeviceGetAttribute": 50, "cudaSetDevice": 25}
        assert {one.method for one in found["memory_api_time_shares"]} == {"of calls about memory in the whole process"}

    def test_steps_that_allocate_nothing_have_no_memory_calls(self):
        own = studied.calls({"cudaDeviceGetAttribute": ("attributes", 1.0)})
        found, missing = observe([self.traced(**own)], here=GPU, gpus=1)
        assert "memory_api_time_shares" not in found
        assert missing["memory_api_time_shares"].startswith("nothing was allocated")

    def test_copies_to_a_device_have_size_throughput_and_overlap(self):
        rate = {"throughput_gb_s": 4.0, "mean_bytes": 1e6}
        to = Copies(direction="HtoD", count=4, seconds=0.001, bytes=4_000_000, overlap_percent=5.0, **rate)
        back = Copies(direction="DtoH", count=1, seconds=1.0, bytes=1, overlap_percent=0.0, **rate)
        copies = (to, back)
        found, _ = observe([self.traced(copies=copies)], here=GPU, gpus=1)
        assert found["copy_size"][0].value == pytest.approx(1)
        assert found["copy_throughput"][0].value == pytest.approx(4)
        assert found["copy_overlap"][0].value == pytest.approx(5)

    def test_on_a_cpu_kernels_are_missing_with_their_reason(self):
        _, missing = observe([self.traced()], gpus=1)
        assert missing["gpu_compute_utilisation"] == missing["copy_size"] == "no NVIDIA device"


class TestDerived:
    def test_speedup_is_against_one_device_of_the_same_curve(self):
        a = [observation(100, gpus=1, model="a", ci95=(98, 102)), observation(180, gpus=2, model="a", ci95=(176, 184))]
        b = [observation(50, gpus=1, model="b"), observation(110, gpus=2, model="b")]
        found = {(one.metric, one.where.model, one.where.gpus): one for one in derived([*a, *b], DELL)}
        assert found["speedup", "a", 2].value == pytest.approx(1.8)
        assert found["speedup", "a", 2].ci95.low < 1.8 < found["speedup", "a", 2].ci95.high
        assert found["scaling_efficiency", "a", 2].value == pytest.approx(90)
        assert found["scaling_efficiency", "b", 2].value == pytest.approx(110)  # never clamped
        assert found["scaling_efficiency", "a", 1].value == 100
        assert found["speedup", "a", 2].runs == ("run-180", "run-100")

    def test_a_speedup_rests_on_the_runs_of_both_scales(self):
        one = observation(100, gpus=1, repeats=1, degraded=1, altered=("optimizer",))
        two = observation(180, gpus=2, repeats=3, altered=("data",))
        found = next(made for made in derived([one, two], DELL) if made.metric == "speedup" and made.where.gpus == 2)
        assert (found.repeats, found.degraded, found.altered) == (1, 1, ("data", "optimizer"))

    def test_without_a_one_device_run_there_is_no_speedup(self):
        assert not [one for one in derived([observation(180, gpus=2)], DELL) if one.metric == "speedup"]

    def test_full_training_time_is_that_of_the_fastest_run_on_one_node(self):
        own = [
            observation(1000, gpus=4, nodes=1),
            observation(100, gpus=1, nodes=1),
            observation(9000, gpus=16, nodes=4),
        ]
        (whole,) = (one for one in derived(own, DELL) if one.metric == "full_training_time")
        assert whole.value == pytest.approx(90 * 1281167 / 1000)
        assert whole.method.startswith("extrapolated: 90 epochs of 1,281,167 images")

    def test_smaller_images_yield_no_full_training_time(self):
        own = observation(1000, gpus=4, nodes=1, altered=("image_size",))
        assert not [one for one in derived([own], DELL) if one.metric == "full_training_time"]

    def test_the_steady_time_share_compares_figures_of_one_run(self):
        """1,000 samples at 100/s take 10 s of 12.5 s; those of another scale do not count."""
        samples = observation(1000, metric="samples_per_run", unit="images", gpus=1)
        seconds = observation(12.5, metric="training_time", unit="s", gpus=1, ci95=(12, 13), method="with start-up")
        rates = [observation(100, gpus=1, ci95=(99, 101)), observation(190, gpus=2)]
        found = [one for one in derived([samples, seconds, *rates], DELL) if one.metric == "steady_time_share"]
        assert [(one.value, one.where.gpus, bool(one.ci95)) for one in found] == [(pytest.approx(80), 1, True)]
        assert not [one for one in derived([seconds, *rates], DELL) if one.metric == "steady_time_share"]

    def test_a_time_of_the_measured_iterations_has_no_steady_time_share(self):
        """It was 100 % by construction, and the source's finding about it indicated."""
        found, _ = observe([run(repeat=number) for number in (1, 2, 3)])
        assert found["training_time"]
        own = [one for named in found.values() for one in named]
        assert not [one for one in derived(own, DELL) if one.metric == "steady_time_share"]
