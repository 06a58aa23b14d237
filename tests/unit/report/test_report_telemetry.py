"""Telemetry of devices, in tables and over time.

Prevents: a figure of one device in another's row; a column full of dashes; an empty cell without a reason; a table that does not fit a
terminal; telemetry in the row of an unusable run; a curve drawn across a gap in the samples; shading that differs from the measured
windows; a plot of the wrong run.

After an intended change, `DLSCALE_GOLDEN=write make test` rewrites the golden files; read the difference before committing it.
"""

from __future__ import annotations

from types import SimpleNamespace

import examples
import numpy as np
import pytest
from goldens import expected, printed
from monitored import beats, frame, gpu, rows, spans, started, stopped, trouble
from summaries import row, summary, unusable

from runner.analysis.telemetry.summary import run_telemetry
from runner.core.telemetry import Range, Span
from runner.report import matrix, picture, telemetry
from runner.report.page.figures import Watched, over_time
from runner.report.publish import power_png
from runner.report.terminal import print_whole

GOLDEN = examples.ROOT / "tests" / "golden" / "report"
MONITORS = {"dlscale-x-monitor0": "here"}
T = beats(0, 16)
HOST = rows(
    T,
    device="host",
    core_percent=[[float(number % 3), 100.0] for number in range(len(T))],
    memory_mib=lambda t: 2000 + 10 * t,
    net_rx_bytes=lambda t: 1e6 * t,
    net_tx_bytes=lambda t: 2e6 * t,
)


def gpu_rows(index, **changes):
    columns = {
        "utilisation_percent": lambda t: 90 + index + t / 4,
        "power_w": lambda t: 70.0 if t < 5 else 500 + 10 * t,
        "energy_j": lambda t: 70 * t if t < 5 else 350 + 620 * (t - 5),
        "temperature_c": lambda t: 40.0 + t,
        "memory_mib": 71000.0,
        "tensor_percent": 55.0,
        "dram_percent": 41.0,
        "slowdown_bits": 0,
    }
    return rows(T, device=f"gpu{index}", **(columns | changes))


def watched(*gpus, device="gpu", host=HOST, events=()):
    """Telemetry of 1920 samples in 4 s."""
    said = [started(*(gpu(index) for index in range(len(gpus)))), *events, stopped()]
    return run_telemetry(
        frame(*gpus, host),
        said,
        spans=[spans()],
        monitors=MONITORS,
        samples=1920,
        seconds=4.0,
        device=device,
        own=("a" * 64,),
    )


CAPPED = gpu_rows(1, temperature_c=None, sm_clock_mhz=lambda t: 1980.0 - 10 * t, slowdown_bits=lambda t: 4 * (t >= 11))
GPUS = summary(
    row(1, telemetry=watched(gpu_rows(0))),
    row(2, telemetry=watched(gpu_rows(0), CAPPED)),
    unusable(4, "failed", "rank 3 ended with exit code 137"),
)
CPUS = summary(row(1, device="cpu worker", telemetry=watched(device="cpu")))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("telemetry-gpus-80-columns.txt", printed(print_whole, GPUS, width=80)),
        ("telemetry-gpus.md", matrix.markdown(GPUS)),
        ("telemetry-gpus.csv", matrix.to_csv(GPUS)),
        ("telemetry-cpus-80-columns.txt", printed(print_whole, CPUS, width=80)),
        ("telemetry-cpus.md", matrix.markdown(CPUS)),
    ],
)
def test_golden(name, text):
    assert text == expected(GOLDEN / name, text)


def test_cells_have_mean_and_extremes_in_their_devices_row():
    # From 10 s to 14 s, 90 + t / 4: from 92.5 to 93.5; power from 600 to 640 W; 620 J a second.
    together, each, *_ = telemetry.tables(GPUS)
    assert together.columns == ("devices", "utilisation (%)", "power (W)", "energy (J)", "images/J")
    assert together.rows[0] == ("1 GPU", "93", "620", "2,480", "0.774")
    assert together.rows[1] == ("2 GPUs", "93.5", "1,240", "4,960", "0.387")
    temperature, idle = each.columns.index("temperature (°C)"), each.columns.index("idle (W)")
    assert [line[0] for line in each.rows] == ["1 GPU: GPU 0", "2 GPUs: GPU 0", "2 GPUs: GPU 1"]
    assert [line[1] for line in each.rows] == ["93 (92.5–93.5)", "93 (92.5–93.5)", "94 (93.5–94.5)"]
    assert [line[temperature] for line in each.rows] == ["52 (50–54)", "52 (50–54)", "–"]
    assert [line[idle] for line in each.rows] == ["70", "70", "70"]


def test_clocks_have_the_reasons_that_held_them_down():
    clocks = telemetry.tables(GPUS)[2]
    assert clocks.columns == ("devices", "SM clock (MHz)", "limit (W)", "held down (%)")
    assert [row[-1] for row in clocks.rows] == ["nothing", "nothing", "power cap 75"]
    assert clocks.rows[2][1] == "1,860 (1,840\N{EN DASH}1,880)"


def test_a_machine_without_gpus_notes_it_and_shows_its_host():
    assert "GPUs unavailable: no NVIDIA device" in telemetry.notes(CPUS)
    together, host = telemetry.tables(CPUS)
    assert together.rows == (("1 CPU worker", "50.5"),)
    assert dict(zip(host.columns, host.rows[0], strict=True)) == {
        "devices": "host",
        "CPUs (%)": "50.5 (50–51)",
        "busiest (%)": "100",
        "memory (MiB)": "2,120 (2,100–2,140)",
        "received (MB)": "4.000",
        "sent (MB)": "8.000",
    }


