"""Prevents: runs over several wires pooled as repeats of one, ratios to the wrong one, an emulated link that passes for a real wire.

Two nodes with one worker each: Ethernet at two emulated rates, and one run that requested InfiniBand and did not get it.
"""

from __future__ import annotations

import io
import math
from pathlib import Path

import examples
import pytest
from goldens import expected
from records import but, record
from rich.console import Console
from wires import DDP, ITERATIONS, ON_GPU, counts, nccl, on_nodes, sent, start

from runner.analysis.comparisons.transports import across, compare, curves
from runner.analysis.interconnect import transport
from runner.analysis.summarize import summarize
from runner.core.measurement import Exchange
from runner.core.record import Validity
from runner.core.transport import PcieTraffic
from runner.core.wire import Link
from runner.report import transports
from runner.report.collectives import to_csv
from runner.report.page import figures as page_figures
from runner.report.picture import draw
from runner.report.publish import publish

GOLDEN = examples.ROOT / "tests" / "golden" / "report"
FAST, SLOW = Link(rate_mbit=1000, emulated=True), Link(rate_mbit=100, emulated=True)
MEGABYTE = 1_000_000


def run(run_id, trial, *, seconds, iface="eth0", sent_bytes=1.01 * MEGABYTE, probe_gb_s=None, reasons=()):
    """A record of a trial with steps of `seconds` in which each node sent `sent_bytes`."""
    found = record(run_id=run_id, trial=trial, seconds=seconds)
    changes = {}
    if trial.world_size > 1:
        moved = round(ITERATIONS * sent_bytes)
        said = [start(), *(e for n in (1, 2) for e in sent(f"n{n}", {iface: moved}, rank=n - 1))]
        changes["transport"] = transport.judge(trial, (), said, one_machine=True)
    if reasons:
        changes["validity"] = Validity(status="invalid", reasons=reasons)
    made = Path(run_id), found.model_copy(update=changes)
    if not probe_gb_s:
        return made
    largest = timed("all_reduce", 2**20, 2**20 / (1e9 * probe_gb_s))
    return but(made, measurement={"probe": (timed("all_reduce", 65536, 1), largest)})


def of(name, trial, matrix, seconds):
    """The same as part of a matrix."""
    path, found = run(name, trial, seconds=seconds)
    return path, found.model_copy(update={"matrix_id": matrix})


def timed(operation, size_bytes, seconds):
    """Among two devices: half of the exchanged bytes leave each, of an all-reduce all of them."""
    rate = size_bytes / seconds / 1e9
    busbw = rate if operation == "all_reduce" else rate / 2
    return Exchange(
        operation=operation, size_bytes=size_bytes, seconds=seconds, algbw_gb_s=rate, busbw_gb_s=busbw, wrong=0
    )


def two(**changes):
    return on_nodes(2, **{**DDP, **changes})


def inner(kind, **changes):
    """Two ranks of one node."""
    return on_nodes(1, ranks=2, wires=[None], **DDP, **changes, interconnect=kind)


# One device: 320 images/s. Two over 1 Gb/s: 64 in 0.125 s and in 0.1 s, 512 and 640 images/s; over 100 Mb/s: 64 in 0.4 s, 160.
ONE = run("one", examples.trial(), seconds=0.1)
FAST_RUNS = [
    run("fast-1", two(link=FAST), seconds=0.125, probe_gb_s=0.11),
    run("fast-2", two(link=FAST, repeat=2), seconds=0.1, probe_gb_s=0.12),
]
SLOW_RUN = run("slow-1", two(link=SLOW), seconds=0.4, probe_gb_s=0.011, sent_bytes=1.1 * MEGABYTE)
LOST = run(
    "lost-1",
    two(interconnect="infiniband"),
    seconds=0.1,
    reasons=("INTERCONNECT=infiniband asked, ethernet (eth0) used: NCCL found no adapter",),
)
RUNS = [ONE, FAST_RUNS[0], SLOW_RUN, LOST, FAST_RUNS[1]]


@pytest.fixture(scope="module")
def compared():
    return compare(curves(RUNS))


