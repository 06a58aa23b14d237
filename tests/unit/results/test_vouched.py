"""The picture at the top of README and the records behind it.

Prevents: a picture that its records no longer give, and a wire named without evidence.

The prose of docs/results-h200.md, checked against the records.

Prevents: a ratio in prose that no record gives.

Consistency of the committed records of GPUs: two ways to the same energy, and figures that must rise with the batch.

Prevents: a wrong unit or span that no made-up sample would show.

Power, energy, utilisation and throughput of every committed record, recomputed from its raw files, and of every row made of them.

Prevents: power and samples per joule that contradict each other for one throughput (22 of 231 rows did, by up to 46 %: power was the mean of
lagging samples, energy the counter's); either for too short a span; samples per joule in another unit than throughput; use above a peak.

Reports that are committed next to their records.

Prevents: a committed table that its own records no longer give, which a later redraw changes unnoticed; a report that was not committed.
Plots are left out: another version of the plotting library moves a line by a pixel.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from examples import ROOT

from runner.analysis.comparisons.ablation import ablations
from runner.analysis.interconnect.evidence import gradient_factor, least_factor
from runner.analysis.summarize import summarize
from runner.commands import compare_flow
from runner.commands.regrade import regrade
from runner.commands.report import FIGURES_FOLDER, KEPT_PAGE, report
from runner.core.units import figure, half_width
from runner.experiments.studies.reproduction import read_reproduction
from runner.plan.profiling import MAX_REPLAYED
from runner.report import picture
from runner.results.find import records_under
from runner.results.store import folders_under, read_record, run_directories

RESULTS = ROOT / "results"
OF_WIRES = list(records_under(RESULTS / "h200/wires"))
SEVERAL = [record for _, record in OF_WIRES if record.trial.world_size > 1]


@pytest.mark.parametrize("record", SEVERAL, ids=lambda record: record.run_id)
def test_each_wire_between_gpus_is_proved(record):
    """By lines of NCCL's log, and by counters that all agree with them."""
    if record.validity.status == "invalid":
        assert record.transport.contradiction
        return
    said = " ".join(record.transport.evidence.nccl_lines)
    used = record.transport.used
    assert {"nvlink": "via P2P/", "shm": "via SHM/", "loopback": "via NET/Socket", "ethernet": "via NET/Socket"}[
        used
    ] in said
    several_a_host = record.trial.processes > record.trial.nodes > 1
    assert ("via P2P/" in said) == (used == "nvlink" or several_a_host)
    moved = sum(traffic.tx_bytes for traffic in record.transport.evidence.traffic if traffic.interface == "eth0")
    assert (moved > 0) == (used == "ethernet")
    links = sum(link.tx_bytes + link.rx_bytes for link in record.transport.evidence.nvlink)
    assert (links > 0) == (used == "nvlink" or several_a_host)
    assert record.transport.own_count.carried


def test_emulated_hosts_send_what_the_algorithm_needs():
    """NCCL uses a ring over all ranks, or a tree between the hosts; with one rank a host both send the same."""
    for record in SEVERAL:
        if record.trial.link:
            gradients = record.transport.gradient_bytes
            sent = sum(record.transport.sent_bytes_per_step.values()) / gradients
            assert least_factor(record.trial) <= sent <= 1.01 * gradient_factor(record.trial)


@pytest.mark.parametrize("path", [path for path, _ in OF_WIRES], ids=lambda path: path.name)
def test_records_were_measured_by_a_clean_commit(path):
    assert read_record(path).provenance.git.dirty is False


DOCUMENT = " ".join((ROOT / "docs/results-h200.md").read_text("utf-8").split())


def rows_of(topic, matrix="", **wanted):
    """Summary rows of a topic's runs, selected by the end of the matrix id and by fields of the trial."""
    of_matrix = [run for run in records_under(RESULTS / "h200" / topic) if run[1].matrix_id.endswith(matrix)]
    return summarize([run for run in of_matrix if wanted.items() <= dict(run[1].trial).items()]).rows


