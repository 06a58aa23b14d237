"""Inside the image: generation with cached keys and values equals generation from the whole sequence, at the cost counted by PyTorch.

Prevents: a cache with shifted positions, or with keys of another block or sequence; a token that is not the most likely one; scores for
the whole prompt; a step that reads all positions again; times of batch sizes that nobody requested.
"""

import io
import json

import numpy as np
import torch
from alone import SHARED
from costs import flop_per_new_token
from events import Events
from flags import SIZES, infer_parser
from infer_pytorch import Generator
from models_torch import build
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

FLAGS = (*SHARED, "--batch=3", "--iterations=1", "--warmup=1", "--window=1", "--sequence-length=24", "--new-tokens=9")


def generator(model, *words):
    args = infer_parser("").parse_args([f"--model={model}", *FLAGS, *words])
    args.weights = "bf16" if args.precision == "bf16" else "fp32"
    return Generator(args, torch, torch.device("cpu"))


def generated_without_cache(made, prompts):
    """Generate the same tokens, reading the whole sequence for each."""
    tokens = torch.from_numpy(prompts)
    with torch.inference_mode():
        for _ in range(made.args.new_tokens):
            tokens = torch.cat((tokens, made.net.output(made.net.read(tokens))[:, -1:].argmax(-1)), dim=1)
    return tokens[:, prompts.shape[1] :].numpy()


def sharpened(made):
    """Multiply the weights by ten: freshly drawn ones prefer no token by more than rounding."""
    with torch.no_grad():
        for p in made.net.parameters():
            p.mul_(10 if p.dim() > 1 else 1)
    return made


def forgetful(made):
    """Make the cache forget everything read before; the check must be able to tell that from rounding."""
    read = made.net.read
    made.net.read = lambda tokens, cache=None: read(tokens, made.cache(1) if cache and cache.filled else cache)
    return made


for model in ("gpt-tiny", "llama-tiny"):
    for words, most in (((), 1e-5), (("--precision=bf16",), 0.1)):
        made = generator(model, *words)
        assert {p.dtype for p in made.net.parameters()} == {made.net.arithmetic}
        assert 0 <= made.difference() < most
    made = sharpened(generator(model))
    prompts, labels = made.library(3)
    assert (prompts.shape, labels) == ((3, 15), None)
    answers = made.predict(prompts)
    assert np.array_equal(answers, generated_without_cache(made, prompts))
    assert len({tuple(row) for row in answers.tolist()}) == 3, "sequences that answer alike would prove nothing"
    assert np.array_equal(made.predict(prompts[1:2]), answers[1:2])

    stream = io.StringIO()
    made.emit_extra(Events(rank=0, stream=stream), prompts)
    told = [json.loads(line.partition(" ")[2]) for line in stream.getvalue().splitlines()]
    found = [event for event in told if event["event"] == "generation"]
    assert {event["batch"] for event in found} == {1, 2, 3}
    assert {(event["prompt_tokens"], event["new_tokens"], len(event["step_s"])) for event in found} == {(15, 9, 8)}
    assert [event["event"] for event in told[-2:]] == ["cache", "phase"]

    assert forgetful(sharpened(generator(model))).difference() > 0.1

for model in (name for name, size in SIZES.items() if not size.encoder):
    length = min(SIZES[model].longest, 64)
    made = generator("gpt-tiny")  # then moved to the meta device: shapes are enough
    made.args.model, made.args.sequence_length, made.args.new_tokens, made.size = model, length, 3, SIZES[model]
    made.device = torch.device("meta")
    made.net, counted = build(made.args, made.device).eval(), flop_per_new_token(model, prompt=length - 3, new=3)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.inference_mode():
        cache, tokens = made.cache(2), torch.zeros(2, length - 1, dtype=torch.int64, device="meta")
        for part in tokens.split([length - 3, 1, 1], dim=1):
            made.net.output(made.net.read(part, cache)[:, -1:])
    assert abs(counter.get_total_flops() / 2 / 3 / counted["forward"] - 1) < 0.02, (
        model,
        counter.get_total_flops(),
        counted,
    )

made = generator("bert-tiny", "--new-tokens=0")
prompts, _ = made.library(3)
assert made.predict(prompts).shape == (3, 64)
assert np.allclose(made.predict(prompts[1:2]), made.predict(prompts)[1:2], atol=1e-5)
with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.inference_mode():
    made.net.read(torch.from_numpy(prompts))
assert abs(counter.get_total_flops() / 3 / 24 / made.flop_per_sample["forward"] - 1) < 0.02
