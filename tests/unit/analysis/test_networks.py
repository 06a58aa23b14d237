"""Prevents: a network's efficiency to the baseline of another one or of other wires, matrices of one training that are not joined, a table of
what was trained differently, and one that shows what may not be used.
"""

from __future__ import annotations

import csv
import io

import pytest
from scaled import ran

from runner.analysis.comparisons.sweeps import networks
from runner.report import comparisons

pytestmark = pytest.mark.filterwarnings("error")  # a glyph that the font lacks is a warning


# lenet: 100, 180 and 320 images/s; alexnet: 50 and 45 a device less than one.
LENET = (ran("lenet", 1, 100), ran("lenet", 4, 320), ran("lenet", 2, 180, matrix="later"))
ALEXNET = (ran("alexnet", 1, 50), ran("alexnet", 2, 90))


def test_efficiencies_are_to_the_networks_own_baseline_whatever_matrix_they_are_of():
    (found,) = networks((*LENET, *ALEXNET))
    assert [network.label for network in found.networks] == ["alexnet 32×32", "lenet 32×32"]
    alexnet, lenet = found.networks
    assert [row.scale for row in lenet.rows] == [1, 2, 4]
    assert [row.efficiency for row in lenet.rows] == pytest.approx([1, 0.9, 0.8])
    assert [row.speedup for row in lenet.rows] == pytest.approx([1, 1.8, 3.2])
    assert [row.efficiency for row in alexnet.rows] == pytest.approx([1, 0.9])
    assert lenet.runs == (("m-lenet-1-0",), ("later-lenet-2-0",), ("m-lenet-4-0",))
    assert found.name == "networks-pytorch-1.9.1-fp32-shm-cpu"
    assert found.setting == "fp32, weak scaling, ddp over shm, synthetic data"


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "bf16"},
        {"interconnect": "loopback"},
        {"scaling": "strong"},
        {"techniques": ("one-message",)},
        {"mode": "converge"},
        {"strategy": "horovod"},
    ],
)
def test_what_was_trained_differently_is_another_table(changes):
    other = tuple(ran("alexnet", devices, rate, **changes) for devices, rate in ((1, 50), (2, 90)))
    assert networks((*LENET, *other)) == ()
    assert len(networks((*LENET, *ALEXNET, *other))) == 1


def test_two_scales_of_two_are_no_curves_and_one_network_is_no_comparison():
    vgg = (ran("vgg16", 1, 20), ran("vgg16", 2, 30))
    assert networks((*LENET[:2], *ALEXNET)) == ()
    (found,) = networks((*LENET[:2], *ALEXNET, *vgg))
    assert [network.rows[-1].efficiency for network in found.networks] == pytest.approx([0.9, 0.8, 0.75])
    larger = (ran("lenet", 1, 20, key="larger"), ran("lenet", 2, 30, key="larger"))
    assert networks((*LENET[:2], *ALEXNET, *larger)) == ()
    assert networks(LENET) == ()
    assert networks((*LENET, ALEXNET[1])) == ()  # no baseline


def test_what_may_not_be_used_shows_no_figure_and_says_why():
    lost = ran("alexnet", 2, 90, status="invalid")
    (found,) = networks((*LENET, ALEXNET[0], lost))
    assert [row.efficiency for row in found.networks[0].rows] == [pytest.approx(1), None]
    assert found.notes == (f"alexnet 32×32, 2 workers × 1 core invalid: {lost[1].validity.reasons[0]}",)
    (drawn,) = comparisons.networks(found).figures
    assert [series.name for series in drawn.series] == ["lenet 32×32, batch 32"]


def test_every_form_has_the_same_figures():
    (found,) = networks((*LENET, *ALEXNET))
    table = comparisons.networks(found).tables[0]
    column = table.columns.index("efficiency (%) ±")
    assert [row[column].partition(" ")[0] for row in table.rows] == ["100.0", "90.00", "100.0", "90.00", "80.00"]
    assert f"| {' | '.join(table.rows[-1])} |" in comparisons.networks(found).markdown()
    lines = list(csv.DictReader(io.StringIO(comparisons.networks(found).files()[f"{found.name}.csv"])))
    assert [float(line["efficiency"]) for line in lines] == pytest.approx([1, 0.9, 1, 0.9, 0.8])
    assert lines[-1]["runs"] == "m-lenet-4-0"
    (figure,) = comparisons.networks(found).page_block().figures
    assert [series.y for series in figure.series] == [pytest.approx((100, 90)), pytest.approx((100, 90, 80))]
    assert (
        comparisons.networks(found).page_block().lead
        == "alexnet 32×32: 90.00 % on 2 workers × 1 core; lenet 32×32: 80.00 % on 4 workers × 1 core"
    )