def test_the_page_has_the_speedup_of_all_techniques():
    (found,) = ablations(list(records_under(RESULTS / "h200" / "ablation-rounds")))
    first, last = found.rows[0], found.rows[-1]
    assert (first.row.repeats, last.row.repeats) == (3, 3)
    ratio = figure(last.ratio, half_width(last.ratio_ci95))
    told = figure(last.row.throughput, half_width(last.row.throughput_ci95))
    assert f"at batch 256 {ratio} times as fast as the plain program, {told} images/s." in DOCUMENT


def test_plain_ddp_on_four_gpus_is_not_left_out():
    """A table of four GPUs omitted the faster variant."""
    of = {"model": "resnet50", "world_size": 4, "interconnect": "nvlink", "batch_per_device": 256}
    plain, bf16 = (rows_of(topic, **of)[0].throughput for topic in ("wires", "scaling"))
    assert plain > bf16
    assert f"{plain:,.0f} against {bf16:,.0f} images/s, one run each." in DOCUMENT


def test_inference_fed_with_several_batches_in_flight_and_one_at_a_time():
    """Throughput was limited by the host: 7,464 images/s with the GPU half idle, less than in training."""
    (tuned,), (plain,), (alone,) = (
        rows_of(topic, batch_per_device=256) for topic in ("own-inference", "inference-in-flight", "inference")
    )
    assert (tuned.repeats, plain.repeats, alone.repeats) == (5, 3, 1)
    assert min(tuned.telemetry.utilisation_percent, plain.telemetry.utilisation_percent) > 95
    told = f"{with_interval(tuned)} images/s of ResNet-50 in bf16 at batch 256, fed from the host's memory, the GPU "
    assert f"five runs: {told}{tuned.telemetry.utilisation_percent:.0f} % busy." in DOCUMENT
    told = f"it was {with_interval(plain)}, the GPU {plain.telemetry.utilisation_percent:.0f} % busy too, three runs"
    assert told in DOCUMENT
    busy = f"with the GPU {alone.telemetry.utilisation_percent:.0f} % busy, one run"
    assert f"{alone.throughput:,.0f} {busy}" in DOCUMENT


def test_llama_in_two_precisions_on_two_gpus():
    found = {
        matrix: rows_of("own-language", matrix, batch_per_device=4)[0] for matrix in ("4400", "4657", "83b1", "0801")
    }
    assert [row.repeats for row in found.values()] == [3, 2, 2, 3]
    for matrix, row in found.items():
        rate = with_interval(row) if row.repeats > 2 else f"{row.throughput:,.0f}"
        assert re.search(rf"\[{rate}\]\(\S*-{matrix}\.md\)", DOCUMENT), rate
    assert f"an MFU of {found['4400'].mfu_percent:.2f} %" in DOCUMENT


def test_tensorflow_tuned_with_and_without_its_pooling():
    tuned, without = (rows_of("own-tensorflow", matrix)[0] for matrix in ("3dfc", "2242"))
    assert (tuned.repeats, without.repeats) == (3, 3)
    assert f"{with_interval(tuned)}](../results/h200/own-tensorflow/20261127T142124Z-3dfc.md) images/s" in DOCUMENT
    assert f"{with_interval(without)}](../results/h200/own-tensorflow/20261127T142529Z-2242.md) with all" in DOCUMENT


def test_gpt2_compiled_on_four_gpus():
    _, four = rows_of("own-four", batch_per_device=64)
    assert (
        f"{with_interval(four)} tokens/s, {four.speedup:.3f} ± {half_width(four.speedup_ci95):.3f} times one."
        in DOCUMENT
    )


