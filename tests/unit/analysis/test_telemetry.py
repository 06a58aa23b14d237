"""Figures of a run's devices, and doubts about them.

Prevents: a figure of another GPU or node; total energy that omits a device; idle power measured while the job ran; a run that fails, or a
figure without a reason, because a GPU was lost, an NVML call failed or the sampler died; a job's own process taken for a foreign one, and
the reverse; a record degraded for something outside the measured span; a heavy library loaded by code that only reads a record.
"""

import subprocess
import sys

import examples
import pandas as pd
import pytest
from monitored import MONITOR, beats, frame, gpu, net, phase, rows, spans, started, stopped, trouble, window

from runner.analysis.grading.validity import cpu_time_taken
from runner.analysis.grading.validity import telemetry_doubts as doubts
from runner.analysis.telemetry.device import Device, Stretches
from runner.analysis.telemetry.summary import node_spans, pool, run_telemetry
from runner.core.events.parse import COLUMNS
from runner.core.telemetry import ForeignProcess, Missing, Range, Span

MONITORS = {MONITOR: "here"}
T = beats(0, 16)
JOB, SESSION = "a" * 64, 4711
OWN = {"pid": 1, "memory_mib": 1000.0, "cgroup": f"/docker/{JOB}", "session": 1}

HOST = {
    "core_percent": [[100.0, 0.0, 50.0, 10.0]] * len(T),
    "memory_mib": 2048.0,
    "disk_read_bytes": 0,
    "disk_write_bytes": lambda t: 1000 * t,
    "net_rx_bytes": lambda t: 10 * t,
    "net_tx_bytes": lambda t: 20 * t,
    "clock_mhz": [2000.0 if number % 10 == 0 else None for number in range(len(T))],  # once a second
    "energy_j": lambda t: 50 * t,
}
GPU = {
    "utilisation_percent": 90.0,
    "memory_utilisation_percent": 40.0,
    "memory_mib": 5000.0,
    "power_w": lambda t: 100.0 if t < 4 else 600.0,
    # The counter shows 2 % more than the gauge.
    "energy_j": lambda t: 100 * t if t < 4 else 400 + 612 * (t - 4),
    "temperature_c": lambda t: 40.0 + t,
    "sm_clock_mhz": 1980.0,
    "memory_clock_mhz": 2619.0,
    "slowdown_bits": 0,
    "pcie_rx_bytes": lambda t: 1000 * t,
    "pcie_tx_bytes": lambda t: 2000 * t,
    "nvlink_rx_bytes": lambda t: 3000 * t,
    "nvlink_tx_bytes": lambda t: 4000 * t,
    "ecc_corrected": 7,
    "ecc_uncorrected": 0,
    "processes": [[OWN]] * len(T),
    "sm_active_percent": 80.0,
    "sm_occupancy_percent": 60.0,
    "fp64_percent": 0.0,
    "fp32_percent": [10.0 if number % 2 else 30.0 for number in range(len(T))],
    "fp16_percent": 1.0,
    "tensor_percent": 55.0,
    "dram_percent": 45.0,
}
COUNTED = {"sm_active_percent", "sm_occupancy_percent", "fp64_percent", "fp32_percent", "fp16_percent"}
COUNTED |= {"tensor_percent", "dram_percent"}


def summed(table, said, **changes):
    """Telemetry of 4 measured seconds, from 10 to 14."""
    usual = {"spans": [spans()], "monitors": MONITORS, "samples": 3200, "seconds": 4.0, "device": "gpu", "own": (JOB,)}
    return run_telemetry(table, said, **usual | changes)


def seen(*, gpus=1, events=None, host=None, device="gpu", own=(JOB, f"session:{SESSION}"), pauses=(), **changes):
    """The same for devices that behave like `GPU` and `HOST`, except for some columns."""
    parts = [rows(T, device=f"gpu{index}", **(GPU | changes)) for index in range(gpus)]
    table = frame(*parts, rows(T, device="host", **(HOST if host is None else host)))
    said = events or [started(*(gpu(index) for index in range(gpus))), stopped()]
    measured = spans().model_copy(update={"pauses": tuple(Span(start=start, end=end) for start, end in pauses)})
    return summed(table, said, spans=[measured], device=device, own=own)


