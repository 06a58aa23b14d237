"""Trains a dense network on bags of words with TensorFlow, on one device, several devices or several processes, and reports events.

    python3 train_tensorflow.py --model=mlp-512-reuters --num-classes=46 --batch=32 --iterations=40 --warmup=4 --window=4 --precision=fp32 \
        --device=cpu --devices=1 --strategy=single --data=synthetic --learning-rate=0.001 --dropout=0.5 --seed=1 \
        --threads=2 --cpus-per-worker=0 --loader-workers=0
    python3 train_tensorflow.py ... --devices=2 --strategy=mirrored
    python3 ../tf_workers.py --cluster=127.0.0.1:20001,127.0.0.1:20002 --host=0 --count=2 \
        python3 train_tensorflow.py ... --strategy=multiworker
    python3 ../with_tensorflow/servers.py --address=127.0.0.1:20001 --workers=2
    DLSCALE_SERVERS=127.0.0.1:20001 python3 train_tensorflow.py ... --strategy=ps
    horovodrun --gloo -np 2 python3 train_tensorflow.py ... --strategy=horovod --compression=none
    python3 train_tensorflow.py ... --iterations=560 --epoch-iterations=280
    python3 train_tensorflow.py ... --profile=kernels --profile-iterations=5

All documents stay on each device, one byte per word.

This file has the data, the network, the step and the timed window. `workloads/loop.py`, shared by all programs, runs the windows and
everything before and after them, and emits their events; `with_tensorflow/training.py` has everything that is not measured.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flags import EPSILON, check, parser
from synthetic import SHARED, TOPICS, TRAINING, VALIDATION, WORDS, Corpus, rows, share
from with_tensorflow.training import Training, differences, run

HIDDEN = 512
VALIDATED = 512  # documents per batch, on each device


def network(dropout):
    """Build a Keras model of (bags, seed): (batch, WORDS) in fp32, and a pair (stream, step) in int32 that seeds dropout.

    It returns (batch, TOPICS) scores, layer by layer like `train_pytorch`'s, which names its source.
    """
    from with_tensorflow.layers import Dropout, keras

    bags, seed = keras.Input(shape=(WORDS,)), keras.Input(batch_shape=(2,), dtype="int32")
    x = keras.layers.Dense(HIDDEN, kernel_initializer=keras.initializers.GlorotUniform())(bags)
    x = Dropout(dropout, number=0)(keras.layers.ReLU()(x), seed)
    return keras.Model(
        [bags, seed], keras.layers.Dense(TOPICS, kernel_initializer=keras.initializers.GlorotUniform())(x)
    )


class Documents:
    """Endless batches of each replica's training documents, in a new order each epoch."""

    def __init__(self, tf, args, ranks, corpus):
        from with_tensorflow.shim import values

        self.tf, self.strategy, self.offset, self.devices, self.values = (
            tf,
            ranks.strategy,
            ranks.offset,
            args.devices,
            values,
        )
        bags, topics = corpus.documents(first=0, count=TRAINING)
        devices = ranks.strategy.extended.worker_devices
        self.on_devices = []
        for device in devices:
            with tf.device(device):
                self.on_devices.append((tf.constant(bags), tf.constant(topics)))
        first = ranks.rank * args.devices
        part = {"world_size": ranks.world_size, "batch": args.batch}
        self.numbers = [rows(args.seed, rank=first + device, **part) for device in range(args.devices)]

    def __next__(self):
        tf = self.tf
        drawn = [next(numbers) for numbers in self.numbers]

        def part(number):
            def of(replica):
                device = replica % self.devices
                return tf.gather(self.on_devices[device][number], drawn[device])

            return self.values(self.strategy, of)

        return part(0), part(1)


class Mlp(Training):
    def build(self):
        self.take(network(self.args.dropout))

    def update_rule(self, variables):
        from with_tensorflow.optimizers import Adam

        return Adam(variables, learning_rate=self.args.learning_rate, epsilon=EPSILON)

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

    def train_one(self, inputs, labels, iteration):
        """A replica's share of a step; `train` is the graph for all replicas."""
        loss, gradients = self.differentiate(inputs, labels, self.own_seed(iteration))
        self.optimizer.apply(self.ranks.average(gradients))
        return loss

    def loss_and_gradients(self, inputs, labels, seed):
        with self.tf.GradientTape() as tape:
            loss = self.loss(inputs, labels, seed)
        return loss, tape.gradient(loss, self.variables)

    def loss(self, inputs, labels, seed):
        scores = self.scores(inputs, seed)
        return self.tf.reduce_mean(self.tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores))

    def prepared(self, bags):
        return self.tf.cast(bags, self.tf.float32)

    def open(self):
        return Documents(self.tf, self.args, self.ranks, Corpus(self.args.seed))

    def place(self, part):
        """Place `part(number)` on each device, by its number among this process' devices."""
        return self.shim.values(
            self.ranks.strategy, lambda replica: self.tf.constant(part(replica % self.args.devices))
        )

    def shared_batch(self):
        found = Corpus(self.args.seed).documents(first=SHARED, count=self.args.batch)
        return tuple(self.place(lambda _device, array=array: array) for array in found)

    def validation(self):
        import numpy as np

        processes = self.ranks.world_size // self.args.devices
        first, count = share(VALIDATION, rank=self.ranks.rank, world_size=processes)
        bags, topics = Corpus(self.args.seed).documents(first=TRAINING + first, count=count)
        arrays = bags, topics, np.ones(count, np.float32)
        together = VALIDATED * self.args.devices
        for start in range(0, count, together):
            rest = max(0, start + together - count)
            parts = [
                np.pad(array[start : start + together], [(0, rest)] + [(0, 0)] * (array.ndim - 1)) for array in arrays
            ]
            yield tuple(
                self.place(lambda device, part=part: part[device * VALIDATED : (device + 1) * VALIDATED])
                for part in parts
            )


if __name__ == "__main__":
    args = parser(__doc__.splitlines()[0]).parse_args()
    check(args, topics=TOPICS)
    run(Mlp, args)
