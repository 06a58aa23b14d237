"""Inside the image: each workload has the same losses on two ranks as on one, and neither a probe nor a profiler changes them.

Prevents ranks that each train their own model, unaveraged gradients of a second network, latents or utterances that depend on the
number of ranks, a probe that shifts random numbers, batches or gradients, a pass that trains differently from the same steps without it,
a missing region, a window without units.
"""

import alone
from deepspeech2 import speech
from probed import SIZES, WORKLOADS, losses, named, run_for_events
from profiled import run_pass
from programs import torchrun

TWENTY = ("--iterations=18", "--warmup=2", "--window=9", *alone.SHARED)
# No batch normalization, which sees only a rank's own batch, and no dropout, which draws each rank's own numbers.
PROGRAMS = {
    "wgan": ("--model=wgan-nobn", *alone.WGAN),
    "deepspeech2": alone.SPEECH,
    "dense_reuters": (*alone.DENSE, "--dropout=0"),
}
# Ranks sum the same numbers in another order; losses of ranks that do not communicate differ by far more.
TOLERANCE = 1e-3


def one(workload, *words):
    flags = (*PROGRAMS[workload], *TWENTY, "--strategy=single", "--batch=4", *words)
    return (str(WORKLOADS / workload / "train_pytorch.py"), *flags)


def by_rank(events, name):
    """Events with this name, one list per rank."""
    ranks = sorted({event["rank"] for event in events})
    return [[event for event in named(events, name) if event["rank"] == rank] for rank in ranks]


def ranks_train_one_model(workload):
    single = run_for_events(*one(workload))
    words = ("--strategy=ddp", "--batch=2", f"--probe={','.join(map(str, SIZES))}")
    double = run_for_events(*one(workload, *words), ranks=torchrun(2))
    lost = losses(single)
    each = [[value for event in own for value in event["values"]] for own in by_rank(double, "loss")]
    assert len(lost) == 20
    assert [len(own) for own in each] == [20, 20]
    # The WGAN's estimate starts around 0, so the tolerance is relative to its largest value.
    scale = [abs(value) for value in lost] if workload != "wgan" else [max(map(abs, lost))] * 20
    for number, value in enumerate(lost):
        mean = sum(own[number] for own in each) / 2
        assert abs(mean - value) <= TOLERANCE * scale[number], f"{workload}: {lost} became {each}"
    for name in ("eval", "run_stop"):
        first, second = by_rank(double, name)
        key = "losses" if name == "eval" else "parameter_norm"
        assert [event[key] for event in first] == [event[key] for event in second], f"{workload}: {name}"
    norms = [named(events, "run_stop")[0]["parameter_norm"] for events in (single, double)]
    assert abs(norms[0] - norms[1]) <= TOLERANCE * norms[0], norms
    assert all(event["wrong"] == 0 for event in named(double, "bandwidth"))
    operations = {event["operation"] for event in named(double, "bandwidth")}
    assert operations == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    assert sum(event["operation"] == "all_reduce" for event in named(double, "bandwidth")) == len(SIZES)
    assert len(named(double, "compute")) == 2
    check_units(workload, single, double)
    return single


def check_units(workload, single, double):
    """Throughput's units are correct, and the same on one rank and on two."""
    told = [[event.get("units") for event in named(events, "window")] for events in (single, double)]
    if workload == "dense_reuters":
        assert set(told[0] + told[1]) == {None}
    elif workload == "wgan":
        assert told == [[72, 72], [36] * 4]  # 9 iterations of 2 batches of 4, or of 2
    else:
        # Iterations 2 to 19 of the 8 repeating batches, in the same order in both.
        batches = [batch.seconds for batch in speech.synthetic_batches(1, batch=4, rank=0, world_size=1, longest_s=1.2)]
        expected = sum(batches[number % 8] for number in range(2, 20))
        assert all(abs(sum(units) - expected) < 1e-6 for units in told), (told, expected)


def a_profiler_does_not_change_training(workload, single):
    events = run_pass(*one(workload, "--profile=region", "--profile-after=17", "--profile-iterations=3"))
    found = {event["name"]: event["seconds"] for event in named(events, "regions")}
    assert set(found) == {"input", "forward", "backward", "optimizer"}
    assert all(len(seconds) == 3 for seconds in found.values())
    assert losses(events) == losses(single)
    assert named(events, "run_stop")[0]["parameter_norm"] == named(single, "run_stop")[0]["parameter_norm"]
    counts = {event["phase"]: event["flop_per_sample"] for event in named(events, "flop_count")}
    (begun,) = named(events, "run_start")
    for phase, flop in begun["flop_per_sample"].items():
        # A second of a short utterance has slightly fewer operations than a second within a longer one, which the formula counts.
        assert abs(counts[phase] / flop - 1) < (0.05 if workload == "deepspeech2" else 1e-6), (workload, counts, begun)


for name in PROGRAMS:
    a_profiler_does_not_change_training(name, ranks_train_one_model(name))
events = run_pass(*one("deepspeech2", "--profile=kernels", "--profile-iterations=1", "--profile-after=1"))
assert {"aten::convolution_backward", "aten::gru", "aten::_ctc_loss"} <= {row["name"] for row in events.rows}
