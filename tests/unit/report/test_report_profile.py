"""A pass under a profiler on a terminal, as Markdown and as pictures.

Prevents: a table in the wrong unit; an empty table; a figure missing without a reason; a figure broken in two on a terminal of 100 columns;
a picture that needs a display or drops the categories without room; a measured run taken for a profile, an old pass for the newest, a
profile that never started for an empty one.

After an intended change, `DLSCALE_GOLDEN=write make test` rewrites the golden files; read the difference before committing it.
"""

from __future__ import annotations

import json
import struct
from datetime import datetime, timezone
from pathlib import Path

import examples
import passes
import pytest
from goldens import expected, printed
from profile_rows import ALL_REDUCE, BN, GEMM, WINOGRAD, call, copy, env, kernel, op, region, start, stop, table
from program_events import program_event
from records import provenance, record

from runner.analysis.profile.figures import analyse
from runner.commands.runs import find_pass, show_profile
from runner.core.errors import RequestError
from runner.core.events import Memory
from runner.report.page.figures import time_shares
from runner.report.profile import profile_report
from runner.report.publish import profiled
from runner.results.store import write_record

pytestmark = pytest.mark.filterwarnings("error")  # matplotlib warns if the font lacks a glyph

GOLDEN = examples.ROOT / "tests" / "golden" / "report"
LONG = "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64_16x10_nhwc_align4>(Params)"

GPUS = analyse(
    table(
        region(0.0, 0.004, "forward"),
        region(0.004, 0.01, "backward"),
        call(0.0001, 0.00011, correlation=1),
        call(0.0002, 0.00022, correlation=2),
        call(0.005, 0.0051, correlation=3),
        call(0.006, 0.0062, "cudaEventDestroy"),
        copy(0.0, 0.001, 25_000_000),
        kernel(0.0005, 0.003, LONG, correlation=1, fp32_percent=4.0, tensor_percent=61.0, dram_bytes=3e7),
        kernel(0.0031, 0.0041, BN, correlation=2, fp32_percent=22.5, tensor_percent=0.0, dram_bytes=5e7),
        kernel(0.0055, 0.0085, WINOGRAD, correlation=3, fp32_percent=71.0, tensor_percent=0.0, dram_bytes=2e7),
        kernel(0.007, 0.009, ALL_REDUCE),
        kernel(0.001, 0.005, GEMM, rank=1, device=1),
    ),
    [
        env(),
        start(0, plain=(0.004, 0.0044)),
        start(1, plain=(0.0042,)),
        stop(0, steps=(0.005, 0.006)),
        stop(1, steps=(0.0055, 0.0055)),
        *(
            program_event(
                Memory,
                phase=phase,
                device="gpu0",
                allocated_bytes=size << 20,
                reserved_bytes=900 << 20,
                peak_bytes=None,
            )
            for phase, size in (("forward", 700), ("backward", 150))
        ),
    ],
)
CPU = analyse(
    table(
        op(0.0, 0.6, "aten::mkldnn_convolution", op=2),
        op(0.1, 0.2, "aten::empty", op=3, parent=2),
        op(0.8, 1.1, "aten::mm", op=4),
    ),
    [env("cpu"), start(steady=False), stop()],
)


def show(console, profile):
    console.print(profile_report(profile))


def reported(profile, **changes):
    return profiled((Path("p"), record(**changes).model_copy(update={"profile": profile})))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("profile-gpus-100-columns.txt", printed(show, GPUS, width=100)),
        ("profile-cpu-80-columns.txt", printed(show, CPU, width=80)),
        ("profile-gpus.md", reported(GPUS, status="degraded").markdown()),
        ("profile-cpu.md", reported(CPU).markdown()),
    ],
)
def test_golden(name, text):
    assert text == expected(GOLDEN / name, text)


def test_categories_that_do_not_fit_share_a_bar():
    first = GPUS.categories[0].model_copy(update={"share_percent": 5.0})
    many = GPUS.model_copy(update={"categories": (first,) * 20})
    (figure,) = time_shares(many, name="n", title="resnet50")
    assert figure.series[0].x[-1] == "6 others"
    assert sum(figure.series[0].y) == pytest.approx(100)


def test_a_pass_is_drawn_and_one_without_work_is_not():
    png = reported(GPUS).files()["run-1.png"]
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">I", png[16:20])[0] == 1280
    nothing = analyse(None, [env(), start(kind="memory"), stop()])
    assert reported(nothing).files()["run-1.png"] is None


def leave(out, name, found, *, second=0):
    """A run directory with a record made at this second."""
    (out / name).mkdir(parents=True)
    when = datetime(2026, 1, 1, second=second, tzinfo=timezone.utc)
    changes = {"run_id": name, "provenance": provenance(recorded_at=when)}
    write_record(out / name, found.model_copy(update=changes))
    return out / name


def a_pass(kind, **changes):
    return passes.record_of(passes.trial(kind, ranks=1), **changes)


@pytest.fixture
def runs(tmp_path):
    """A measured run, and two passes after it."""
    leave(tmp_path, "a", record())
    leave(tmp_path, "b", a_pass("memory"), second=2)
    leave(tmp_path, "c", a_pass("region"), second=1)
    return tmp_path


def test_the_newest_pass_by_time_is_found_unless_a_pass_is_named(runs):
    assert find_pass(runs)[1].profile.kind == "memory"
    assert find_pass(runs / "c")[1].profile.kind == "region"
    deep = leave(runs / "topic" / "more", "d", a_pass("kernels", events=[]), second=3)
    assert find_pass(runs)[0] == deep


def test_a_run_without_a_profile_is_refused_with_the_reason(runs, tmp_path):
    with pytest.raises(RequestError, match="is a measured run without a profiler; name a pass under one"):
        find_pass(runs / "a")
    alone = leave(tmp_path / "alone", "measured", record()).parent
    with pytest.raises(RequestError, match="holds no pass under a profiler; name one, or run with PROFILE=kernels"):
        find_pass(alone)
    with pytest.raises(RequestError, match=r"^RUN=.*/nope does not exist;"):
        find_pass(tmp_path / "nope")
    never = leave(tmp_path, "p", a_pass("memory", events=[]))
    with pytest.raises(RequestError, match=r"its profiler never started \(0 of 1 ranks ended their pass"):
        show_profile(never, as_json=False)


def test_json_is_the_records_profile(runs, capsys):
    show_profile(runs, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["kind"] == "memory"
    assert said["memory"][0]["peak_bytes"] == 2


def test_the_reason_for_not_using_ncus_counters_is_printed(tmp_path, capsys):
    sampler = {"source": "sampler", "reason": "there is no ncu on PATH"}
    one = passes.trial("metrics", device="gpu", ranks=1, counting=sampler)
    leave(tmp_path, "p", passes.record_of(one))
    show_profile(tmp_path, as_json=False)
    said = capsys.readouterr().out
    assert "averages over time and not of each kernel: there is no ncu on PATH" in said
    assert "profile of hardware counters" in said
