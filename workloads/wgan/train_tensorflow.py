"""Trains a Wasserstein GAN with TensorFlow, on one device, several devices or several processes, and reports events.

    python3 train_tensorflow.py --model=wgan --image-size=64 --batch=64 --iterations=40 --warmup=4 --window=4 --precision=fp32 --device=cpu \
        --devices=1 --strategy=single --data=synthetic --learning-rate=0.00005 --n-critic=5 --clip=0.01 --seed=1 --threads=2 \
        --cpus-per-worker=0 --loader-workers=1
    python3 train_tensorflow.py ... --devices=2 --strategy=mirrored
    python3 ../tf_workers.py --cluster=127.0.0.1:20001,127.0.0.1:20002 --host=0 --count=2 \
        python3 train_tensorflow.py ... --strategy=multiworker
    horovodrun --gloo -np 2 python3 train_tensorflow.py ... --strategy=horovod --compression=none
    python3 train_tensorflow.py ... --profile=kernels --profile-iterations=5

`train_pytorch.py` defines an iteration, its images and its loss: with the same images, latents and weights, both programs have
the same losses. An iteration is one graph, with its critic updates and its generator update unrolled. --xla
compiles the passes of each; the exchange between replicas stays outside.

Real images come from a folder of class folders of JPEGs; the classes are ignored.

This file has the data, the network, the step and the timed window. `workloads/loop.py`, shared by all programs, runs the windows and
everything before and after them, and emits their events; `with_tensorflow/training.py` has everything that is not measured.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flags import PENALIZED, check, latent_size, parser
from with_tensorflow.training import Training, differences, run


class Wgan(Training):
    """One process' two networks, updates and images."""

    def build(self):
        from models_tensorflow import build

        size = latent_size(self.args.model)
        self.generator, self.critic = build(self.args.model, self.args.image_size, size)
        self.generator_weights, self.weights = (self.shim.trained(net) for net in (self.generator, self.critic))
        self.variables = [*self.generator_weights, *self.weights]
        self.critic_update, self.generator_update = map(self.update_rule, (self.weights, self.generator_weights))
        # Separate graphs, so that the critic's is traced only once and not for each of its updates.
        self.critic_graph, self.generator_graph = (
            self.tf.function(self.shim.compiled(one, xla=self.xla), autograph=False)
            for one in (self.critic_pass, self.generator_pass)
        )

    def update_rule(self, variables):
        from with_tensorflow.optimizers import Adam, RmsProp

        if self.args.model == PENALIZED:
            return Adam(variables, learning_rate=self.args.learning_rate, betas=(0.0, 0.9))
        return RmsProp(variables, learning_rate=self.args.learning_rate)

    def open(self):
        from data_tensorflow import Jpegs, Synthetic

        return (Synthetic if self.args.data == "synthetic" else Jpegs)(self.args, self.ranks)

    def shared_batch(self):
        from data_tensorflow import shared

        return shared(self.args, self.ranks)

    def batches_of(self, real):
        """Split an iteration's real images into one batch per critic update, between -1 and 1."""
        tf, size = self.tf, self.args.image_size
        if real.dtype == tf.uint8:
            real = tf.cast(real, tf.float32) / 127.5 - 1
        return tf.unstack(tf.reshape(real, (self.args.n_critic, self.args.batch, size, size, 3)))

    def score(self, images):
        """The critic's mean over images of one kind, since its normalizations should see only one kind. Half-precision means would be too coarse."""
        return self.tf.reduce_mean(self.tf.cast(self.critic(images), self.tf.float32))

    def estimate(self, real, latent):
        """The critic's estimate from real and made images: the Wasserstein distance, up to a factor."""
        return self.score(real) - self.score(self.generator(latent))

    def gradient_penalty(self, real, made, mix):
        """Mean of (norm of the critic's gradient at an image between both - 1)²."""
        tf, between = self.tf, real + mix * (made - real)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(between)
            scores = self.critic(between)
        slopes = tf.cast(tape.gradient(scores, between), tf.float32)
        return tf.reduce_mean((tf.sqrt(tf.reduce_sum(slopes**2, axis=[1, 2, 3])) - 1) ** 2)

    def critic_pass(self, real, latent, mix):
        """Return the estimate, and the gradients of the critic's loss."""
        made = self.tf.cast(self.generator(latent), self.tf.float32)
        with self.tf.GradientTape() as tape:
            estimate = self.score(real) - self.score(made)
            loss = -estimate
            if self.args.penalty:
                loss += self.args.penalty * self.gradient_penalty(real, made, mix)
        return estimate, tape.gradient(loss, self.weights)

    def generator_pass(self, latent):
        """Return the gradients of the generator's loss, the negated mean of the critic's scores."""
        with self.tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.generator_weights)
            loss = -self.score(self.generator(latent))
        return tape.gradient(loss, self.generator_weights)

    def window(self, iterations):
        """Run one timed window: whole steps, until the devices finish. On a GPU, TensorFlow shows no time between steps."""
        marks, losses = [time.perf_counter()], []
        for _ in range(iterations):
            losses.append(self.step())
            marks.append(time.perf_counter())
        self.synchronize()
        done = time.monotonic(), self.read(losses), None if self.on_gpu else differences(marks)
        return lambda: done

    def step(self):
        with self.regions("input"):
            batch = next(self.batches)
        self.iteration += 1
        with self.regions("step"):
            return self.train(*batch, self.tf.constant(self.iteration))

    def train_one(self, real, latents, mixes, iteration):
        updates = self.args.n_critic
        first = (iteration - 1) * (updates + 1)
        drawn = [(first + number) % latents.shape[0] for number in range(updates + 1)]
        for batch, draw in zip(self.batches_of(real), drawn):  # noqa: B905 - the last is the generator's
            estimate, gradients = self.critic_graph(batch, latents[draw], mixes[draw])
            self.critic_update.apply(self.ranks.average(gradients))
            if self.args.clip:
                self.critic_update.clip(self.args.clip)  # after averaging, so that all replicas clip alike
        self.generator_update.apply(self.ranks.average(self.generator_graph(latents[drawn[-1]])))
        return estimate

    def loss(self, real, latents, _mixes, _seed):
        return self.estimate(self.batches_of(real)[0], latents[0])

    def pass_one(self, real, latents, mixes, _seed):
        *drawn, last = self.tf.unstack(latents)
        critic = [self.critic_graph(*parts) for parts in zip(self.batches_of(real), drawn, self.tf.unstack(mixes))]  # noqa: B905 - Python 3.8
        return critic, self.generator_graph(last)

    def exchanged(self):
        critic = sum(variable.shape.num_elements() for variable in self.weights)
        return self.parameter_count() + (self.args.n_critic - 1) * critic

    def flop_per_sample(self):
        from synthetic import flop_per_image
        from with_tensorflow.layers import multiplied

        how = {"n_critic": self.args.n_critic, "penalized": self.args.model == PENALIZED}
        return flop_per_image(multiplied(self.generator), multiplied(self.critic), **how)


if __name__ == "__main__":
    args = parser(__doc__.splitlines()[0]).parse_args()
    check(args)
    run(Wgan, args)