def test_a_study_on_an_h200():
    text, _, found = study_on_file("dell-p100")
    rates = [one for one in found.observations if one.metric == "throughput" and one.where.gpus == 1]
    told = [with_error(one) for one in rates if one.iterations is None]
    assert len(told) == 4
    assert [one for one in told if one not in text] == []
    times = {one.figure: one for one in found.comparisons if one.figure.endswith((".1.ips", "1gpu_vs_cpu"))}
    for name in ("nvcaffe.googlenet.1.ips", "mxnet.googlenet.1.ips"):
        assert f"{times[name].ratio:.3f} ± {half_width(times[name].ratio_ci95):.3f} times" in text
    assert Counter(one.verdict for one in found.judgements) == {
        "not indicated": 2,
        "undecided": 1,
        "not testable here": 18,
    }


def test_the_profiles_of_a_study_on_an_h200():
    text, folder, found = study_on_file("nyu-profiling")
    assert Counter(one.verdict for one in found.judgements) == {
        "indicated": 1,
        "not indicated": 3,
        "undecided": 1,
        "not testable here": 17,
    }

    def values(metric, model=None):
        return [one.value for one in found.observations if one.metric == metric and model in (None, one.where.model)]

    pooling = [values("maxpoolbackward_time_share", model) for model in ("alexnet", "resnet18", "vgg16")]
    assert [one == sorted(one) and len(one) for one in pooling] == [3, 3, 3]
    first, second, third = (f"{one[0]:.1f} to {one[-1]:.1f} %" for one in pooling)
    assert f"{first} for AlexNet, {second} for ResNet-18, {third} for VGG-16" in text
    shares = values("compute_time_share")
    assert f"{min(shares):.1f} to {max(shares):.1f} % of the GPU's busy time at every batch" in text
    small, *_, large = values("fp32_utilisation", "alexnet")
    assert f"{small:.0f} % of the fp32 rate for AlexNet at batch 4 and {large:.0f} % at 64" in text
    small, *_, large = values("fp32_utilisation", "vgg16")
    assert f"at 64, {small:.0f} and {large:.0f} % for VGG-16" in text
    launches = values("cudaLaunchKernel_api_time_share")
    assert max(launches) == values("cudaLaunchKernel_api_time_share", "vgg16")[0]
    assert min(launches) == values("cudaLaunchKernel_api_time_share", "resnet18")[-1]
    least, most = f"{min(launches):.0f} % (ResNet-18, batch 64)", f"{max(launches):.0f} % (VGG-16, batch 4)"
    assert f"launches of kernels take {least} to {most} of the time in calls" in text
    runs, minutes = time_of(folder)
    assert f"The {runs} passes took {minutes:.0f} minutes." in text


def test_one_gpu_and_what_it_is_used_for_on_an_h200():
    text, folder, found = study_on_file("tbd-analysis")
    assert Counter(one.verdict for one in found.judgements) == {"indicated": 1, "not testable here": 6}
    runs, minutes = time_of(folder)
    assert f"Its {runs} runs took {minutes:.0f} minutes of the GPU" in text

    def told(metric, model):
        return told_by(found, metric, model=model, network=None)

    rates = {model: told("throughput", model) for model in ("resnet50", "inception-v3", "wgan", "deepspeech2")}
    assert (
        f"ResNet-50 reached {rates['resnet50']} images/s and Inception-v3 {rates['inception-v3']} at batch 32" in text
    )
    assert f"{rates['wgan']} at batch 64, Deep Speech 2 {rates['deepspeech2']} seconds of audio/s at batch 8" in text
    busy, reached = (
        [told(metric, model) for model in ("resnet50", "inception-v3")]
        for metric in ("gpu_compute_utilisation", "fp32_utilisation")
    )
    assert f"{busy[0]} % of a step of ResNet-50 and {busy[1]} % of one of Inception-v3" in text
    assert f"they reach {reached[0]} and {reached[1]} % of the fp32 rate" in text
    (driver,) = (
        one
        for one in found.observations
        if (one.metric, one.where.network, one.where.batch) == ("fp32_utilisation", "pcie", 32)
    )
    assert f"give ResNet-50 {with_error(driver)} % over three whole runs" in text
    assert (
        f"the WGAN {told('fp32_utilisation', 'wgan')} %, and Deep Speech 2 {told('fp32_utilisation', 'deepspeech2')} %"
        in text
    )
    for model, sentence in (
        ("resnet50", "the longest takes {:.1f} % of the time at {:.1f} % of the fp32 rate in ResNet-50"),
        ("inception-v3", "and {:.1f} % at {:.1f} % in Inception-v3"),
    ):
        time, rate = (
            {one.name: one.value for one in found.observations if (one.metric, one.where.model) == (metric, model)}
            for metric in ("kernel_time_share", "kernel_fp32_utilisation")
        )
        longest = max((name for name in time if "cudnn::bn_" in name), key=time.get)
        # The two profilers write the last arguments of a template in different ways.
        (low,) = (value for name, value in rate.items() if name.split(", ")[:4] == longest.split(", ")[:4])
        assert sentence.format(time[longest], low) in text
    (speech,) = (
        one.profile
        for one in map(read_record, run_directories(folder))
        if one.trial.model == "deepspeech2-tbd" and one.profile and one.profile.kind == "kernels"
    )
    assert f"One step of Deep Speech 2 starts {speech.gpu_total.kernels_per_step:,.0f} kernels" in text
    (products,) = (one.share_percent for one in speech.categories if one.category == "gemm")
    parallel = speech.gpu_total.concurrency.parallel_percent
    assert (
        f"take {products:.1f} % of their time, and two or more kernels run at once during {parallel:.1f} % of" in text
    )