def test_each_transport_is_a_curve_with_the_shared_baseline():
    fast, slow, lost = curves(RUNS)
    assert [path.name for path, _ in fast.runs] == ["one", "fast-1", "fast-2"]
    assert [path.name for path, _ in slow.runs] == ["one", "slow-1"]
    assert [path.name for path, _ in lost.own] == ["lost-1"]
    assert (fast.label, slow.label) == ("ethernet eth0, emulated 1gbit", "ethernet eth0, emulated 100mbit")
    assert lost.label == "infiniband (asked)"
    assert fast.slug == "ethernet-eth0-emulated-1gbit"
    (alone,) = curves([ONE, *FAST_RUNS])
    assert list(alone.runs) == [ONE, *FAST_RUNS]


def test_one_node_scales_belong_to_every_curve_between_nodes():
    """GPUS=2,4 on nodes of two: the first scale crosses no wire."""
    inside = run("inside", on_nodes(1, ranks=2, **DDP, wires=[None]), seconds=0.1)
    found = curves([ONE, inside, FAST_RUNS[0], SLOW_RUN])
    assert [[path.name for path, _ in curve.runs] for curve in found] == [
        ["one", "inside", "fast-1"],
        ["one", "inside", "slow-1"],
    ]


def test_matrices_that_differ_only_in_wires_are_compared():
    """One node over its inner wires, and two nodes over links of two rates: the shortest path first, whenever it ran."""
    one_node = [of(kind, inner(kind), "inner", seconds) for kind, seconds in (("loopback", 0.2), ("nvlink", 0.1))]
    outer = [
        of(label, two(link=link), "outer", seconds)
        for label, link, seconds in (("slow", SLOW, 0.8), ("fast", FAST, 0.4))
    ]
    (joined,) = across([*outer, ONE, *one_node]).values()
    assert [path.name for path, _ in joined] == ["nvlink", "loopback", "fast", "slow"]
    found = compare(curves(joined, of_one_matrix=False))
    assert [row.ratio for row in found.rows] == [None, *map(pytest.approx, (0.5, 0.25, 0.125))]
    assert across([*outer, ONE]) == across(one_node) == {}


@pytest.mark.parametrize("more", [{"cpus_per_worker": 2}, {"threads": 2}])
def test_workers_with_more_cores_are_no_other_wire(more):
    """Workers of two cores on one node were compared with workers of one core on two, and the ratio passed for that of the wires."""
    faster = of("inner", inner("loopback", **more), "inner", 0.1)
    assert across([of("outer", two(link=FAST), "outer", 0.2), faster]) == {}
    assert across([of("outer", two(link=FAST, **more), "outer", 0.2), faster])


def test_other_training_programs_over_another_wire_are_named():
    """A ratio of two versions of the programs passed for one of two wires."""
    old = but(of("inner", inner("loopback"), "inner", 0.1), provenance={"workloads_sha256": "c" * 64})
    (joined,) = across([of("outer", two(link=FAST), "outer", 0.2), old]).values()
    found = compare(curves(joined, of_one_matrix=False))
    assert [note for note in transports.notes(found) if "not the wire alone" in note] == list(found.notes)
    assert found.notes
    assert compare(curves(RUNS)).notes == ()


def test_the_same_number_of_devices_on_more_nodes_is_no_repeat():
    few, many = (
        of(f"{nodes}-nodes", on_nodes(nodes, ranks=4, **DDP, link=FAST), f"on {nodes}", seconds)
        for nodes, seconds in ((2, 0.2), (4, 0.4))
    )
    (joined,) = across([many, few]).values()
    found = compare(curves(joined, of_one_matrix=False))
    assert [row.transport.rpartition(", ")[2] for row in found.rows] == ["2 nodes", "4 nodes"]
    assert [row.row.throughput for row in found.rows] == pytest.approx([640, 320])  # 4 × 32 images in 0.2 and in 0.4 s


def test_two_requests_that_used_the_same_wire_are_distinguished():
    auto = run("auto", two(link=FAST), seconds=0.1)
    asked = run("asked", two(link=FAST, interconnect="ethernet"), seconds=0.1)
    label = "ethernet eth0, emulated 1gbit, asked as"
    assert [curve.label for curve in curves([ONE, auto, asked])] == [f"{label} auto", f"{label} ethernet"]


