"""Inside the image: GPT-2 and Llama 3 have the published shapes, the papers' attention and the operations counted by PyTorch, and learn.

Prevents: a head that reads another's keys, a token that sees its successor, positions rotated by anything but their distance, a
parameter without a gradient, a recomputed block that differs, a batch in parts that counts twice, operations that are counted but not run.
"""

import json
import math
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import alone
import numpy as np
import torch
from costs import flop_per_token
from flags import SIZES, parser
from models_torch import Attention, build, rotary_angles, rotated
from tokens import masked, masked_count
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from train_pytorch import LanguageModel
from with_pytorch import fp8

TINY = ("gpt-tiny", "llama-tiny")


def training(model, *words):
    return alone.training(LanguageModel, parser, *alone.LANGUAGE, f"--model={model}", *words)


def flags(model, *words):
    return parser("").parse_args([*alone.ONE, *alone.LANGUAGE, f"--model={model}", *words])


def shapes_and_operations_match_the_catalog():
    """On the meta device: shapes are enough for both."""
    catalog = json.loads(sys.argv[2])["language_model"]
    assert set(catalog) == set(SIZES)
    for model, (_, parameters) in catalog.items():
        length = min(SIZES[model].longest, 2048)
        net = build(flags(model, f"--sequence-length={length}"), torch.device("meta"))
        assert sum(p.numel() for p in net.parameters()) == parameters, model
        tokens = torch.zeros(1, length, dtype=torch.int64, device="meta")
        targets = tokens.new_zeros(1, 2, masked_count(length)) if SIZES[model].encoder else tokens
        # Fused kernels recompute products in their backward pass; the counter includes that, the definition does not.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            net(tokens, targets).backward()
        counted = sum(flop_per_token(model, length=length).values()) * length
        assert abs(counter.get_total_flops() / counted - 1) < 0.02, (model, counter.get_total_flops(), counted)


def heads_read_their_own_groups():
    """Compare the fused, grouped product with one head at a time, forward and backward, in fp64."""
    torch.manual_seed(1)
    size = SIZES["llama-tiny"]
    layer = Attention(size).double()
    head, queries, length = layer.head, layer.queries, 8
    x = torch.randn(2, length, size.width, dtype=torch.float64, requires_grad=True)
    angles = rotary_angles(length, head).double()
    rows = layer.qkv.weight.view(size.kv_heads, queries + 2, head, size.width)
    masked = torch.ones(length, length).triu(1).bool()
    heads = []
    for group in rows:
        k, v = (x @ group[place].T for place in (queries, queries + 1))
        for weight in group[:queries]:
            q, turned_k = (rotated(part[:, :, None], angles)[:, :, 0] for part in (x @ weight.T, k))
            scores = (q @ turned_k.transpose(1, 2) / math.sqrt(head)).masked_fill(masked, -math.inf)
            heads.append(scores.softmax(-1) @ v)
    slow, fast = layer.out(torch.cat(heads, dim=-1)), layer(x, angles)
    assert (slow - fast).abs().max() < 1e-6
    for one, other in zip(
        *(torch.autograd.grad(y.square().sum(), [x, *layer.parameters()]) for y in (slow, fast)), strict=True
    ):
        assert (one - other).abs().max() < 1e-5


def positions_rotate_by_their_distance():
    angles = rotary_angles(64, 16)
    q, k = torch.randn(1, 1, 1, 16).expand(1, 64, 1, 16), torch.randn(1, 1, 1, 16).expand(1, 64, 1, 16)
    products = rotated(q, angles)[0, :, 0] @ rotated(k, angles)[0, :, 0].T
    for distance in (-20, 0, 7):
        assert torch.diagonal(products, distance).std() < 1e-4
    assert products.std() > 0.1, "nothing turned"


def no_token_sees_its_successors():
    for model in TINY:
        net = build(flags(model), torch.device("cpu"))
        tokens = torch.randint(SIZES[model].vocabulary, (2, 32))
        changed = torch.cat((tokens[:, :20], (tokens[:, 20:] + 1) % SIZES[model].vocabulary), dim=1)
        seen = [net.read(read).detach() for read in (tokens, changed)]
        assert torch.allclose(seen[0][:, :20], seen[1][:, :20], atol=1e-6)
        assert not torch.allclose(seen[0][:, 20:], seen[1][:, 20:], atol=1e-2)


def all_options_have_the_same_gradients():
    for model in (*TINY, "bert-tiny"):
        plain = gradients(training(model, "--batch=4"))
        assert all(gradient.abs().max() > 0 for gradient in plain.values()), model
        for words in (("--checkpointing=block",), ("--gradient-accumulation=4",)):
            other = gradients(training(model, "--batch=4", *words))
            assert all((other[name] - plain[name]).abs().max() < 1e-5 for name in plain), (model, words)


def gradients(made):
    made.step()
    return {name: parameter.grad for name, parameter in made.net.named_parameters()}


def exact_product(left, right, *, fast):
    """`fp8.product` of the rounded numbers. PyTorch's own on a CPU takes a minute a training, and not every processor gives the same."""
    (a, a_scale), (b, b_scale) = left, right
    return (a.float() @ b.float().t() * (a_scale * b_scale)).bfloat16()