def test_training_and_inference_of_small_images_on_an_h200():
    text, folder, found = study_on_file("uw-hardware")
    assert Counter(one.verdict for one in found.judgements) == {
        "indicated": 8,
        "not indicated": 1,
        "undecided": 2,
        "not testable here": 17,
    }
    runs, minutes = time_of(folder)
    assert f"Its {runs} runs took {minutes:.0f} minutes" in text
    degraded = sum(read_record(run).validity.status == "degraded" for run in run_directories(folder))
    assert f"{degraded} of the runs are degraded" in text

    def told(metric, model, mode, batch):
        return told_by(found, metric, model=model, mode=mode, batch=batch, device=None)

    rates, busy = (
        {model: [told(metric, model, "training", batch) for batch in (64, 256)] for model in ("resnet50", "resnet152", "vgg16", "vgg19")}
        for metric in ("throughput", "gpu_utilisation_avg")
    )  # fmt: skip
    assert (
        f"ResNet-50 trained {' and '.join(rates['resnet50'])} images/s, ResNet-152 {' and '.join(rates['resnet152'])}, "
        f"VGG-16 {' and '.join(rates['vgg16'])}, VGG-19 {' and '.join(rates['vgg19'])}."
    ) in text
    assert f"{' and '.join(busy['resnet50'])} % of the time in ResNet-50, {' and '.join(busy['vgg16'])} % in" in text
    one, many = (
        [told("throughput", model, "inference", batch) for model in ("resnet50", "vgg16", "vgg19")]
        for batch in (1, 10_000)
    )
    assert f"{one[0]}, {one[1]} and {one[2]} images/s; 10,000 at once make {many[0]}, {many[1]} and {many[2]}" in text


def test_a_wgan_by_batch_on_an_h200():
    text, folder, found = study_on_file("cern-wgan")
    assert Counter(one.verdict for one in found.judgements) == {"indicated": 2, "not testable here": 5}
    runs, minutes = time_of(folder)
    assert f"Its {runs} runs took {minutes:.0f} minutes of one GPU" in text

    rates, busy, used = (
        {batch: told_by(found, metric, model="wgan", batch=batch) for batch in (16, 64, 256)}
        for metric in ("throughput", "gpu_compute_utilisation", "fp32_utilisation")
    )
    assert f"made {rates[16]} images/s at batch 16 and {rates[256]} at 256" in text
    _, _, alone = study_on_file("tbd-analysis")
    with_machine = told_by(alone, "throughput", model="wgan", batch=64)
    assert f"{rates[64]} at 64, and {with_machine} with the machine to itself" in text
    assert (
        f"kernels run during {busy[16]} % of an iteration at batch 16 and {busy[256]} % at 256, in one pass each"
        in text
    )
    assert f"FP32 units work for {used[16]} % and {used[256]} % of the time" in text
    largest = [
        read_record(run).profile for run in run_directories(folder) if "-eabd-" in run.name and "kernels" in run.name
    ]
    kernels = largest[0].gpu_total.kernels_per_step
    assert f"One iteration starts {kernels:,.0f} kernels, more than the {MAX_REPLAYED:,}" in text


