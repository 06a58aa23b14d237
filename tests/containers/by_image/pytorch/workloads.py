"""Inside the image: on two ranks each workload loses what it loses on one, and a probe or a profiler changes nothing of that.

Prevents ranks that train a model each, gradients of a second network that nobody averages, latents or utterances that differ with the
number of ranks, a probe that moves random numbers, batches or gradients, a pass that trains otherwise than the same steps without it,
a region that is missing, a window without its units.
"""

import alone
from deepspeech2 import speech
from probed import SIZES, WORKLOADS, losses, of, ran
from profiled import passed
from programs import torchrun

TWENTY = ("--iterations=18", "--warmup=2", "--window=9", *alone.SHARED)
# Neither batch normalization, which sees a rank's own batch, nor dropout, which draws each rank's own numbers.
PROGRAMS = {
    "wgan": ("--model=wgan-nobn", *alone.WGAN),
    "deepspeech2": alone.SPEECH,
    "dense_reuters": (*alone.DENSE, "--dropout=0"),
}
# The sums of all ranks are the same in another order; what ranks that never meet lose differs by far more.
TOLERANCE = 1e-3


def one(workload, *words):
    flags = (*PROGRAMS[workload], *TWENTY, "--strategy=single", "--batch=4", *words)
    return (str(WORKLOADS / workload / "train_pytorch.py"), *flags)


def by_rank(events, name):
    """Fields of the events of a name, a list a rank."""
    ranks = sorted({event["rank"] for event in events})
    return [[event for event in of(events, name) if event["rank"] == rank] for rank in ranks]


def ranks_train_one_model(workload):
    single = ran(*one(workload))
    words = ("--strategy=ddp", "--batch=2", f"--probe={','.join(map(str, SIZES))}")
    double = ran(*one(workload, *words), ranks=torchrun(2))
    lost = losses(single)
    each = [[value for event in own for value in event["values"]] for own in by_rank(double, "loss")]
    assert len(lost) == 20
    assert [len(own) for own in each] == [20, 20]
    # Of the WGAN's estimate, which begins around 0, what counts is its size over the run.
    scale = [abs(value) for value in lost] if workload != "wgan" else [max(map(abs, lost))] * 20
    for number, value in enumerate(lost):
        mean = sum(own[number] for own in each) / 2
        assert abs(mean - value) <= TOLERANCE * scale[number], f"{workload}: {lost} became {each}"
    for name in ("eval", "run_stop"):
        first, second = by_rank(double, name)
        key = "losses" if name == "eval" else "parameter_norm"
        assert [event[key] for event in first] == [event[key] for event in second], f"{workload}: {name}"
    norms = [of(events, "run_stop")[0]["parameter_norm"] for events in (single, double)]
    assert abs(norms[0] - norms[1]) <= TOLERANCE * norms[0], norms
    assert all(event["wrong"] == 0 for event in of(double, "bandwidth"))
    operations = {event["operation"] for event in of(double, "bandwidth")}
    assert operations == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    assert sum(event["operation"] == "all_reduce" for event in of(double, "bandwidth")) == len(SIZES)
    assert len(of(double, "compute")) == 2
    units_are_whole(workload, single, double)
    return single


def units_are_whole(workload, single, double):
    """What throughput counts is the same on one rank and on two, and what it should be."""
    told = [[event.get("units") for event in of(events, "window")] for events in (single, double)]
    if workload == "dense_reuters":
        assert set(told[0] + told[1]) == {None}
    elif workload == "wgan":
        assert told == [[72, 72], [36] * 4]  # 9 iterations of 2 batches of 4, or of 2
    else:
        # Iterations 2 to 19 of the 8 batches that come again and again, in the same order in both.
        batches = [batch.seconds for batch in speech.synthetic_batches(1, batch=4, rank=0, world_size=1, longest_s=1.2)]
        expected = sum(batches[number % 8] for number in range(2, 20))
        assert all(abs(sum(units) - expected) < 1e-6 for units in told), (told, expected)


def a_profiler_trains_as_ever(workload, single):
    events = passed(*one(workload, "--profile=region", "--profile-after=17", "--profile-iterations=3"))
    found = {event["name"]: event["seconds"] for event in of(events, "regions")}
    assert set(found) == {"input", "forward", "backward", "optimizer"}
    assert all(len(seconds) == 3 for seconds in found.values())
    assert losses(events) == losses(single)
    assert of(events, "run_stop")[0]["parameter_norm"] == of(single, "run_stop")[0]["parameter_norm"]
    counts = {event["phase"]: event["flop_per_sample"] for event in of(events, "flop_count")}
    (begun,) = of(events, "run_start")
    for phase, flop in begun["flop_per_sample"].items():
        # Of utterances, which begin and end, a second has a little less than within a longer one.
        assert abs(counts[phase] / flop - 1) < (0.05 if workload == "deepspeech2" else 1e-6), (workload, counts, begun)


for name in PROGRAMS:
    a_profiler_trains_as_ever(name, ranks_train_one_model(name))
events = passed(*one("deepspeech2", "--profile=kernels", "--profile-iterations=1", "--profile-after=1"))
assert {"aten::convolution_backward", "aten::gru", "aten::_ctc_loss"} <= {row["name"] for row in events.rows}
