"""Bad input that starts something: every mistake is one sentence that names the variable and what to type."""

import pytest

from runner import request as ask
from runner.errors import RequestError
from runner.request import Request


@pytest.mark.parametrize("text", ["0", "-1", "abc", "1.5", "1e3", "٣"])
def test_a_count_is_a_whole_number_of_at_least_one(text):
    with pytest.raises(
        RequestError, match=f"^BATCH={text} is not a whole number of at least 1; type for example BATCH=4$"
    ):
        ask.count("BATCH", text)


@pytest.mark.parametrize("text", [None, ""])
def test_an_empty_variable_is_not_given(text):
    assert ask.count("BATCH", text) is None
    assert ask.counts("GPUS", text) is None
    assert ask.choice("DEVICE", text, ask.Device) is None


def test_a_sweep_is_sorted_and_distinct():
    assert ask.counts("GPUS", "4,1, 2,1") == (1, 2, 4)


def test_a_sweep_with_a_hole_is_refused():
    with pytest.raises(RequestError, match="has an empty place"):
        ask.counts("GPUS", "1,,2")


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200)])
def test_durations(text, expected):
    assert ask.seconds("TIMEOUT", text) == expected


@pytest.mark.parametrize("text", ["0", "soon", "5d", "-3s", ""])
def test_what_is_no_duration(text):
    with pytest.raises(RequestError, match="is not a duration"):
        ask.seconds("TIMEOUT", text)


def test_a_misspelt_word_gets_the_nearest_first():
    with pytest.raises(RequestError, match="^unknown PRECISION 'bf61'; known: bf16, "):
        ask.choice("PRECISION", "bf61", ask.Precision)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"nodes": 2}, "NODES=2 asked, this version runs on one host"),
        ({"hosts": "hosts.yaml"}, "HOSTS=hosts.yaml asked, this version runs on one host"),
        ({"gpus": (1,), "workers": (2,)}, "GPUS and WORKERS exclude each other"),
        ({"gpus": (1,), "device": "cpu"}, "GPUS and DEVICE=cpu exclude each other"),
        ({"workers": (2,), "device": "gpu"}, "WORKERS counts CPU workers and DEVICE=gpu asks for GPUs"),
        ({"interconnect": "infiniband"}, "INTERCONNECT=infiniband asked, but a job on one host crosses no network"),
        ({"iface": "eth0"}, "IFACE=eth0 asked"),
        ({"iterations": 5, "epochs": 1}, "ITERATIONS and EPOCHS say the same thing twice"),
    ],
)
def test_requests_that_contradict_themselves(fields, sentence):
    with pytest.raises(RequestError) as caught:
        ask.refuse_unbuilt(Request(**fields))
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_caffe_on_several_nodes_is_refused_for_what_caffe_is():
    with pytest.raises(RequestError, match="but Caffe has no distributed training; ask for one node and GPUS=n"):
        ask.refuse_unbuilt(Request(framework="caffe", nodes=2))