def study_on_file(name):
    """(the prose of docs/studies.md in one line, the folder of a study's runs on an H200, its reproduction)."""
    folder = RESULTS / "h200" / name
    (path,) = folder.glob("*.reproduction.json")
    return " ".join((ROOT / "docs/studies.md").read_text("utf-8").split()), folder, read_reproduction(path)


def told_by(reproduction, metric, **where):
    """The one figure under these conditions, over whole runs, with its interval; two cells may share their runs."""
    (one,) = {
        with_error(one) if one.ci95 else f"{one.value:.1f}"
        for one in reproduction.observations
        if one.metric == metric
        and one.iterations is None
        and all(getattr(one.where, name) == value for name, value in where.items())
    }
    return one


def time_of(folder):
    """(number of runs, minutes that they took in all) of a folder."""
    records = [read_record(run) for run in run_directories(folder)]
    return len(records), sum(one.outcome.phases_s["total"] for one in records) / 60


def with_error(observation):
    return figure(observation.value, half_width(observation.ci95))


def with_interval(row):
    return figure(row.throughput, half_width(row.throughput_ci95))


FOLDERS = [RESULTS / "h200" / topic for topic in ("telemetry", "cern-wgan")]
RECORDS = [read_record(path) for folder in FOLDERS for path in run_directories(folder)]
WATCHED = [record for record in RECORDS if record.telemetry]
# One batch has two: one whose rate never settled, and one whose pass profiled a single step before it had.
SWEEP = sorted(
    (record for record in RECORDS if record.trial.precision == "bf16" and record.validity.status == "valid"),
    key=lambda record: record.trial.batch_per_device,
)
PAGE = " ".join((ROOT / "docs/telemetry.md").read_text("utf-8").split())
SATURATED = 95  # percent of time with a kernel running; NVML averages over 1/6 s and lags at the start of a span


@pytest.mark.parametrize("record", WATCHED, ids=lambda record: record.run_id)
def test_the_energy_counter_and_power_over_time_agree(record):
    for gpu in record.telemetry.gpus:
        assert gpu.energy_method == "energy counter"
        # Power in telemetry/ is a mean of the last second: it lags while the load rises, in spans of five seconds. That of the WGAN at batch 128
        # is read every 0.1 s and swings between 230 and 660 W from one reading to the next, too fast to be added up from them.
        aliased = record.trial.model == "wgan-gp" and record.trial.batch_per_device == 128
        assert gpu.integrated_power_j == pytest.approx(gpu.energy_j, rel=0.1 if aliased else 0.07)
        assert gpu.energy_j == pytest.approx(gpu.power_w.avg * gpu.measured_s, rel=0.05)
        assert gpu.idle_power_w < gpu.power_w.avg


def test_the_page_has_the_difference_between_counter_and_power_over_time():
    runs = [record for record in WATCHED if record.trial.workload == "imagenet_cnn" and not record.profiled]
    apart_by = [abs(100 * (gpu.integrated_power_j / gpu.energy_j - 1)) for r in runs for gpu in r.telemetry.gpus]
    assert len(apart_by) == 7
    assert f"power over time differed by {min(apart_by):.1f} to {max(apart_by):.1f} % in [seven runs]" in PAGE