def test_repeats_are_pooled_and_ratios_are_to_the_first_transport(compared):
    fast, slow, lost = compared.rows
    # 2 x 2560 images in 40 x (0.125 + 0.1) s
    assert fast.row.throughput == pytest.approx(5120 / 9)
    assert slow.row.throughput == pytest.approx(160)
    assert slow.row.speedup == pytest.approx(0.5)
    assert fast.ratio is None
    assert slow.ratio == pytest.approx(160 * 9 / 5120)
    assert (fast.row.repeats, slow.row.repeats) == (2, 1)
    assert (fast.row.throughput_ci95, slow.ratio_ci95) == (None, None)
    assert compared.first == "ethernet eth0, emulated 1gbit"
    assert (lost.row.status, lost.row.throughput, lost.ratio, lost.sent_bytes) == ("invalid", None, None, None)
    assert (fast.probe_gb_s, slow.probe_gb_s, lost.probe_gb_s) == (pytest.approx(0.115), 0.011, None)
    assert slow.probe_bytes == 2**20  # the largest message
    # Without a usable first transport there are no ratios.
    assert [row.ratio for row in compare(curves([ONE, LOST, *FAST_RUNS])).rows] == [None, None]


def test_a_ratio_of_three_runs_to_three_has_an_interval():
    """Spreads of e^0.01 on either side: Welch's 4 degrees of freedom, 2.77645 × sqrt(2) × 0.01 ÷ sqrt(3) = 0.0226696."""
    runs = [
        run(f"{name}-{n}", two(link=link, repeat=n), seconds=seconds * math.exp((n - 2) * 0.01))
        for name, link, seconds in (("fast", FAST, 0.1), ("slow", SLOW, 0.4))
        for n in (1, 2, 3)
    ]
    _, slow = compare(curves(runs)).rows
    assert slow.ratio == pytest.approx(0.25)
    assert (slow.ratio_ci95.low, slow.ratio_ci95.high) == pytest.approx(
        (0.25 * math.exp(-0.0226696), 0.25 * math.exp(0.0226696)), rel=1e-5
    )


def test_bytes_sent_by_a_node_are_compared_with_the_gradients(compared):
    fast, slow, _ = compared.rows
    assert fast.sent_bytes == pytest.approx(1.01 * MEGABYTE)
    assert (fast.gradient_bytes, fast.expected_bytes) == (MEGABYTE, MEGABYTE)
    assert slow.factor == pytest.approx(1.1)
    assert slow.needed_factors == (1.0,)


def test_with_several_ranks_per_node_the_algorithm_may_send_less_than_a_ring():
    found = compare(curves([run(f"{link.rate_mbit:g}", two(ranks=4, link=link), seconds=0.1) for link in (FAST, SLOW)]))
    assert {row.needed_factors for row in found.rows} == {(1.0, 1.5)}
    assert "of 1.000 to 1.500" in written(found).markdown()
    *_, drawn = page_figures.transports(found, name="m", runs={})
    assert [series.y for series in drawn.series[1:]] == [pytest.approx((least, least)) for least in (1.0, 1.5)]


def rated(mbit, *, seconds, sent_mb, probe_gb_s=0.15):
    """Two nodes on links capped at a rate, in steps of `seconds` in which each sent `sent_mb`; alone, the exchange reaches 1.2 Gbit/s."""
    link = Link(rate_mbit=mbit, emulated=True)
    trial = two(link=link)
    return run(f"at-{mbit}", trial, seconds=seconds, sent_bytes=sent_mb * MEGABYTE, probe_gb_s=probe_gb_s)


@pytest.mark.parametrize(
    ("links", "idle"),
    [
        # 10 MB in 0.1 s are 0.8 Gbit/s: a twelfth of 10, and nearly all of 0.85.
        ([(10_000, 0.1), (850, 0.1)], [True, False]),
        # As fast at 1.6 Gbit/s as at 10, having reached half of it: neither is the limit.
        ([(10_000, 0.1), (1600, 0.1)], [True, True]),
        # At 1 Gbit/s it computes for a while and then sends: 0.64 Gbit/s reached, and still half as fast as at 10.
        ([(10_000, 0.0625), (1000, 0.125)], [True, False]),
        # Nothing faster ran, and the exchange alone would fill it.
        ([(1300, 0.125), (1000, 0.25)], [False, False]),
    ],
)
def test_a_link_rate_that_was_not_the_limit_is_marked(links, idle):
    """The opening table compared links of 100 and 25 Gbit/s, over both of which 18 were sent."""
    found = compare(curves([rated(mbit, seconds=seconds, sent_mb=10) for mbit, seconds in links]))
    assert [row.not_the_limit for row in found.rows] == idle
    assert [row.asked_gbit for row in found.rows] == [mbit / 1000 for mbit, _ in links]
    assert [row.reached_gbit for row in found.rows] == pytest.approx([0.08 / seconds for _, seconds in links])
    said = [line for line in written(found).markdown().splitlines() if line.startswith("| ethernet")]
    assert ["not the limit" in line for line in said] == idle
    assert ["not the limit" in label for label in panels(found)[0].series[0].labels] == idle