def level(value):
    return Range(min=value, avg=value, max=value)


def missing(found, device):
    return {field: entry.reason for entry in found.missing if entry.device == device for field in entry.fields}


# --- figures


def test_every_figure_of_a_gpu_by_hand():
    found = seen()
    one = found.gpus[0]
    levels = (one.utilisation, one.memory_utilisation_percent, one.memory_mib)
    assert levels == (level(90.0), level(40.0), level(5000.0))
    assert (one.power_w.min, one.power_w.avg, one.power_w.max) == pytest.approx((600, 612, 600))  # the counter's mean
    assert (one.temperature_c.min, one.temperature_c.avg, one.temperature_c.max) == pytest.approx((50.0, 52.0, 54.0))
    assert one.temperature_rise_c == pytest.approx(3.0)  # 53.5 - 50.5
    assert one.energy_j == pytest.approx(4 * 612)
    assert (one.energy_method, one.integrated_power_j) == ("energy counter", pytest.approx(4 * 600))
    assert one.idle_power_w == pytest.approx(100.0)
    assert (one.fp32_utilisation.min, one.fp32_utilisation.avg, one.fp32_utilisation.max) == pytest.approx((10, 20, 30))
    assert (one.sm_active_percent.avg, one.tensor_percent.avg, one.dram_percent.avg) == pytest.approx((80, 55, 45))
    assert (one.pcie_rx_bytes, one.pcie_tx_bytes) == (4000, 8000)
    assert (one.nvlink_rx_bytes, one.nvlink_tx_bytes) == (12000, 16000)
    assert seen(pcie_rx_bytes=None, pcie_rx_rate=500.0).gpus[0].pcie_rx_bytes == 2000  # without a counter, by the rate
    assert (one.slowdown_percent, one.ecc_corrected, one.ecc_uncorrected, one.foreign) == ({}, 0, 0, ())
    assert (one.counters, one.name, one.power_limit_w, one.measured_s) == ("gpm", "NVIDIA H200", 700.0, 4.0)
    assert found.missing == ()


def test_every_figure_of_a_host_by_hand():
    one = seen().hosts[0]
    assert one.cpu_percent == level(40.0)
    assert one.core_percent == pytest.approx((100.0, 0.0, 50.0, 10.0))
    assert (one.memory_mib, one.clock_mhz) == (level(2048.0), level(2000.0))
    assert (one.disk_read_bytes, one.disk_write_bytes, one.net_rx_bytes, one.net_tx_bytes) == (0, 4000, 40, 80)
    assert (one.energy_j, one.idle_power_w) == pytest.approx((200.0, 50.0))
    assert one.power_w.avg == pytest.approx(50.0)
    assert one.sampler_percent == pytest.approx(100 * 0.02 / 20 / 4)


def test_pauses_are_in_no_figure():
    # 600 W and 90 % while it trains; from 11 to 12 and from 12.5 to 13 it validates, at 200 W and 10 %.
    def trains(t):
        return not (11 < t <= 12 or 12.5 < t <= 13)

    watts = [600.0 if trains(t) else 200.0 for t in T]
    found = seen(
        pauses=[(11.0, 12.0), (12.5, 13.0)],
        power_w=watts,
        energy_j=[sum(watts[: number + 1]) / 10 for number in range(len(T))],
        fp32_percent=[30.0 if trains(t) else 2.0 for t in T],
        slowdown_bits=[0 if trains(t + 0.05) else 4 for t in T],
    )
    one = found.gpus[0]
    assert one.measured_s == pytest.approx(2.5)
    assert one.energy_j == pytest.approx(2.5 * 600)
    assert one.fp32_utilisation == level(30.0)
    assert one.slowdown_percent == {}
    assert one.pcie_rx_bytes == 2500
    assert found.samples_per_joule == pytest.approx(3200 / 1500)
    # A gauge is linear between samples, so a step extends half a sample beyond an edge: 4 edges, 0.05 s at 400 W less.
    assert one.integrated_power_j == pytest.approx(2.5 * 600, rel=0.03)
    assert found.hosts[0].disk_write_bytes == 2500


