"""Prevents: a support matrix that promises what nobody ran, hides what somebody did, or counts a run that is invalid."""

import examples
from records import record

from runner.commands.documents import strategies_of, support_matrix
from runner.core.strategies import STRATEGIES
from runner.images.catalog import load_images

IMAGES = load_images(examples.ROOT).everything
MXNET = next(image for image in IMAGES if image.name == "mxnet 1.9.1")
TWO = examples.trial(strategy="kvstore", kvstore="dist_sync", world_size=2, processes=2, global_batch=64)


def rows(*records):
    table = support_matrix([MXNET], records).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def test_every_strategy_of_every_image_is_a_row_and_nothing_ran_before_it_did():
    table = support_matrix(IMAGES, [])
    assert table.count("\n") == 2 + sum(len(strategies_of(image)) for image in IMAGES)
    assert [row[4:] for row in rows()] == [["single", "not yet"], ["kvstore", "not yet"]]


def test_a_record_says_where_it_was_made_and_with_which_store():
    found = rows(record(), record(trial=TWO, run_id="two"))
    cpu = record().provenance.host.cpu_model or "unknown processor"
    assert [row[4:] for row in found] == [
        ["single", f"1 CPU worker, {cpu}"],
        ["kvstore (dist_sync)", f"2 CPU workers, {cpu}"],
    ]


def test_two_records_of_one_place_are_one_place_and_a_run_that_is_invalid_ran_nowhere():
    assert rows(record(), record(run_id="again"))[0][5].count("CPU worker") == 1
    assert rows(record(status="invalid"))[0][5] == "not yet"


def test_emulated_nodes_do_not_pass_for_machines():
    several = record(trial=TWO.model_copy(update={"nodes": 2}), run_id="two")
    (_, row) = rows(several)
    assert row[5].startswith("2 CPU workers on 2 nodes, ")
    told = several.transport.model_copy(update={"emulated": "emulated 1gbit"})
    (_, row) = rows(several.model_copy(update={"transport": told}))
    assert row[5].startswith("2 CPU workers on 2 nodes (emulated), ")


def test_an_image_with_horovod_is_for_that_alone_and_caffe_scales_on_gpus_only():
    strategies = {(image.framework, image.device, image.extension): strategies_of(image) for image in IMAGES}
    assert strategies["mxnet", "cpu", "horovod"] == ("horovod",)
    assert strategies["caffe", "cpu", None] == ("single",)
    assert strategies["caffe", "gpu", None] == ("single", "caffe")
    assert strategies["tensorflow", "cpu", None] == ("single", "mirrored", "multiworker", "ps")
    assert {name for found in strategies.values() for name in found} == set(STRATEGIES)
