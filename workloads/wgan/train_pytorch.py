"""Trains a Wasserstein GAN with PyTorch, on one device, with DistributedDataParallel or Horovod, and reports events.

    python3 train_pytorch.py --model=wgan --image-size=64 --batch=64 --iterations=40 --warmup=4 --window=4 --precision=fp32 --device=cpu \
        --devices=1 --strategy=single --data=synthetic --learning-rate=0.00005 --n-critic=5 --clip=0.01 --seed=1 --threads=2 \
        --cpus-per-worker=0 --loader-workers=1
    torchrun --standalone --nproc-per-node=2 train_pytorch.py ... --strategy=ddp
    horovodrun --gloo -np 2 python3 train_pytorch.py ... --strategy=horovod --compression=none
    python3 train_pytorch.py ... --profile=kernels --profile-iterations=5

An iteration is one iteration of the paper's algorithm 1 (https://arxiv.org/abs/1701.07875): --n-critic updates of the critic, each on a batch of
real images and a batch made by the generator, with weights clipped after each; then one update of the generator; both by RMSprop. wgan-gp
has a gradient penalty instead of clipping, and Adam (https://arxiv.org/abs/1704.00028, algorithm 1). The loss of an iteration is
the critic's estimate of the Wasserstein distance in its last update. The authors' program starts with iterations of 100 critic
updates; they are left out, because they would make the rate change during the run.

Throughput counts the real images read: --n-critic batches an iteration. They make up an epoch, a loader must deliver them, and
their number does not depend on how many updates an iteration has. Images made by the generator are not counted.

Real images come from a folder of class folders of JPEGs; the classes are ignored.

This file has the data, the network, the step and the timed window. `workloads/loop.py`, shared by all programs, runs the windows and
everything before and after them, and emits their events; `with_pytorch/training.py` has everything that is not measured.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flags import PENALIZED, check, latent_size, parser
from loop import Batches
from with_pytorch.techniques import BETWEEN_RANKS
from with_pytorch.training import Training, run


class Wgan(Training):
    """One rank's two networks, optimizers and images."""

    offered = frozenset({"channels-last", *BETWEEN_RANKS})

    def __init__(self, args, torch, device, ranks):
        from data_torch import Synthetic, jpegs
        from models_torch import Estimate, build
        from synthetic import own_draws

        super().__init__(args, torch, device, ranks)
        nets = build(args.model, args.image_size, latent_size(args.model))
        self.generator, self.critic = (self.place(net) for net in nets)
        self.estimate = Estimate(self.critic, args.penalty)
        self.weights = list(self.critic.parameters())
        self.parameters = [*self.generator.parameters(), *self.weights]
        self.shared_generator, self.shared_estimate = ranks.model(self.generator), ranks.model(self.estimate)
        # In one module, because Horovod matches parameters by name: no two may have the same name.
        both = torch.nn.ModuleDict({"generator": self.generator, "critic": self.critic})
        self.critic_update, self.generator_update = (
            ranks.optimizer(self.update_rule(net.parameters()), both) for net in (self.critic, self.generator)
        )
        self.reseed()
        share = {"rank": ranks.rank, "world_size": ranks.world_size, "batch": args.batch}
        latents, mixes = map(torch.from_numpy, own_draws(args.seed, size=latent_size(args.model), **share))
        self.latents, self.mixes = latents.to(device)[..., None, None], mixes.to(device)
        self.draws = 0
        source = Synthetic if args.data == "synthetic" else jpegs
        self.batches = Batches(source(args, ranks, device=device, layout=self.layout))

    def update_rule(self, weights):
        rate = self.args.learning_rate
        if self.args.model == PENALIZED:
            return self.torch.optim.Adam(weights, lr=rate, betas=(0.0, 0.9))
        return self.torch.optim.RMSprop(weights, lr=rate)

    def draw(self):
        """Return the next draw's latents, (batch, their size, 1, 1), and mixes, (batch,)."""
        number = self.draws % len(self.latents)
        self.draws += 1
        return self.latents[number], self.mixes[number]

    def window(self, iterations):
        """Enqueue the steps of a timed window. Nothing here waits for a GPU: the clock records an event at each mark."""
        marks, losses = [self.clock.mark()], []
        for _ in range(iterations):
            losses.append(self.step())
            marks.append(self.clock.mark())
        return self.clock.edge(marks, losses)

    def step(self):
        for _ in range(self.args.n_critic):
            estimate = self.update_critic()
        self.critic.requires_grad_(requires_grad=False)
        self.update_generator()
        self.critic.requires_grad_(requires_grad=True)
        return estimate

    def update_critic(self):
        """Update the critic once, to tell real from made images. Returns the estimate before the update, on the device."""
        torch = self.torch
        with self.regions("input"):
            real, (latent, mix) = next(self.batches), self.draw()
        with self.regions("optimizer"):
            self.critic_update.zero_grad()
        with self.regions("forward"), self.autocast:
            with torch.no_grad():
                made = self.generator(latent)
            estimate, loss = self.shared_estimate(real, made, mix)
        with self.regions("backward"):
            loss.backward()
        with self.regions("optimizer"), torch.no_grad():
            self.ranks.update(self.critic_update, self.scaler)
            for weight in self.weights if self.args.clip else []:  # after averaging, so that all ranks clip alike
                weight.clamp_(-self.args.clip, self.args.clip)
        return estimate.detach()

    def update_generator(self):
        """Update the generator once, towards images that the critic takes for real."""
        with self.regions("input"):
            latent, _ = self.draw()
        with self.regions("optimizer"):
            self.generator_update.zero_grad()
        with self.regions("forward"), self.autocast:
            loss = -self.critic(self.shared_generator(latent)).float().mean()
        with self.regions("backward"):
            loss.backward()
        with self.regions("optimizer"):
            self.ranks.update(self.generator_update, self.scaler)

    def shared_batch(self):
        """Images, latents and mixes shared by all ranks; no rank trains on them."""
        from synthetic import SHARED, images, latents, mixes

        args, torch = self.args, self.torch
        real = images(args.seed, first=SHARED, count=args.batch, image_size=args.image_size)
        share = {"draw": SHARED, "first": 0, "count": args.batch, "world_batch": args.batch}
        latent = torch.from_numpy(latents(args.seed, size=latent_size(args.model), **share)).to(self.device)
        mix = torch.from_numpy(mixes(args.seed, **share)).to(self.device)
        return torch.from_numpy(real).to(self.device, memory_format=self.layout), latent[..., None, None], mix

    def shared_loss(self):
        both = self.critic_losses()
        return lambda: both()[0]

    def critic_losses(self):
        real, latent, mix = self.shared_batch()

        def losses():
            with self.autocast:
                with self.torch.no_grad():
                    made = self.generator(latent)
                return self.estimate(real, made, mix)

        return losses

    def generator_loss(self):
        _, latent, _ = self.shared_batch()

        def loss():
            with self.autocast:
                return -self.critic(self.generator(latent)).float().mean()

        return loss

    def alone(self):
        critic, loss = self.critic_losses(), self.generator_loss()
        gradients, generator_weights = self.torch.autograd.grad, list(self.generator.parameters())

        def run():
            for _ in range(self.args.n_critic):
                gradients(critic()[1], self.weights)
            gradients(loss(), generator_weights)

        return run

    def flop_counts(self):
        from with_pytorch.profiler import flop_counts

        # Per real image: each goes into one update of the critic, and n_critic of them into one of the generator.
        losses = self.critic_losses()
        critic = flop_counts(lambda: losses()[1], self.weights, samples=self.args.batch)
        generator_weights = list(self.generator.parameters())
        generator = flop_counts(self.generator_loss(), generator_weights, samples=self.args.batch * self.args.n_critic)
        return [add_counts(one, other) for one, other in zip(critic, generator, strict=True)]

    def exchanged(self):
        generator, critic = (sum(p.numel() for p in net.parameters()) for net in (self.generator, self.critic))
        return generator + self.args.n_critic * critic

    def flop_per_sample(self):
        from synthetic import flop_per_image
        from with_pytorch.operations import layers, layers_of

        generator = layers_of(self.generator, (latent_size(self.args.model), 1, 1))
        critic = layers(self.critic, self.args.image_size)
        return flop_per_image(generator, critic, n_critic=self.args.n_critic, penalized=self.args.model == PENALIZED)


def add_counts(one, other):
    """Add two `flop_count` events of the same phase."""
    names = {**one["operators"], **other["operators"]}
    operators = {name: one["operators"].get(name, 0) + other["operators"].get(name, 0) for name in names}
    return {**one, "flop_per_sample": one["flop_per_sample"] + other["flop_per_sample"], "operators": operators}


if __name__ == "__main__":
    args = parser(__doc__.splitlines()[0]).parse_args()
    check(args)
    run(Wgan, args)
