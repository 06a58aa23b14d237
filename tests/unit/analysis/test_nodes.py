"""Prevents: a slow node that is not named, and a healthy one that is blamed: verdicts on figures of nodes, by hand and by simulation."""

import math
import statistics

import numpy as np
import pytest
from goldens import printed

from runner.analysis.comparisons.nodes import MARGIN, Diagnosis, Figure, hostlist, judge, pooled
from runner.core.errors import RequestError
from runner.report.nodes import show


def diagnosis(values, **changes):
    figure = Figure(name="training", unit="images/s", values=values)
    return Diagnosis(**({"what": "lenet", "device": "CPU", "figures": (figure,)} | changes))


def test_a_ratio_and_its_interval_by_hand():
    """Two nodes in three rounds: log differences ln .5, ln .5, ln .4; t with 2 degrees of freedom at 1 - .05/2 (two verdicts) is 6.2053."""
    found = judge(diagnosis({"a": (100, 110, 100), "b": (50, 55, 40)}))
    slow, fast = found
    apart = [math.log(0.5), math.log(0.5), math.log(0.4)]
    width = 6.2053 * statistics.stdev(apart) / math.sqrt(3)
    assert (slow.node, fast.node) == ("b", "a")
    assert slow.ratio == pytest.approx((0.5 * 0.5 * 0.4) ** (1 / 3))
    assert slow.interval.low == pytest.approx(slow.ratio * math.exp(-width), rel=1e-4)
    assert slow.interval.high == pytest.approx(slow.ratio * math.exp(width), rel=1e-4)
    assert slow.value == pytest.approx((50 * 55 * 40) ** (1 / 3))
    assert slow.expected == pytest.approx((100 * 110 * 100) ** (1 / 3))
    assert (slow.is_slow, fast.is_slow) == (slow.interval.high < 0.95, False)


def test_slow_nodes_are_out_and_the_others_are_not_while_fewer_than_half_are_slow():
    fine, slow = (100, 101, 99, 100, 100), (80, 81, 80, 79, 80)
    found = judge(diagnosis({"n1": fine, "n2": slow, "n3": fine, "n4": slow, "n5": (101, 100, 99, 101, 100)}))
    assert [one.node for one in found if one.is_slow] == ["n2", "n4"]
    assert found[0].ratio == pytest.approx(0.8, abs=0.01)


def test_a_common_drift_neither_blames_nor_hides_a_node():
    drift = (1.0, 0.9, 0.8, 0.7, 0.6)
    nodes = {name: tuple(rate * one for one in drift) for name, rate in {"a": 100, "b": 101, "c": 70}.items()}
    assert [one.node for one in judge(diagnosis(nodes)) if one.is_slow] == ["c"]


def test_a_single_node_is_compared_with_a_baseline():
    base = diagnosis({"old": (100, 101, 99, 100, 102)})
    (slow,) = judge(diagnosis({"n7": (90, 91, 89, 90, 90)}), base)
    assert (slow.node, slow.baseline, slow.is_slow) == ("n7", True, True)
    assert slow.ratio == pytest.approx(0.896, abs=0.001)
    (fine,) = judge(diagnosis({"n7": (97, 98, 99, 98, 97)}), base)
    assert not fine.is_slow
    assert judge(diagnosis({"n7": (90, 91, 89, 90, 90)})) == ()


@pytest.mark.parametrize("changes", [{"what": "resnet50"}, {"device": "GPU"}])
def test_a_baseline_of_another_trial_or_device_is_refused(changes):
    with pytest.raises(RequestError, match="pass a baseline of the same"):
        judge(diagnosis({"a": (1, 2, 3)}), diagnosis({"a": (1, 2, 3)}, **changes))
    with pytest.raises(RequestError, match="of one trial on one kind"):
        pooled([diagnosis({"a": (1, 2)}), diagnosis({"a": (1, 2)}, **changes)])


def test_too_few_rounds_for_an_interval_are_refused():
    with pytest.raises(RequestError, match="2 rounds, and an interval needs 3"):
        judge(diagnosis({"a": (1, 2), "b": (1, 2)}))


def test_a_baseline_pools_several_diagnoses():
    found = pooled([diagnosis({"a": (1, 2)}, runs=("r1",)), diagnosis({"a": (3,), "b": (4,)}, runs=("r2",))])
    assert found.figures[0].values == {"a": (1, 2, 3), "b": (4,)}
    assert found.runs == ("r1", "r2")


def test_nodes_at_the_margin_are_blamed_in_at_most_5_percent_of_diagnoses_and_slow_ones_nearly_always():
    """One node of four is exactly at the margin, the hardest case that must not be blamed; noise between rounds is 2 %, five rounds."""
    generator = np.random.default_rng(7)

    def blamed(share, diagnoses):
        """The share of diagnoses, of three figures each, that blame a node whose figures are this share of the others'."""
        count = 0
        for _ in range(diagnoses):
            noise = generator.normal(0, 0.02, size=(3, 4, 5))
            figures = tuple(
                Figure(
                    name=f"f{number}",
                    unit="1/s",
                    values={f"n{k}": tuple(np.exp(own) * (share if k == 0 else 1)) for k, own in enumerate(one)},
                )
                for number, one in enumerate(noise)
            )
            count += any(one.is_slow for one in judge(Diagnosis(what="w", device="d", figures=figures)))
        return count / diagnoses

    assert blamed(1 - MARGIN, 1000) < 0.05
    assert blamed(0.8, 200) > 0.95


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n3", "n7"], "n[3,7]"),
        (["n3", "n4", "n5", "n9"], "n[3-5,9]"),
        (["gpu08", "gpu09", "gpu10"], "gpu[08-10]"),
        (["n9", "n10"], "n10,n9"),
        (["login", "n1", "n1"], "login,n1"),
        (["rack1-n2", "rack1-n3", "rack2-n2"], "rack1-n[2-3],rack2-n2"),
        ([], ""),
    ],
)
def test_host_lists_use_slurms_notation(names, text):
    assert hostlist(names) == text


def test_a_slow_node_is_reported_with_figure_ratio_interval_and_slurm_host_list(tmp_path):
    fine, slow = (100, 101, 99, 100, 100), (70, 70.5, 69.5, 70, 70)
    found = diagnosis({"n1": fine, "n2": fine, "n3": slow}, failed={"n7": "rank 0 ended with exit code 1"})
    verdicts = judge(found)
    said = printed(lambda console, *_: show(console, found, verdicts, path=tmp_path / "x.json"), width=200)
    assert "n7 is out: rank 0 ended with exit code 1" in said
    assert "n3 is out: training 70.00 images/s, 0.700 (0.6" in said
    assert "of the median of the other nodes, 100.00 images/s" in said
    assert "--exclude=n[3,7]\n" in said
    assert "n1 is out" not in said


def test_a_single_node_without_a_baseline_is_told_to_get_one(tmp_path):
    found = diagnosis({"n1": (100, 101, 99)})
    said = printed(lambda console, *_: show(console, found, (), path=tmp_path / "x.json"), width=200)
    assert "n1 has no other node to compare with; add HOSTS, or --baseline FILE" in said
    assert "exclude" not in said
