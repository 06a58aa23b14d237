"""Inside the image: a profiling pass shows where a step's time goes, on the events' clock, on one rank and on two.

Prevents regions and operators on different clocks, operators outside their step or without their parent,
overlapping regions, floating-point operations of another network, ranks that end a pass at different
steps, rows of ranks that split one another's lines, a pass that trains other weights than the same steps without one.
"""

import json
import statistics
import time
from pathlib import Path

import torch
from probed import losses, named, program
from profiled import run_pass

# A single operator per step, which identifies the update.
PROGRAM = (*program("pytorch", "lenet"), "--techniques=fused-optimizer")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2")
REGIONS = {"input", "forward", "backward", "optimizer"}
EDGES = ("start", "stop")
WHERE = {
    "aten::conv2d": "forward",
    "aten::cross_entropy_loss": "forward",
    "aten::convolution_backward": "backward",
    "aten::_fused_sgd_": "optimizer",
}


def single(*more):
    return run_pass(*PROGRAM, "--devices=1", "--strategy=single", *more)


def clocks_agree():
    """The loop's regions match the profiler's within a millisecond; the median, because any single one may be preempted."""
    from profiling import Regions, Watcher
    from with_pytorch.profiler import Kineto
    from with_pytorch.trace import clock_ahead

    kineto, regions = Kineto(torch.device("cpu"), 0), Regions()
    regions.annotate = torch.profiler.record_function
    regions.watch(Watcher(None, kineto, None, kind="kernels", region=None), only=None)
    kineto.start()
    for name in ("forward", "backward", "forward") * 9:
        with regions(name):
            time.sleep(0.002)
    kineto.stop()
    kineto.profile.export_chrome_trace("/tmp/trace.json")
    events = [event for event in json.loads(Path("/tmp/trace.json").read_text())["traceEvents"] if event["ph"] == "X"]
    ahead = clock_ahead(events, kineto.marks)
    seen = sorted(
        ((event["ts"] - ahead) / 1e6, event["dur"] / 1e6, event["name"]) for event in events if event["name"] in REGIONS
    )
    noted = regions.close()
    assert [name for _, _, name in seen] == [name for name, _, _ in noted]
    both = list(zip(seen, noted, strict=True))
    later = statistics.median(start - first for (start, _, _), (_, first, _) in both)
    longer = statistics.median(duration - (last - first) for (_, duration, _), (_, first, last) in both)
    assert abs(later) < 1e-3, f"regions began {later} s later for the profiler"
    assert abs(longer) < 1e-3, f"regions took {longer} s longer for the profiler"


def check(events, *, rank=0):
    """Check a rank's `kernels` pass: its rows, its operators by number and its regions."""
    (start,), (stop,) = (
        [event for event in named(events, f"profile_{edge}") if event["rank"] == rank] for edge in EDGES
    )
    assert (start["kind"], start["source"]) == ("kernels", "torch.profiler")
    assert len(start["plain_step_seconds"]) == 5
    assert len(stop["step_seconds"]) == stop["iterations"] == 3
    rows = [row for row in events.rows if row["rank"] == rank]
    assert all(start["t"] < row["start"] and row["start"] + row["duration"] < stop["t"] for row in rows)
    assert {row["device"] for row in rows} == {-1}
    operators = {row["op"]: row for row in rows if row["kind"] == "op"}
    assert len(operators) == sum(row["kind"] == "op" for row in rows), "two operators have one number"
    parts = [row for row in operators.values() if row.get("parent") is not None]
    assert len(parts) > len(operators) / 2
    for row in parts:
        whole = operators[row["parent"]]
        assert whole["start"] <= row["start"], f"{row} begins before {whole}"
        assert ended(row) <= ended(whole) + 1e-6, f"{row} ends after {whole}"
    return rows, list(operators.values()), [row for row in rows if row["kind"] == "region"]


def ended(row):
    return row["start"] + row["duration"]


def within(row, region):
    return region["start"] - 1e-3 <= row["start"] <= ended(region) + 1e-3