def test_a_gap_in_the_samples_is_named_and_leaves_no_sum():
    dark = [None if 12 <= t <= 13 else 600.0 for t in T]
    found = seen(pauses=[(11.5, 12.2), (12.8, 13.5)], power_w=dark, energy_j=None)
    assert (found.gpus[0].energy_j, found.gpus[0].power_w) == (None, None)
    assert missing(found, "gpu0")["power_w"] == "no samples for 0.6 s of the measured 2.6 s"


def test_energy_is_that_of_all_training_devices():
    two = seen(gpus=2)
    assert two.energy_j == pytest.approx(2 * 4 * 612)
    assert two.samples_per_joule == pytest.approx(3200 / 4896)
    assert (two.utilisation_percent, two.power_w) == pytest.approx((90.0, 2 * 612))
    on_cpus = seen(gpus=0, device="cpu")
    assert (on_cpus.utilisation_percent, on_cpus.power_w) == pytest.approx((40.0, 50.0))
    assert (on_cpus.energy_j, on_cpus.samples_per_joule) == pytest.approx((200.0, 16.0))


def test_without_an_energy_counter_power_is_integrated_and_the_method_recorded():
    found = seen(events=[started(gpu()), stopped(), trouble("gpu0", "energy_j", reason="Not Supported")], energy_j=None)
    one = found.gpus[0]
    assert (one.energy_j, one.energy_method) == (pytest.approx(2400.0), "integrated power")
    assert one.power_w.avg == pytest.approx(600.0)
    assert missing(found, "gpu0") == {"energy_j": "Not Supported"}


@pytest.mark.parametrize(("end", "told"), [(11.99, False), (12.0, True)])
def test_spans_shorter_than_two_seconds_have_neither_energy_nor_power_nor_utilisation(end, told):
    """A sensor lags by up to a second: a run of 0.6 s showed 263 W where the counter had 489, and 11 % utilisation with SMs active for 49 %."""
    table = frame(*(rows(T, device=f"gpu{index}", **GPU) for index in (0, 1)), rows(T, device="host", **HOST))
    found = summed(table, [started(gpu(), gpu(1)), stopped()], spans=[spans(end=end)], samples=100.5, seconds=end - 10)
    for one in (*found.gpus, *found.hosts):
        assert (one.power_w is not None, one.energy_j is not None) == (told, told)
        assert one.idle_power_w is not None
    assert all((one.utilisation is not None) is told for one in found.gpus)
    assert (found.power_w is not None, found.samples_per_joule is not None) == (told, told)
    reasons = {entry.reason for entry in found.missing if "energy_j" in entry.fields}
    assert reasons == (set() if told else {"1.99 s were measured; energy, power and utilisation take 2 s"})
    if told:
        assert found.samples_per_joule == pytest.approx(100.5 / (2 * 2 * 612))
        assert found.power_w == pytest.approx(2 * 612)


def test_a_slowdown_reason_holds_until_the_next_sample():
    bits = [0x20 | 0x1 if 11.0 <= t < 12.0 else 0x4 for t in T]
    assert seen(slowdown_bits=bits).gpus[0].slowdown_percent == pytest.approx(
        {"power cap": 75.0, "software thermal slowdown": 25.0}
    )


def test_the_longer_sampling_period_of_gpm_leaves_no_gaps():
    """GPM needs 0.1 s on Hopper, while the sampler may be asked for 100 samples a second."""
    t = beats(0, 16, hz=100)
    pipes = {"tensor_percent": [50.0 if number % 10 == 0 else None for number in range(len(t))]}
    table = frame(rows(t, device="gpu0", **pipes), rows(t, device="host"))
    found = summed(table, [started(gpu(), hz=100)])
    assert found.gpus[0].tensor_percent == level(50.0)
    assert "tensor_percent" not in missing(found, "gpu0")


