"""Inside the image: the WGAN has the authors' networks, the operations that PyTorch counts, and the steps of algorithm 1.

Prevents a layer that is missing or of another width, operations for gradients that are never computed, critic weights beyond the clip value, a
generator update that trains the critic or the reverse, an estimate of the wrong sign, weights without a
gradient, pixels outside the generator's range.
"""

import json
import sys
import tempfile
from pathlib import Path

import alone
import torch
from flags import latent_size, parser
from models_torch import Estimate, build
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode
from train_pytorch import Wgan

# Convolutions of 4 x 4 by hand, without biases: 100, 512, 256, 128, 64, 3 channels, and 3, 64, 128, 256, 512, 1.
GENERATOR = 16 * (100 * 512 + 512 * 256 + 256 * 128 + 128 * 64 + 64 * 3)
CRITIC = 16 * (3 * 64 + 64 * 128 + 128 * 256 + 256 * 512 + 512)
CATALOG = json.loads(sys.argv[2])["wgan"]
CLIP = 0.01


def count(net):
    return sum(p.numel() for p in net.parameters())


def training(model="wgan-nobn", *words):
    of_model = alone.PENALIZED if model == "wgan-gp" else alone.WGAN
    return alone.training(Wgan, parser, f"--model={model}", *of_model, "--batch=4", *words)


def networks_match_the_authors():
    # Batch normalization has a weight and a bias per channel, except after the critic's first and last layer and the generator's last.
    expected = {
        "wgan": (GENERATOR + 2 * (512 + 256 + 128 + 64), CRITIC + 2 * (128 + 256 + 512)),
        "wgan-gp": residual_parameters(),
        "wgan-nobn": (GENERATOR, CRITIC),
    }
    assert set(CATALOG) == set(expected)
    for name, parameters in expected.items():
        latent = latent_size(name)
        with torch.device("meta"):
            generator, critic = build(name, 64, latent)
        assert (count(generator), count(critic)) == parameters, name
        assert [64, sum(parameters)] == CATALOG[name], name
        assert generator(torch.empty(2, latent, 1, 1, device="meta")).shape == (2, 3, 64, 64)
        assert critic(torch.empty(2, 3, 64, 64, device="meta")).flatten().shape == (2,)
    # Over the whole map, so that the estimate is in fp32 whatever the critic's precision.
    reals, mades = (torch.full((1000,), value).bfloat16() for value in (3.0, 1.0))
    estimate, loss = Estimate(torch.nn.Identity())(reals, mades, None)
    assert (estimate.item(), loss.item(), estimate.dtype) == (2.0, -2.0, torch.float32)


def residual_parameters():
    """Parameters of gan_64x64's generator and critic, by hand: 3 x 3 convolutions, a block's second with a bias, and 1 x 1 ones, with biases."""
    generator, critic = 128 * 8192 + 8192 + 2 * 64 + 9 * 64 * 3 + 3, 9 * 3 * 64 + 64 + 8192 + 1
    for low, high in ((512, 512), (256, 512), (128, 256), (64, 128)):
        generator += 2 * high + 9 * high * low + 2 * low + 9 * low * low + low + high * low + low
        critic += 2 * low + 9 * low * low + 2 * low + 9 * low * high + high + low * high + high
    return generator, critic


def the_penalty_uses_the_gradient_between_real_and_made():
    """The gradient of 3 x the sum of four pixels has norm 6 everywhere: 10 x (6 - 1)², less the estimate of 3 x (8 - 4)."""
    told = Estimate(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 1, bias=False)), 10.0)
    torch.nn.init.constant_(told.critic[1].weight, 3.0)
    images = torch.ones(2, 1, 2, 2)
    estimate, loss = told(2 * images, images, torch.tensor([0.0, 0.5]))
    assert (estimate.item(), loss.item()) == (12.0, 250.0 - 12.0)
    loss.backward()
    # From the norm, 2 x 10 x (6 - 1) / 2 for each of four weights of 3 with a norm of 6, less the estimate's 2 - 1.
    assert torch.allclose(told.critic[1].weight.grad, torch.tensor(2 * 10 * 5 * 3 / 6 - 1.0)), told.critic[
        1
    ].weight.grad