@pytest.mark.parametrize("record", WATCHED, ids=lambda record: record.run_id)
def test_a_gpu_is_at_least_as_busy_as_each_of_its_parts(record):
    for gpu in record.telemetry.gpus:
        for part in (gpu.fp32_utilisation, gpu.tensor_percent, gpu.sm_active_percent):
            assert part.avg <= gpu.utilisation.avg
        assert gpu.foreign == ()


def test_utilisation_rises_with_the_batch():
    measured = [record for record in SWEEP if not record.profiled]
    assert [record.trial.batch_per_device for record in measured] == [4, 16, 64, 256, 512]
    for name in ("sm_active_percent", "tensor_percent", "power_w"):
        found = [getattr(record.telemetry.gpus[0], name).avg for record in measured]
        assert found == sorted(found), name
    utilisation = [record.telemetry.gpus[0].utilisation.avg for record in measured]
    rising = [percent for percent in utilisation if percent < SATURATED]
    assert utilisation[: len(rising)] == rising == sorted(rising)
    assert len(rising) == 3
    rates = [record.measurement.throughput.value for record in measured]
    assert rates == sorted(rates)


def test_the_union_of_kernels_agrees_with_the_driver():
    """NVML counts time with any kernel running as busy; profiled steps are synchronized at their end, measured steps are not."""
    passes = [r for r in SWEEP if r.profiled and r.trial.workload == "imagenet_cnn"]
    assert [r.trial.batch_per_device for r in passes] == [4, 16, 64, 256, 512]
    assert f"by at most {max(map(apart, passes)):.1f} points at batch 4 to 512 in valid passes" in PAGE


def test_a_pass_that_never_settled_disagrees_with_the_driver():
    """The bf16 pass; its single step was slower than the measured steps."""
    (unsettled,) = (
        r
        for r in RECORDS
        if r.profiled and r.profile.gpu_total and r.validity.status != "valid" and r.trial.precision == "bf16"
    )
    assert f"and by {apart(unsettled):.1f} in one whose rate never settled" in PAGE


def apart(record):
    """Percentage points between the union of a pass's kernels and NVML's utilisation in the measured run before it."""
    (measured,) = (
        r.telemetry.gpus[0].utilisation.avg for r in RECORDS if not r.profiled and r.matrix_id == record.matrix_id
    )
    return abs(record.profile.gpu_total.compute_percent - measured)


def test_a_pass_counts_what_the_program_counted():
    """Twice the multiply-adds, by the network's layers and by PyTorch's counter."""
    for record in SWEEP:
        if record.profiled:
            counted = {one.phase: one.flop_per_sample for one in record.profile.flop}
            flop = record.measurement.flop
            assert counted["forward"] == pytest.approx(flop.forward_flop_per_sample, rel=0.02)
            assert counted["backward"] == pytest.approx(flop.backward_flop_per_sample, rel=0.02)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_counters_without_a_profiler_agree_with_ncu_on_the_same_kernels(precision):
    """GPM averages over all time, ncu over kernels' time: the ratio is the kernels' share of time."""
    (counted,) = (r for r in RECORDS if r.profiled and r.profile.source == "ncu" and r.trial.precision == precision)
    (measured,) = (r for r in RECORDS if r.matrix_id == counted.matrix_id and not r.profiled)
    ncu, gpm = counted.profile.counters, measured.telemetry.gpus[0]
    assert ncu.covered_percent == 100
    busy = gpm.utilisation.avg / 100
    assert gpm.fp32_utilisation.avg == pytest.approx(ncu.fp32_percent * busy, abs=5)
    assert gpm.tensor_percent.avg == pytest.approx(ncu.tensor_percent * busy, abs=5)
    # Matrix products use the tensor cores in bf16 but not in fp32, so the two can't be confused.
    assert (ncu.tensor_percent > ncu.fp32_percent) == (precision == "bf16")


RUNS = [path for folder in folders_under(RESULTS) for path in run_directories(folder)]


@pytest.fixture(scope="module")
def regraded():
    """(directory, record) of all, each recomputed to the digit from its raw files."""
    found = {path: regrade(path) for path in RUNS}
    assert [path for path, (old, new) in found.items() if new != old] == []
    return [(path, new) for path, (_, new) in found.items()]