def test_within_a_node_bytes_are_those_of_the_used_wire():
    """NVLink's by NVML, per GPU; for shared memory, which has no counter, PCIe as sampled in half of the time."""
    gpus = [examples.gpu(0), examples.gpu(1)]
    steps = ITERATIONS * MEGABYTE
    slots = [PcieTraffic(gpu=f"GPU-{n}", rx_bytes=steps, tx_bytes=steps, share=0.5) for n in (0, 1)]
    ways = []
    for kind, moved, via, pcie in (
        ("nvlink", steps * 3 // 2, "via P2P/CUMEM", ()),
        ("shm", 0, "via SHM/direct", slots),
        ("loopback", 0, "via NET/Socket/0", slots),
    ):
        trial = inner(kind, **ON_GPU)
        lo = 2 * steps if kind == "loopback" else 0
        said = [*counts(nvlink=[(moved, moved)] * 2, lo=lo), nccl(f"Channel 00 : 0 -> 1 {via}")]
        used = transport.judge(trial, gpus, said, pcie=pcie)
        path, found = but(run(kind, trial, seconds=0.1), measurement={"gradient_bytes": MEGABYTE})
        ways.append((path, found.model_copy(update={"transport": used})))
    rows = compare(curves(ways)).rows
    assert [row.sent_bytes / MEGABYTE for row in rows] == [1.5, 2.0, 2.0]
    assert [row.factor for row in rows] == [1.5, 2.0, 2.0]
    assert [row.counted_by for row in rows] == ["NVML", "samples of PCIe", "kernel"]
    assert [row.reached_gbit for row in rows] == pytest.approx([0.12, 0.16, 0.16])  # in 0.1 s each


def test_efficiency_is_relative_to_the_same_training_on_one_device(compared):
    fast, slow, _ = compared.rows
    assert compared.baseline.throughput == pytest.approx(320)
    assert (fast.row.efficiency, slow.row.efficiency) == (pytest.approx(8 / 9), pytest.approx(0.25))
    table = transports.table(compared).markdown()
    assert table[2].startswith("| one CPU worker | 1 worker × 1 core | 1 | 320.0")
    assert [line.split(" | ")[2] for line in table[2:]] == ["1", "2", "1", "–"]  # runs


def test_the_one_device_baseline_of_compared_matrices_is_found():
    outer = [
        of(label, two(link=link), "outer", seconds) for label, link, seconds in (("s", SLOW, 0.8), ("f", FAST, 0.4))
    ]
    one_node = but(of("inner", inner("auto"), "inner", 0.2), scaling={"baseline_run_id": "one"})
    (joined,) = across([*outer, ONE, one_node]).values()
    assert [path.name for path, _ in joined] == ["inner", "f", "s", "one"]
    assert compare(curves(joined, of_one_matrix=False)).baseline.throughput == pytest.approx(320)


def written(found):
    return transports.report(found, name="m")


def csv_of(found):
    return written(found).files(pictures=False)["m.csv"]


def panels(found):
    return written(found).pictures["m"].args


def printed(found):
    console = Console(width=80, file=io.StringIO())
    console.print(transports.transports_table(found))
    return "".join(line.rstrip() + "\n" for line in console.file.getvalue().splitlines())


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("transports-80-columns.txt", printed),
        ("transports.md", lambda found: written(found).markdown()),
        ("transports.csv", csv_of),
    ],
)
def test_golden(compared, name, form):
    assert form(compared) == expected(GOLDEN / name, form(compared))


def test_the_plot_labels_emulated_links(compared):
    axes = draw(*panels(compared)).axes[0]
    assert all("emulated" in tick.get_text().replace("\n", " ") for tick in axes.get_yticklabels())
    assert all(bar.get_hatch() for bar in axes.patches)


def test_training_times_over_wires_are_of_the_same_work_or_say_so():
    """Runs of a set duration take as long over a slow wire as over a fast one."""
    longer = run("longer", two(link=SLOW, iterations=80), seconds=0.4)
    for other, said in ((SLOW_RUN, False), (longer, True)):
        figures = page_figures.transports(compare(curves([ONE, FAST_RUNS[0], other])), name="m", runs={})
        (times,) = (one for one in figures if one.name == "m-training-time")
        assert any("numbers of samples: ethernet eth0, emulated 1gbit, 2" in note for note in times.notes) is said