def they_learn_in_each_precision():
    halves = [(f"--precision={name}", *more) for name in ("bf16", "fp8") for more in ((), ("--weights=bf16",))]
    for words in ((), *halves):
        for model in (*TINY, "bert-tiny"):
            made = training(model, "--batch=8", *words)
            with patch.object(fp8, "product", exact_product):
                lost = [made.step().item() for _ in range(16)]
            # Untrained, the loss is that of a uniform guess.
            assert abs(lost[0] - math.log(SIZES[model].vocabulary)) < 0.1, lost
            assert lost[-1] < 0.9 * lost[0], (words, lost)
            assert {p.dtype for p in made.parameters} == {
                torch.bfloat16 if "--weights=bf16" in words else torch.float32
            }


def products_in_8_bits_differ_from_fp32_only_by_rounding():
    """The error does not depend on the numbers' magnitude, because each tensor has its own scale."""
    torch.manual_seed(1)
    for size in (1e-6, 1.0, 1e4):
        layer = torch.nn.Linear(64, 96)
        layer.weight.data *= size
        layer.bias.data *= size
        x, gradient = torch.randn(4, 16, 64, requires_grad=True), size * torch.randn(4, 16, 96)
        results = []
        for form in (layer, fp8.Linear(layer)):
            y = form(x)
            results.append((y, *torch.autograd.grad(y, [x, layer.weight, layer.bias], gradient.to(y.dtype))))
        for exact, rounded in zip(*results, strict=True):
            assert (rounded - exact).norm() < 0.1 * exact.norm(), size
        assert (results[1][0] - results[0][0]).norm() > 0.01 * results[0][0].norm(), "nothing was rounded"


def only_the_blocks_dense_layers_are_in_8_bits():
    net = build(flags("gpt-tiny", "--precision=fp8"), torch.device("cpu"))
    assert {name for name, layer in net.named_modules() if isinstance(layer, fp8.Linear)} == {
        f"blocks.{number}.{layer}"
        for number in (0, 1)
        for layer in ("attention.qkv", "attention.out", "mlp.inner", "mlp.out")
    }
    plain = build(flags("gpt-tiny"), torch.device("cpu"))
    assert net.state_dict().keys() == plain.state_dict().keys()


def the_update_is_adamw_with_decay_for_matrices_only():
    made = training("gpt-tiny")
    before = {name: p.detach().clone() for name, p in made.net.named_parameters()}
    made.step()
    for name, p in made.net.named_parameters():
        decay = 0.1 if p.dim() > 1 else 0.0
        # With bias correction, the first step is one learning rate along the sign of the gradient.
        expected = before[name] * (1 - 0.01 * decay) - 0.01 * p.grad / (p.grad.abs() + 1e-8)
        assert (p - expected).abs().max() < 1e-5, name


def masks_depend_only_on_the_seed_and_the_sequence():
    rows = np.random.default_rng(1).integers(0, 512, (64, 101))
    read, targets = masked(rows, seed=1, vocabulary=512)
    places, wanted = targets[:, 0], targets[:, 1]
    assert targets.shape == (64, 2, 15)
    assert (np.diff(places) > 0).all()
    assert np.array_equal(np.take_along_axis(rows, places, 1), wanted)
    changed = read != rows[:, :-1]
    np.put_along_axis(changed, places, values=False, axis=1)
    assert not changed.any(), "a token changed that nobody predicts"
    now = np.take_along_axis(read, places, 1)
    assert 0.75 < (now == 103).mean() < 0.85
    assert 0.05 < (now == wanted).mean() < 0.15
    halves = [masked(part, seed=1, vocabulary=512) for part in (rows[:40], rows[40:])]
    for number, whole in enumerate((read, targets)):
        assert np.array_equal(whole, np.concatenate([half[number] for half in halves]))


def an_encoder_sees_both_ways():
    net = build(flags("bert-tiny"), torch.device("cpu"))
    tokens = torch.randint(512, (2, 32))
    changed = torch.cat((tokens[:, :20], (tokens[:, 20:] + 1) % 512), dim=1)
    assert not torch.allclose(net.read(tokens)[:, :20], net.read(changed)[:, :20], atol=1e-4)


def windows_of_a_file_are_the_same_on_one_rank_and_on_two():
    from tokens import Windows

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.bin"
        np.arange(500, dtype="<u2").tofile(path)
        shared = {"length": 32, "vocabulary": 512}
        whole = Windows(path, 1, batch=4, rank=0, ranks=1, **shared)
        halves = [Windows(path, 1, batch=2, rank=rank, ranks=2, **shared) for rank in (0, 1)]
        for _ in range(3):
            rows = next(whole)
            assert (np.diff(rows, axis=1) == 1).all()
            assert rows.shape == (4, 33)
            assert np.array_equal(rows, np.concatenate([next(half) for half in halves]))
        made = training("gpt-tiny", f"--data={path}", "--batch=2")
        made.step()
        source = made.batches.source
        assert (source.decoded, source.units) == (2, 64)


shapes_and_operations_match_the_catalog()
heads_read_their_own_groups()
positions_rotate_by_their_distance()
no_token_sees_its_successors()
masks_depend_only_on_the_seed_and_the_sequence()
an_encoder_sees_both_ways()
all_options_have_the_same_gradients()
they_learn_in_each_precision()
products_in_8_bits_differ_from_fp32_only_by_rounding()
only_the_blocks_dense_layers_are_in_8_bits()
the_update_is_adamw_with_decay_for_matrices_only()
windows_of_a_file_are_the_same_on_one_rank_and_on_two()
