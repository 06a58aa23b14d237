"""Names of kernels, copies, calls and operators into categories.

Prevents: a general pattern that hides a specific one, so that winograd counts as gemm or a backward pass as a forward one; a name matched
by the type of one of its arguments; a category unknown to the record; an algorithm without any real name.

Names and categories are in tests/golden/profile/names.yaml, each with its source.
"""

from __future__ import annotations

import typing

import examples
import pytest
import yaml

from runner.analysis.profile import classify
from runner.core.errors import RequestError
from runner.core.profile import CallClass, Category

GOLDEN = yaml.safe_load((examples.ROOT / "tests/golden/profile/names.yaml").read_text(encoding="utf-8"))
KINDS = {"kernels": "kernel", "copies": "copy", "calls": "call", "operators": "op"}


@pytest.mark.parametrize("table", KINDS)
def test_real_names_have_their_authors_category(table):
    wrong = {
        entry["name"]: f"{found}, not {entry['category']}"
        for entry in GOLDEN[table]
        if (found := classify.category(KINDS[table], entry["name"])) != entry["category"]
    }
    assert wrong == {}


def test_every_name_has_a_source_and_enough_are_kernels():
    entries = [entry for table in KINDS for entry in GOLDEN[table]]
    assert {entry["source"] for entry in entries} == set(GOLDEN["sources"])
    assert len({entry["name"] for entry in GOLDEN["kernels"]}) >= 80


def test_every_category_of_kernels_was_seen_in_a_real_name():
    """A pattern without a name to test it is a guess; operators and copies have their own lists."""
    elsewhere = {"input", "copy_ptop", "copy_htoh", "copy_other", "memset"}
    seen = {entry["category"] for entry in GOLDEN["kernels"]}
    assert set(typing.get_args(Category)) - seen == elsewhere


def test_every_class_of_calls_was_seen():
    assert {entry["category"] for entry in GOLDEN["calls"]} == set(typing.get_args(CallClass))


@pytest.mark.parametrize(
    ("name", "category"),
    [
        # The argument cudnn::reduced_divisor turned each of these into a reduction.
        ("void op_generic_tensor_kernel<2>(cudnnTensorStruct, reducedDivisorArray, int)", "elementwise"),
        # A fused xmma batch norm has the convolution's traits among its arguments.
        (
            "void xmma::ext::batchnorm::bn_stats::dbn_apply_kernel<512, xmma::ext::x::dgrad::Params>()",
            "batch_norm_backward",
        ),
    ],
)
def test_a_name_is_not_classified_by_its_arguments(name, category):
    assert classify.category("kernel", name) == category


def test_a_variant_of_a_call_is_the_same_function():
    assert classify.function("cuMemcpyHtoDAsync_v2_ptsz") == "cuMemcpyHtoDAsync"
    assert classify.function("cudaStreamSynchronize_v3020") == "cudaStreamSynchronize"
    assert classify.function("cudaLaunchKernel") == "cudaLaunchKernel"


def test_layer_names_do_not_affect_the_category():
    """TensorFlow's nodes carry the names of layers; a layer called `pool_conv` is no convolution."""
    assert classify.category("op", "pool_conv/relu:Relu") == "elementwise"


def test_directions_of_copies():
    assert classify.direction(classify.category("copy", "Memcpy HtoD (Pageable -> Device)")) == "HtoD"
    assert classify.direction(classify.category("copy", "something else")) == "other"


def test_a_pattern_that_does_not_compile_is_named(tmp_path, monkeypatch):
    file = tmp_path / "kernels.yaml"
    file.write_text(
        "kernels:\n  - category: gemm\n    patterns: ['gemm(']\ncopies: []\ncalls: []\noperators: []\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(classify, "PATTERNS", file)
    classify._tables.cache_clear()
    try:
        with pytest.raises(RequestError, match="regular expression"):
            classify._tables()
    finally:
        classify._tables.cache_clear()
