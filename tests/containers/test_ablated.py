"""Prevents: a technique that is planned and does not reach the program, one that changes what is learnt, lines that do not run in turns."""

import json

import pytest

from runner.analysis.comparisons.ablation import ablations
from runner.results.find import records_under

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_each_technique_reaches_the_program_and_learns_what_the_plain_one_learns(dlscale, sample, tmp_path):
    words = (
        *("--model=lenet", "--image-size=32", "--batch=16", "--iterations=20", "--warmup=4", "--workers=1"),
        *("--repeat=1", "--threads=1"),
    )
    ended = dlscale("ablate", *words, f"--data={sample}", out=tmp_path)
    assert ended.code == 0, ended.stderr
    (found,) = ablations(list(records_under(tmp_path)))
    assert [line.label for line in found.rows] == ["fp32, plain, batch 16", "+ channels-last", "+ fused-optimizer"]
    assert [line.row.repeats for line in found.rows] == [3, 1, 1]
    for line in found.rows[1:]:
        assert line.losses is not None
        assert line.losses.within, line.losses
    argv = [
        json.loads((tmp_path / line.runs[0] / "plan.json").read_text(encoding="utf-8"))["containers"][0]["argv"]
        for line in found.rows
    ]
    assert [[word for word in words if word.startswith("--techniques")] for words in argv] == [
        [],
        ["--techniques=channels-last"],
        ["--techniques=channels-last,fused-optimizer"],
    ]
    # The plain program and the last line start from the same weights and the same images.
    first, last = (next(iter(record.measurement.losses.values())) for record in _of(tmp_path, found))
    assert last[:4] == pytest.approx(first[:4], rel=1e-4)
    assert list(tmp_path.glob("ablation-pytorch-*.md"))


def _of(out, found):
    """The records of the first line's first run and of the last line's."""
    by_id = {record.run_id: record for _, record in records_under(out)}
    plain = [by_id[run] for run in found.rows[0].runs if by_id[run].trial.seed == 1]
    return plain[0], by_id[found.rows[-1].runs[0]]