@pytest.mark.parametrize(("column", "period_s"), [("energy_j", 0.5), ("nvlink_rx_rate", 0.1), ("clock_mhz", 1.0)])
def test_gaps_are_relative_to_the_sampling_period_of_the_column(column, period_s):
    """Not every column is sampled a hundred times a second: five of a column's own periods are no gap, more are."""
    for apart, hole in ((4.9 * period_s, False), (5.1 * period_s, True)):
        t = [10 + number * apart for number in range(8)]
        table = frame(rows(t, device="gpu0", **{column: lambda at: 7 * at}))
        whole = Stretches(whole=Span(start=t[0], end=t[-1]), spans=(Span(start=t[0], end=t[-1]),))
        device = Device(table, node="here", device="gpu0", hz=100, measured=whole, reasons={})
        assert (device.gauge(column) is None) == hole


def test_rows_that_lack_an_offline_core_are_dropped():
    cores = [[50.0, 50.0] if t < 12 else [90.0] for t in T]
    found = seen(host=HOST | {"core_percent": cores})
    assert found.hosts[0].core_percent == (50.0, 50.0)
    assert missing(found, "host")["core_percent"].startswith("no samples for 2")


def test_lists_read_back_from_parquet_are_arrays(tmp_path):
    table = frame(rows(T, device="gpu0", **GPU), rows(T, device="host", **HOST))
    table.to_parquet(tmp_path / "t.parquet")
    found = summed(pd.read_parquet(tmp_path / "t.parquet"), [started(gpu()), stopped()])
    assert found == seen(own=(JOB,))


# --- what is missing


def test_a_machine_without_gpus_has_a_reason_and_its_host():
    found = seen(gpus=0, device="cpu")
    assert found.gpus == ()
    assert found.missing == (Missing(node="here", device="gpu", fields=(), reason="no NVIDIA device"),)
    assert found.why_missing("here", "gpu0", "power_w") == "no NVIDIA device"
    assert found.why_missing("here", "host", "memory_mib") is None


def test_a_gpu_lost_during_the_span_keeps_its_means_but_neither_energy_nor_power():
    lost = [t for t in T if t < 12.05]
    until_then = {name: v[: len(lost)] if isinstance(v, list) else v for name, v in GPU.items()}
    table = frame(rows(lost, device="gpu0", **until_then), rows(T, device="host", **HOST))
    said = [started(gpu()), trouble("gpu0", *GPU, reason="GPU is lost", t=12.1), stopped()]
    found = summed(table, said)
    one = found.gpus[0]
    assert one.utilisation == level(90.0)
    assert (one.energy_j, one.power_w, found.energy_j, found.power_w, found.samples_per_joule) == (None,) * 5
    assert missing(found, "gpu0")["energy_j"] == missing(found, "gpu0")["power_w"] == "GPU is lost"


@pytest.mark.parametrize(("lost_at", "told"), [(6.0, 4_000_000_000), (12.0, None)])
def test_a_pcie_counter_that_begins_anew_leaves_the_traffic_of_that_span_unknown(lost_at, told):
    """The sampler begins anew below all earlier values, after a sample without one, if the counter may have wrapped unnoticed."""
    anew = next(t for t in T if t > lost_at + 0.05)
    counted = [10**9 * t if t < lost_at - 0.05 else None if t < anew else 10**9 * (t - anew) - 1 for t in T]
    said = [started(gpu()), trouble("gpu0", "pcie_rx_bytes", reason="it may have wrapped", t=lost_at), stopped()]
    found = seen(events=said, pcie_rx_bytes=counted, pcie_rx_rate=None)
    assert found.gpus[0].pcie_rx_bytes == told
    assert missing(found, "gpu0").get("pcie_rx_bytes") == (None if told else "it may have wrapped")