@pytest.mark.filterwarnings("error")  # a missing glyph is a warning
def test_the_plot_draws_usable_runs_and_names_the_rest(compared):
    left, right = panels(compared)
    assert left.series[0].y == pytest.approx((5120 / 9, 160))
    assert [series.y for series in right.series] == [pytest.approx((1.01, 1.1)), pytest.approx((1.0, 1.0))]
    assert (left.y, right.y) == ("throughput (images/s)", "sent in a step (MB), by a GPU or a node")
    assert "infiniband (asked), 2 workers × 1 core invalid" in " ".join(left.notes)
    drawn = draw(left, right, side_by_side=True).axes
    assert [bar.get_width() for axes in drawn for bar in axes.patches] == pytest.approx([5120 / 9, 160, 1.01, 1.1])
    # Without counters there is one panel, without a usable run no plot.
    assert (
        len(panels(compare(curves([ONE, *(run(kind, inner(kind), seconds=0.1) for kind in ("nvlink", "shm"))])))) == 1
    )
    other = run("lost-2", two(interconnect="roce"), seconds=0.1, reasons=("x",))
    assert written(compare(curves([ONE, LOST, other]))).pictures["m"]() is None


def test_a_matrix_over_several_transports_writes_a_report_for_each_and_the_comparison(tmp_path):
    console = Console(width=200, file=io.StringIO())
    publish(RUNS, out=tmp_path, name="m", console=console, verbose=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"m-ethernet-eth0-emulated-100mbit.{kind}" for kind in ("csv", "md", "png")),
        *(f"m-ethernet-eth0-emulated-1gbit.{kind}" for kind in ("csv", "md", "png")),
        *(f"m-infiniband-asked.{kind}" for kind in ("csv", "md")),
        *(f"m-transports.{kind}" for kind in ("csv", "md", "png")),
    ]
    said = console.file.getvalue()
    assert "2 on 2 nodes over ethernet eth0, emulated 100mbit" in said
    assert "resnet18 train: transports" in said
    (tmp_path / "one").mkdir()
    publish([ONE, *FAST_RUNS], out=tmp_path / "one", name="m", console=console)
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["m.csv", "m.md", "m.png"]


def test_the_scaling_table_names_the_wires_between_nodes():
    assert summarize([ONE, *FAST_RUNS]).wires == "2 on 2 nodes over ethernet eth0, emulated 1gbit"
    assert summarize(FAST_RUNS).wires == "2 nodes over ethernet eth0, emulated 1gbit"
    assert summarize([ONE]).wires is None
    unshaped = run("plain", two(), seconds=0.1)
    assert summarize([unshaped]).wires == "2 nodes over ethernet eth0, emulated: nodes of one machine"


def test_collectives_are_tabulated_as_medians_by_transport_with_missing_ones_named():
    """Three repeats of an all-gather of 4,000,000 bytes in 4, 2 and 1 ms: 2 ms, 2 GB/s, of which half leaves each of two devices."""
    runs = []
    for repeat, seconds in enumerate((0.004, 0.002, 0.001), 1):
        probed = {
            "probe": (timed("all_reduce", 4_000_000, 0.008),),
            "collectives": (timed("all_gather", 4_000_000, seconds),),
            "no_collectives": "all-to-all: this Horovod has none",
        }
        runs.append(but(run(f"fast-{repeat}", two(link=FAST, repeat=repeat), seconds=0.1), measurement=probed))
    found = transports.report(compare(curves([*runs, SLOW_RUN])), name="wires")
    table = found.tables[1]
    assert table.columns[-4:] == ("size (bytes)", "time (ms)", "algorithm (GB/s)", "bus (GB/s)")
    assert [(row[0], *row[-4:]) for row in table.rows] == [
        ("all-reduce", "4,000,000", "8.000", "0.500", "0.500"),
        ("all-gather", "4,000,000", "2.000", "2.000", "1.000"),
    ]
    assert "not timed: all-to-all: this Horovod has none" in found.markdown()
    assert len(transports.report(compare(curves(RUNS)), name="wires").tables) == 1
    (_, row), *_ = [(one.transport, one.row) for one in compare(curves([*runs, SLOW_RUN])).rows]
    assert to_csv([("ethernet", row)]).splitlines()[2] == "ethernet,2,all_gather,4000000,0.002,2.0,1.0"