def one_rank_traces_all_regions():
    events = single("--profile=kernels", "--profile-iterations=3", "--profile-after=8")
    assert named(events, "profile_start")[0]["iteration"] == 8
    _, operators, regions = check(events)
    # The optimizer clears the gradients before the forward pass and steps after the backward pass.
    assert [row["name"] for row in regions] == ["input", "optimizer", "forward", "backward", "optimizer"] * 3
    for name, region in WHERE.items():
        found = [row for row in operators if row["name"] == name]
        assert found, f"no {name}"
        assert all(any(within(row, r) for r in regions if r["name"] == region) for row in found), f"{name}: {found}"
    # Twice the multiply-adds of two images: 28 x 28 outputs of 5 x 5 x 3 to 20 channels, 10 x 10 of 5 x 5 x 20 to 50.
    forward = [row["flop"] for row in operators if row["name"] == "aten::conv2d"]
    assert sorted(forward) == [2 * 2 * 784 * 75 * 20] * 3 + [2 * 2 * 100 * 500 * 50] * 3
    counts = {event["phase"]: event for event in named(events, "flop_count")}
    (begun,), (ended_with,) = named(events, "run_start"), named(events, "run_stop")
    assert {phase: event["flop_per_sample"] for phase, event in counts.items()} == begun["flop_per_sample"]
    assert sum(counts["forward"]["operators"].values()) == counts["forward"]["flop_per_sample"]
    # 8 + 3 steps of a pass train the same weights as 2 + 9 measured ones.
    plain = single("--iterations=9")
    assert ended_with["iterations"] == 11
    assert losses(events) == losses(plain)
    assert named(plain, "run_stop")[0]["parameter_norm"] == ended_with["parameter_norm"]


def a_single_region_can_be_traced():
    _, operators, regions = check(single("--profile=kernels", "--profile-iterations=3", "--profile-region=backward"))
    assert [row["name"] for row in regions] == ["backward"] * 3
    names = {row["name"] for row in operators}
    assert "aten::convolution_backward" in names
    assert not {"aten::conv2d", "aten::_fused_sgd_"} & names


def two_ranks_trace_themselves():
    events = run_pass(
        *TORCHRUN, *PROGRAM, "--devices=1", "--strategy=ddp", "--profile=kernels", "--profile-iterations=3"
    )
    assert len({event["iteration"] for event in named(events, "profile_start")}) == 1, "the ranks warmed up differently"
    for rank in (0, 1):
        _, operators, regions = check(events, rank=rank)
        reduced = [row for row in operators if row["name"] == "gloo:all_reduce"]
        assert len(reduced) >= 3
        assert all(any(within(row, r) for r in regions if r["name"] == "backward") for row in reduced)
    norms = [event["parameter_norm"] for event in named(events, "run_stop")]
    assert len(norms) == 2
    assert norms[0] == norms[1]


def other_kinds_report_their_own_events():
    events = single("--profile=memory", "--profile-iterations=3")
    found = {event["phase"]: event for event in named(events, "memory")}
    assert set(found) == {"model", *REGIONS}
    assert {event["device"] for event in found.values()} == {"host"}
    assert all(0 < event["allocated_bytes"] <= event["peak_bytes"] for event in found.values()), found
    assert not events.rows

    events = single("--profile=region", "--profile-iterations=3", "--precision=bf16")
    found = {event["name"]: event["seconds"] for event in named(events, "regions")}
    (stop,) = named(events, "profile_stop")
    assert set(found) == REGIONS
    for number, seconds in enumerate(stop["step_seconds"]):
        parts = sum(found[name][number] for name in REGIONS)
        assert 0.5 * seconds < parts <= seconds + 1e-6, f"of {seconds} s, {parts} s are in regions"

    events = single("--profile=metrics", "--profile-iterations=3")
    (stop,) = named(events, "profile_stop")
    assert len(stop["step_seconds"]) == stop["iterations"] > 3
    assert not events.rows


clocks_agree()
one_rank_traces_all_regions()
a_single_region_can_be_traced()
two_ranks_trace_themselves()
other_kinds_report_their_own_events()