def test_a_trouble_after_the_span_is_no_reason_within_it():
    said = [started(gpu()), trouble("gpu0", "power_w", reason="GPU is lost", t=14.5), stopped()]
    holes = [None if 11 < t < 13 else 600.0 for t in T]
    assert missing(seen(events=said, power_w=holes), "gpu0")["power_w"].startswith("no samples for 2 s")


def test_a_gpu_that_never_answered_is_named_and_there_is_no_total_energy():
    found = seen(events=[started(gpu()), trouble("gpu1", "utilisation_percent", reason="Unknown Error"), stopped()])
    assert Missing(node="here", device="gpu1", fields=("utilisation_percent",), reason="Unknown Error") in found.missing
    assert found.gpus[0].energy_j is not None
    assert found.energy_j is None


def test_the_death_of_a_sampler_is_the_reason_for_missing_figures():
    cut = [t for t in T if t < 12.05]
    table = frame(rows(cut, device="host", memory_mib=1.0))
    died = trouble("host", reason="the sampler ended with exit code 137", t=900.0)  # by the runner, on its own clock
    found = summed(table, [started(), died], device="cpu")
    assert found.hosts[0].memory_mib == level(1.0)
    assert missing(found, "host")["memory_mib"] == "the sampler ended with exit code 137"
    assert missing(found, "host")["cpu_s"] == "the sampler ended with exit code 137"


def test_a_silent_sampler_leaves_a_reason_and_no_figures():
    never = trouble("host", reason="the sampler could not be started: no such image")
    found = summed(None, [never], spans=[spans(idle=None)])
    assert (found.gpus, found.hosts, found.hz, found.energy_j) == ((), (), None, None)
    assert {entry.reason for entry in found.missing} == {"the sampler could not be started: no such image"}
    assert found.why_missing("here", "gpu0", "power_w") == "the sampler could not be started: no such image"


def test_missing_psutil_rapl_or_pipe_counters_have_a_reason():
    sources = {"nvml": "no NVIDIA device", "psutil": "psutil is not installed", "rapl": "Permission denied"}
    said = [started(sources=sources), stopped()]
    found = summed(frame(rows(T, device="host")), said, device="cpu")
    why = missing(found, "host")
    assert why["core_percent"] == why["clock_mhz"] == "psutil is not installed"
    assert why["energy_j"] == "Permission denied"
    sources = {"nvml": None, "gpm": "this GPU has no GPM", "dcgm": "no dcgmi on PATH", "psutil": None, "rapl": None}
    nothing = {name: None for name in GPU if name in COUNTED}
    found = seen(events=[started(gpu(counters=None), sources=sources), stopped()], **nothing)
    assert found.gpus[0].fp32_utilisation is None
    assert missing(found, "gpu0") == dict.fromkeys(nothing, "this GPU has no GPM; no dcgmi on PATH")


def test_every_missing_figure_has_a_reason():
    """An unexplained empty cell looks like a bug, and often is one."""
    found = summed(frame(rows(T, device="gpu0"), rows(T, device="host")), [started(gpu()), stopped()])
    of_gpu = {name for name in COLUMNS["telemetry"] if name.endswith(("_percent", "_w", "_c", "_mhz", "_j", "_bits"))}
    assert missing(found, "gpu0").keys() >= of_gpu - {"core_percent", "clock_mhz"}
    assert missing(found, "host").keys() >= {"core_percent", "memory_mib", "clock_mhz", "energy_j", "net_rx_bytes"}


# --- foreign processes


def process(pid, *, cgroup=None, session=None):
    return {"pid": pid, "memory_mib": 500.0, "cgroup": cgroup, "session": session}