def operations_match_pytorchs_counter():
    for n_critic, model in ((1, "wgan-nobn"), (5, "wgan-nobn"), (2, "wgan-gp")):
        made = training(model, f"--n-critic={n_critic}")
        with FlopCounterMode(display=False) as counter:
            made.step()
        ours = made.flop_per_sample()
        told = sum(ours.values()) * n_critic * made.args.batch
        if model == "wgan-gp":  # the penalty's image, whose gradient nobody needs: 3 x 64 kernels of 3 x 3
            told += 2 * 9 * 3 * 64 * 16**2 * n_critic * made.args.batch
        assert abs(told / counter.get_total_flops() - 1) < 1e-6, (n_critic, model, told, counter.get_total_flops())
        for event in made.flop_counts():
            assert abs(event["flop_per_sample"] / ours[event["phase"]] - 1) < 1e-6, (event, ours)
            assert abs(sum(event["operators"].values()) / event["flop_per_sample"] - 1) < 1e-6


def gradient_bytes_depend_on_the_precision_sent():
    for size, words in ((4, ()), (2, ("--techniques=bf16-gradients",))):
        made = training("wgan-nobn", "--n-critic=2", *words)
        assert made.gradient_bytes() == size * (count(made.generator) + 2 * count(made.critic)), words


def critic_weights_stay_clipped():
    made = training("wgan", "--learning-rate=0.01")
    assert max(weight.abs().max() for weight in made.weights) > CLIP, "nothing to clip would prove nothing"
    for _ in range(3):
        made.update_critic()
        assert max(weight.abs().max() for weight in made.weights) <= CLIP
    made.step()
    assert max(weight.abs().max() for weight in made.weights) <= CLIP


def each_update_changes_one_network():
    made = training()
    before = [p.clone() for p in made.generator.parameters()]
    made.update_critic()
    assert all(torch.equal(p, old) for p, old in zip(made.generator.parameters(), before, strict=True))
    assert all(weight.grad.any() for weight in made.weights)
    before = [weight.clone() for weight in made.weights]
    made.critic.requires_grad_(requires_grad=False)
    made.update_generator()
    made.critic.requires_grad_(requires_grad=True)
    assert all(torch.equal(weight, old) for weight, old in zip(made.weights, before, strict=True))
    assert all(p.grad.any() for p in made.generator.parameters())
    # Each of two critic updates and one generator update takes a draw of latents, each critic update a batch of images.
    draws, images = made.draws, made.batches.source.units
    made.step()
    assert (made.draws - draws, made.batches.source.units - images) == (3, 8)


def the_critic_learns_and_then_the_generator():
    """The estimate rises while only the critic learns, and falls while only the generator does."""
    made = training("wgan-nobn", "--learning-rate=0.0005")
    first = made.evaluate()[0]
    for _ in range(10):
        made.update_critic()
    learnt = made.evaluate()[0]
    assert learnt > abs(first), (first, learnt)
    for _ in range(10):
        made.update_generator()
    assert made.evaluate()[0] < learnt


def a_folder_of_images_is_read():
    """One colour, wider than high: the central square is cropped and mapped to -1 to 1."""
    root = Path(tempfile.mkdtemp())
    (root / "rooms").mkdir()
    for number in range(5):
        Image.new("RGB", (40, 20 + number), (255, 0, 128)).save(root / f"rooms/{number}.jpg", quality=95)
    (root / "rooms/broken.jpg").write_text("no image")
    made = training("wgan-nobn", f"--data={root}", "--batch=2")
    images = next(made.batches)
    assert (images.shape, images.dtype) == ((2, 3, 16, 16), torch.float32)
    expected = torch.tensor([1.0, -1.0, 128 / 127.5 - 1])
    assert (images.mean((0, 2, 3)) - expected).abs().max() < 0.03, images.mean((0, 2, 3))
    for _ in range(3):
        made.step()
    source = made.batches.source
    assert (source.units, source.decoded, source.skipped) == (14, 14, {"rooms/broken.jpg"})


networks_match_the_authors()
the_penalty_uses_the_gradient_between_real_and_made()
operations_match_pytorchs_counter()
gradient_bytes_depend_on_the_precision_sent()
critic_weights_stay_clipped()
each_update_changes_one_network()
the_critic_learns_and_then_the_generator()
a_folder_of_images_is_read()