def test_no_run_contradicts_itself(regraded):
    seen = 0
    for _, record in regraded:
        told = record.telemetry
        for one in told.trained if told else ():
            assert (one.energy_j is None) or one.measured_s >= 2, record.run_id
            assert (one.power_w is None) == (one.energy_j is None), record.run_id
            if one.power_w:
                assert one.power_w.avg == pytest.approx(one.energy_j / one.measured_s, rel=1e-12), record.run_id
        if told is None or record.profiled or record.measurement.throughput is None:
            continue
        assert (told.power_w is None) == (told.samples_per_joule is None), record.run_id
        if told.power_w:
            rate = record.measurement.throughput.value
            assert rate / told.power_w == pytest.approx(told.samples_per_joule, rel=1e-9), record.run_id
            seen += 1
    assert seen > 150


def test_nothing_computes_more_than_its_peak(regraded):
    flops = [record.measurement.flop for _, record in regraded if record.measurement.flop]
    assert max(flop.mfu_percent or 0 for flop in flops) <= 100
    # VGG-16 in fp32: cuDNN computes its convolutions with fewer multiplications.
    assert [flop.mfu_percent for flop in flops if flop.above_peak] == [None]


def test_no_row_contradicts_itself_to_its_printed_digits(regraded):
    matrices = {}
    for path, record in regraded:
        if not (record.profiled or record.concurrent):
            matrices.setdefault((path.parent, record.matrix_id), []).append((path, record))
    rows = [row for runs in matrices.values() for row in summarize(runs).rows if row.usable and row.telemetry]
    told = [row for row in rows if row.telemetry.power_w]
    assert len(told) > 150
    for row in told:
        rate, watts, per_joule = (
            float(figure(value).replace(",", ""))
            for value in (row.throughput, row.telemetry.power_w, row.telemetry.samples_per_joule)
        )
        # Each is rounded to four digits, and to at most three decimals.
        assert rate / watts == pytest.approx(per_joule, rel=1.5e-3, abs=6e-4)


@pytest.mark.parametrize("machine", ["epyc-2core", "h100", "h200"])
def test_committed_reports_are_redrawn_to_the_byte(machine, tmp_path, monkeypatch):
    """Ten CSVs lacked columns of newer figures, and each redraw rewrote them."""
    monkeypatch.setattr(picture, "png", lambda *_, **_how: None)
    report([RESULTS / machine], out=tmp_path)
    drawn, kept = tables(tmp_path), tables(RESULTS / machine)
    # `reproduce` writes the reports of a study, `regrade` rewrites them.
    studies = {name for name in kept if (RESULTS / machine / name).with_suffix(".reproduction.json").exists()}
    assert drawn.keys() == kept.keys() - studies
    differing = [name for name in drawn if drawn[name] != kept[name]]
    assert differing == [], f"run `dlscale report results/{machine}`, read the difference, and commit what it wrote"


def tables(folder):
    """The contents of tables at or below a folder; the page and its figures have a check of their own (`make verify`), or are not committed."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.suffix in {".csv", ".md"} and path.name != KEPT_PAGE and path.parent.name != FIGURES_FOLDER
    }


def test_the_documents_print_what_compare_prints(monkeypatch, capsys):
    """README had another interval than its command prints."""
    monkeypatch.chdir(ROOT)
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = [text for path in documents if "| trial | runs | A | B | B/A |" in (text := path.read_text("utf-8"))]
    assert shown
    for text in shown:
        sides = re.search(r"make compare A='([^']+)' B='([^']+)'", text)
        compare_flow.compare_runs(*compare_flow.sides(*sides.groups()), threshold=None, form="markdown")
        printed = capsys.readouterr().out.splitlines()
        start = text.index("| trial | runs | A | B | B/A |")
        assert [line for line in text[start:].split("\n\n")[0].splitlines() if line not in printed] == []