@pytest.mark.parametrize(
    ("one", "foreign"),
    [
        (process(5, cgroup=f"/system.slice/docker-{JOB}.scope", session=9), False),
        (process(5, cgroup="/user.slice", session=SESSION), False),
        (process(5, cgroup="/user.slice", session=9), True),
        (process(5, cgroup=f"/docker/{'b' * 64}", session=1), True),
        # A login's number, not that of a session of the job.
        (process(5, cgroup=f"/user.slice/session-{SESSION}.scope", session=9), True),
    ],
)
def test_the_owner_of_a_process(one, foreign):
    found = seen(processes=[[one] if t == 12.0 else None for t in T])
    assert found.gpus[0].foreign == ((ForeignProcess(pid=5, memory_mib=500.0),) if foreign else ())


def test_a_process_hidden_from_the_sampler_is_not_foreign():
    found = seen(processes=[[process(5)]] * len(T))
    assert found.gpus[0].foreign == ()
    assert missing(found, "gpu0") == {"processes": "whose processes 5 are is not visible to the sampler"}
    gone = seen(processes=[[process(5, cgroup="/x")] if t < 8 else [OWN] for t in T])
    assert gone.gpus[0].foreign == ()  # it ended before the span
    unknown = seen(own=())
    assert unknown.gpus[0].foreign is None
    assert missing(unknown, "gpu0") == {"processes": "which containers were the job's own is not on file"}


# --- spans and clocks


def test_the_span_of_a_node_runs_from_its_first_counted_window_to_its_last():
    said = [started(node="a", t=100.0, received=1000.0)]
    said += [window(rank, index, start=110.0 + index + rank / 4) for rank in (0, 1) for index in range(3)]
    said += [window(1, 3, start=113.25)]  # the other rank did not finish it
    (found,) = node_spans(said, monitors={MONITOR: "a"}, first_window=1, started=1005.0)
    assert (found.node, found.measured.start, found.measured.end) == ("a", 111.0, 113.25)
    assert (found.idle.start, found.idle.end) == (100.0, 105.0)  # 900 s between the clocks


def test_a_pause_lasts_from_the_slowest_ranks_end_to_the_first_ranks_next_window():
    said = [started(node="a")]
    said += [window(0, 0, start=10.0), window(0, 1, start=11.0), window(0, 2, start=15.0), window(0, 3, start=16.0)]
    said += [window(1, 0, start=10.2), window(1, 1, start=11.2), window(1, 2, start=14.5), window(1, 3, start=15.5)]
    (found,) = node_spans(said, monitors={MONITOR: "a"}, first_window=0, started=3.0)
    assert [(one.start, one.end) for one in found.pauses] == [(12.2, 14.5)]
    (later,) = node_spans(said, monitors={MONITOR: "a"}, first_window=2, started=3.0)
    assert later.pauses == ()


def test_gpus_of_a_job_that_starts_immediately_are_idle_until_the_first_framework_import():
    said = [started(node="a", t=100.0, received=1000.0), phase("model", t=101.0)]
    said += [phase("import", rank=rank, t=102.5 + rank) for rank in (0, 1)] + [window(rank) for rank in (0, 1)]
    ends = {}
    for job in (100.5, 101.5, 90.0):  # on the node's clock
        (found,) = node_spans(said, monitors={MONITOR: "a"}, first_window=0, started=job + 900)
        ends[job] = [span and (span.start, span.end) for span in (found.idle, found.gpus_idle)]
    assert ends == {
        100.5: [(100.0, 100.5), (100.0, 102.5)],
        101.5: [(100.0, 101.5), None],
        90.0: [None, (100.0, 102.5)],
    }
    (silent,) = node_spans([*said[:3], *said[4:]], monitors={MONITOR: "a"}, first_window=0, started=1000.5)
    assert silent.gpus_idle is None  # whether the other rank had used a GPU before is unknown


def test_gpu_idle_power_is_over_the_gpus_own_idle_span():
    table = frame(rows(T, device="gpu0", **GPU), rows(T, device="host", **HOST))
    rested = spans(idle=(0.0, 0.5), gpus_idle=(0.0, 3.0))
    found = summed(table, [started(gpu()), stopped()], spans=[rested])
    assert (found.gpus[0].idle_power_w, found.hosts[0].idle_power_w) == (pytest.approx(100.0), None)


