"""Inside the image: ranks that shard a language model have the losses of one process on the same sequences, and each holds only a part.

Prevents: ranks that each train their own model, a layer whose parts are joined in another order, gradients that are summed and not averaged, or
averaged in each part of a batch, an output layer that is no longer the embedding, a rank that keeps the whole model.
"""

import alone
from probed import SIZES, WORKLOADS, losses, named, run_for_events
from programs import torchrun

PROGRAM = str(WORKLOADS / "language_model/train_pytorch.py")
BATCH, STEPS = 8, 12
FLAGS = (*alone.LANGUAGE, "--iterations=10", "--warmup=2", "--window=5", *alone.SHARED)


def trained(model, strategy, ranks, *words):
    flags = (f"--model={model}", *FLAGS, f"--strategy={strategy}", f"--batch={BATCH // ranks}", *words)
    return run_for_events(PROGRAM, *flags, ranks=torchrun(ranks) if ranks > 1 else ({},))


def check(single, events, ranks, *, least_share, most_share):
    """Compare losses and weights with one process'; `least_share` and `most_share` bound each rank's share of its bytes."""
    mine, told = losses(single), losses(events)
    each = [told[rank * STEPS : (rank + 1) * STEPS] for rank in range(ranks)]
    assert len(mine) == STEPS
    assert mine[-1] < 0.9 * mine[0], "a curve this flat would prove nothing"
    for step, value in enumerate(mine):
        mean = sum(own[step] for own in each) / ranks
        assert abs(mean - value) <= 1e-3 * value, (step, mine, each)
    (whole,) = named(single, "run_stop")
    for stop in named(events, "run_stop"):
        assert abs(stop["parameter_norm"] / whole["parameter_norm"] - 1) < 1e-4, (whole, stop)
        assert least_share <= stop["state_bytes"] / whole["state_bytes"] <= most_share, (whole, stop)
    assert len({stop["parameter_norm"] for stop in named(events, "run_stop")}) == 1
    assert [event["losses"] for event in named(events, "eval")][::2] == [named(events, "eval")[0]["losses"]] * ranks


LLAMA, GPT = "llama-tiny", "gpt-tiny"
alone_on = {model: trained(model, "single", 1) for model in (LLAMA, GPT)}
# Of 131,392 parameters, 98,560 are in blocks: gathered twice (the others once) and scattered, in fp32, half of it is 722,688 bytes. All 149,248 of
# gpt-tiny's are gathered once. Ten sums of 256, or 128, tokens of 64 numbers are 655,360 and 327,680 bytes; on a 2 x 2 mesh a third of both.
for model, strategy, ranks, words, shares, handed in (
    (LLAMA, "ddp", 2, ("--gradient-accumulation=2",), (1, 1), 4 * 131_392),
    (LLAMA, "fsdp", 2, (f"--probe={','.join(map(str, SIZES))}",), (0.5, 0.51), 722_688),
    (LLAMA, "fsdp+tp", 4, (), (0.25, 0.26), (722_688 + 2 * 327_680) // 3),
    (
        *(GPT, "fsdp", 2, ("--reshard=step", "--gradient-accumulation=2", "--checkpointing=block"), (0.5, 0.51)),
        4 * 149_248,
    ),
    # Every rank has positions, gains and the biases of summed layers: 256 x 64 and little more of 149,248.
    (GPT, "tp", 2, (), (0.5, 0.57), 655_360),
):
    events = trained(model, strategy, ranks, *words)
    check(alone_on[model], events, ranks, least_share=shares[0], most_share=shares[1])
    assert {start["gradient_bytes"] for start in named(events, "run_start")} == {handed}, strategy
    assert {sum(event["units"] for event in named(events, "window") if event["rank"] == 0)} == {
        10 * BATCH // ranks * 32
    }