def test_a_reason_is_given_only_once():
    said = [trouble("gpu0", "nvlink_rx_bytes", "nvlink_tx_bytes", reason="Not Supported")]
    found = summary(
        row(1, telemetry=watched(gpu_rows(0), events=said)), row(2, telemetry=watched(gpu_rows(0), events=said))
    )
    assert telemetry.notes(found).count("nvlink_rx_bytes, nvlink_tx_bytes of GPU 0 unavailable: Not Supported") == 1


@pytest.mark.parametrize(
    ("name", "reading", "lags"),
    [
        ("NVIDIA H200", "instant", False),
        ("NVIDIA H200", "usage", True),
        ("NVIDIA H200", None, True),
        ("NVIDIA A10", "usage", True),
        ("NVIDIA A100-SXM4-80GB", "usage", False),
        ("NVIDIA A30", "usage", False),
    ],
)
def test_lagging_power_readings_are_noted(name, reading, lags):
    """Of Ampere's GPUs, those with GA100 don't lag."""
    plain = watched(gpu_rows(0))
    read = tuple(gpu.model_copy(update={"name": name, "power_reading": reading}) for gpu in plain.gpus)
    found = summary(*(row(count, telemetry=plain.model_copy(update={"gpus": read})) for count in (1, 2)))
    told = [
        note
        for note in telemetry.notes(found)
        if note.startswith("samples of the power of GPU 0 by nvmlDeviceGetPowerUsage: ")
    ]
    assert len(told) == lags


def test_devices_of_several_nodes_are_named_with_their_node():
    one = watched(gpu_rows(0))
    other = one.gpus[0].model_copy(update={"node": "b"})
    two = one.model_copy(update={"gpus": (one.gpus[0], other)})
    assert [line[0] for line in telemetry.tables(summary(row(2, telemetry=two)))[1].rows] == ["here GPU 0", "b GPU 0"]


# --- over time


def drawn(figure):
    """Curves by panel: name → (seconds, values)."""
    return {
        axes.get_ylabel(): {line.get_label(): (line.get_xdata(), line.get_ydata()) for line in axes.lines}
        for axes in figure.axes
    }


def seen(*gpus, found, host=HOST):
    return Watched(SimpleNamespace(run_id="r"), found, frame(*gpus, host))


def draw(*gpus, found, host=HOST):
    return picture.draw(*over_time(seen(*gpus, found=found, host=host), name="n", title="t"))


def test_each_device_is_drawn_from_the_start_of_its_measured_windows():
    gpus = (gpu_rows(0), gpu_rows(1))
    panels = drawn(draw(*gpus, found=watched(*gpus)))
    assert panels.keys() == {"power (W)", "utilisation (%)"}
    seconds, watts = panels["power (W)"]["GPU 1"]
    assert (seconds[0], seconds[-1], watts[0], watts[-1]) == pytest.approx((-10, 6, 70, 660))
    assert panels["utilisation (%)"]["GPU 1"][1][0] == 91.0


def test_the_shade_is_the_measured_span():
    figure = draw(gpu_rows(0), found=watched(gpu_rows(0)))
    for axes in figure.axes:
        (shade,) = axes.patches
        assert (shade.get_x(), shade.get_width()) == (0, 4.0)
        assert axes.get_ylim()[0] == 0  # an axis that does not start at 0 would exaggerate


def test_pauses_are_not_shaded():
    found = watched(gpu_rows(0))
    measured = found.spans[0].model_copy(update={"pauses": (Span(start=11.0, end=12.5),)})
    figure = draw(gpu_rows(0), found=found.model_copy(update={"spans": (measured,)}))
    for axes in figure.axes:
        assert [(one.get_x(), one.get_width()) for one in axes.patches] == [(0, 1.0), (2.5, 1.5)]


def test_a_gap_in_the_samples_is_a_gap_in_the_curve():
    holes = [None if 11 < t < 13 else 600.0 for t in T]
    seconds, watts = drawn(draw(gpu_rows(0, power_w=holes), found=watched(gpu_rows(0))))["power (W)"]["GPU 0"]
    assert np.isnan(watts).sum() == 1
    assert seconds[np.flatnonzero(np.isnan(watts))[0] - 1] == pytest.approx(1.0)


def test_without_gpus_the_cpus_are_drawn_with_their_power_if_known():
    (panel,) = drawn(draw(found=watched(device="cpu"))).items()
    assert panel[0] == "CPUs (%)"
    assert panel[1]["host"][1][:3] == pytest.approx([50.0, 50.5, 51.0])
    counting = HOST.assign(energy_j=[50.0 * t for t in T])
    panels = drawn(draw(found=watched(device="cpu", host=counting), host=counting))
    assert panels["power (W)"]["host"][1] == pytest.approx([50.0] * (len(T) - 1))


def test_nothing_known_is_not_plotted():
    empty = rows(T, device="host")
    assert power_png(seen(found=watched(device="cpu", host=empty), host=empty), title="t", ran_on="g") is None


def test_a_range_that_prints_as_one_value_is_one_value():
    assert telemetry._range(Range(min=99.96, avg=99.96, max=99.96)) == "100"
    assert telemetry._range(Range(min=0.0, avg=0.123, max=1234.5)) == "0.123 (0–1,234)"