def test_each_host_has_its_own_clock_and_emulated_nodes_share_one():
    said = [started(node="a"), started(node="b", container="m1", t=5000.0)]
    said += [net(0, "a"), net(1, "b"), window(0, start=10.0), window(1, start=5010.0)]
    two = node_spans(said, monitors={MONITOR: "a", "m1": "b"}, first_window=0, started=3.0)
    assert [(one.node, one.measured.start) for one in two] == [("a", 10.0), ("b", 5010.0)]
    (one,) = node_spans(said[2:], monitors={MONITOR: "here"}, first_window=0, started=3.0)
    assert (one.node, one.measured.start, one.measured.end, one.idle) == ("here", 10.0, 5011.0, None)


def test_without_windows_or_samplers_there_is_no_span():
    assert node_spans([started()], monitors=MONITORS, first_window=0, started=0.0) == ()
    assert node_spans([window()], monitors={}, first_window=0, started=0.0) == ()
    assert node_spans([window()], monitors=MONITORS, first_window=1, started=0.0) == ()
    assert summed(frame(rows(T)), [started()], spans=[], device="cpu") is None


# --- doubts


def test_each_doubt_is_a_sentence():
    hot = [0x40 if t < 12 else 0x4 for t in T]
    found = seen(
        events=[started(gpu(power_limit_w=500.0)), stopped(cpu_s=1.0)],
        slowdown_bits=hot,
        processes=[[process(5, cgroup="/x", session=9)]] * len(T),
        ecc_uncorrected=lambda t: 0 if t < 12 else 2,
    )
    assert doubts(found) == (
        "GPU 0 was slowed down for 50 % of the measured span: power cap (500 W instead of 700 W)",
        "GPU 0 was slowed down for 50 % of the measured span: hardware thermal slowdown",
        "GPU 0 was shared with process 5, which held 500 MiB: none of the job's own",
        "GPU 0 had 2 memory errors that ECC could not correct",
        "the sampler used 1.2 % of here's CPUs; fewer samples (TELEMETRY_HZ=1) cost less",
    )


@pytest.mark.parametrize("limit", [700.0, None])
def test_the_default_power_cap_is_no_doubt(limit):
    assert doubts(seen(events=[started(gpu(power_limit_w=limit)), stopped()], slowdown_bits=0x4)) == ()


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({"slowdown_percent": {"power brake": 1.0}}, 0),
        ({"slowdown_percent": {"power brake": 1.01}}, 1),
        # A rising temperature counts only in long spans.
        ({"measured_s": 60.0, "temperature_rise_c": 9.0}, 0),
        ({"measured_s": 61.0, "temperature_rise_c": 5.0}, 0),
        ({"measured_s": 61.0, "temperature_rise_c": 5.1}, 1),
    ],
)
def test_the_threshold_of_each_doubt(changes, count):
    found = seen()
    one = found.gpus[0].model_copy(update=changes)
    assert len(doubts(found.model_copy(update={"gpus": (one,)}))) == count


@pytest.mark.parametrize(
    ("cores", "used_s", "doubt"),
    [
        # Cores 0 and 2 were busy for 4.0 and 2.0 of the 4 s each.
        ({0, 2}, 4.0, ("others used the job's 2 cores for 2.0 of the 8.0 CPU seconds that were measured",)),
        ({0}, 3.5, ("others used the job's core 0 for 0.5 of the 4.0 CPU seconds that were measured",)),
        ({0}, 3.58, ("others used the job's core 0 for 0.4 of the 4.0 CPU seconds that were measured",)),
        ({0}, 3.6, ()),  # a tenth
        ({1, 3}, 0.4, ()),  # load on other cores does not matter
        ({0}, 4.2, ()),  # the job's seconds include windows before the span
        ({0, 4}, 0.0, ()),  # the sampler has no core 4
        (set(), 0.0, ()),
    ],
)
def test_cpu_time_that_others_took_from_a_job_by_hand(cores, used_s, doubt):
    assert cpu_time_taken(seen(device="cpu"), cores=cores, used_s=used_s) == doubt


def test_too_few_samples_to_attribute_cpu_time_are_a_doubt():
    """A run of a second was valid, and its rate of 71 images/s stood next to 1,432 of the same training."""
    found = seen(device="cpu")
    (taken,) = cpu_time_taken(found.model_copy(update={"hz": 5}), cores={0}, used_s=0.0)  # 20 samples in 4 s
    assert taken.startswith("others used the job's core 0")
    (short,) = cpu_time_taken(found.model_copy(update={"hz": 4.9}), cores={0}, used_s=0.0)
    assert short.startswith("4.0 s with 19 samples are too short to tell")
    none = found.hosts[0].model_copy(update={"measured_s": 0.04, "core_percent": None})
    (without,) = cpu_time_taken(found.model_copy(update={"hosts": (none,)}), cores={0}, used_s=0.0)
    assert without.startswith("0.0 s with 0 samples are too short to tell")


# --- repeats


def test_repeats_are_pooled_by_time_and_energy():
    one, other = seen(), seen(power_w=lambda t: 100.0, utilisation_percent=30.0)
    longer = other.gpus[0].model_copy(update={"measured_s": 12.0, "slowdown_percent": {"power cap": 40.0}})
    both = pool([one, other.model_copy(update={"gpus": (longer,)})])
    found = both.gpus[0]
    assert found.utilisation == Range(min=30.0, avg=45.0, max=90.0)  # (4 × 90 + 12 × 30) / 16
    assert (found.power_w.min, found.power_w.max) == (100.0, 600.0)
    assert (found.energy_j, both.energy_j, both.seconds, both.power_w) == pytest.approx((4896, 4896, 8, 612))
    assert (found.measured_s, found.slowdown_percent) == (16.0, {"power cap": 30.0})
    assert found.idle_power_w == pytest.approx(100.0)
    assert (both.samples, both.samples_per_joule) == (6400, pytest.approx(6400 / 4896))
    assert both.hosts[0].core_percent == pytest.approx((100.0, 0.0, 50.0, 10.0))
    assert both.spans == ()
    assert pool([]) is None


def test_a_repeat_without_energy_or_telemetry_leaves_neither_energy_nor_power():
    """Throughput is of all repeats: power of only some of them would belong to another training."""
    for other in (None, seen(energy_j=None, power_w=None)):
        both = pool([seen(), other])
        assert (both.energy_j, both.power_w, both.samples_per_joule) == (None, None, None)
        assert both.utilisation_percent == 90.0
    assert (both.gpus[0].energy_j, both.gpus[0].power_w) == (None, None)
    assert pool([None]) is None


def test_pooling_one_repeat_changes_nothing():
    one = seen(gpus=2)
    assert pool([one]).model_dump(exclude={"spans"}) == one.model_dump(exclude={"spans"})
    assert pool([one]).power_w == one.power_w == pytest.approx(1224.0)


def test_repeats_on_different_gpus_are_not_added_up():
    # One GPU at a time: 612 W for 4 s on the first, 300 W for 12 s on the second.
    one, other = seen(), seen(utilisation_percent=50.0)
    second = other.gpus[0].model_copy(update={"index": 1, "uuid": "GPU-1", "measured_s": 12.0})
    both = pool([one, other.model_copy(update={"gpus": (second,), "seconds": 12.0, "energy_j": 3600.0})])
    assert len(both.gpus) == 2
    assert both.power_w == pytest.approx((4 * 612 + 12 * 300) / 16)
    assert both.utilisation_percent == pytest.approx((4 * 90 + 12 * 50) / 16)


# --- loaded modules


def test_reading_a_record_loads_no_pandas():
    heavy = ("numpy", "pandas", "pyarrow", "pynvml")
    code = f"import sys, runner.results.store; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=examples.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
