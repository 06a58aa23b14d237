"""Trains BERT with TensorFlow, on one device, several devices or several processes, and reports events.

    python3 train_tensorflow.py --model=bert-tiny --batch=8 --iterations=40 --warmup=4 --window=4 --precision=fp32 --device=cpu --devices=1 \
        --strategy=single --data=synthetic --learning-rate=0.001 --weight-decay=0.1 --sequence-length=128 --gradient-accumulation=1 \
        --checkpointing=none --weights=fp32 --reshard=forward --tensor-parallel=1 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=0
    python3 train_tensorflow.py ... --devices=2 --strategy=mirrored
    python3 ../tf_workers.py --cluster=127.0.0.1:20001,127.0.0.1:20002 --host=0 --count=2 \
        python3 train_tensorflow.py ... --strategy=multiworker
    horovodrun --gloo -np 2 python3 train_tensorflow.py ... --strategy=horovod --compression=none
    python3 train_tensorflow.py ... --data=FILE.bin
    python3 train_tensorflow.py ... --profile=kernels --profile-iterations=5

A sample is a sequence; throughput counts tokens, all that are read. AdamW with the betas of GPT-3 and Llama (0.9, 0.95), weight decay for
matrices only, a constant learning rate, no clipping, no dropout. With --precision=bf16, products are in bf16, weights and updates in fp32.

This file has the data, the network, the step and the timed window. `workloads/loop.py`, shared by all programs, runs the windows and
everything before and after them, and emits their events; `with_tensorflow/training.py` has everything that is not measured.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arguments import check_model, refuse
from flags import BETAS, SIZES, check, parser
from with_tensorflow.training import Training, differences, run

MODELS = tuple(name for name, size in SIZES.items() if size.encoder)
# Options for which only PyTorch's program offers other values.
FIXED = {"gradient_accumulation": 1, "checkpointing": "none", "weights": "fp32"}


class Sequences:
    """Endless batches (tokens, targets) for the devices of this process; `units` counts their tokens so far."""

    skipped = frozenset()

    def __init__(self, args, sources, place):
        self.sources, self.place, self.units = sources, place, 0
        self.tokens = args.batch * args.devices * args.sequence_length

    def __next__(self):
        self.units += self.tokens
        return self.place([next(source) for source in self.sources])

    @property
    def decoded(self):
        return sum(source.decoded for source in self.sources)


class Bert(Training):
    def build(self):
        from models_tensorflow import build

        self.size = SIZES[self.args.model]
        self.take(build(self.size, self.args.sequence_length))

    def update_rule(self, variables):
        from with_tensorflow.optimizers import AdamW

        args = self.args
        return AdamW(variables, learning_rate=args.learning_rate, weight_decay=args.weight_decay, betas=BETAS)

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

    def train_one(self, tokens, targets, iteration):
        """A replica's share of a step; `train` is the graph for all replicas."""
        loss, gradients = self.differentiate(tokens, targets, self.own_seed(iteration))
        self.optimizer.apply(self.ranks.average(gradients))
        return loss

    def loss_and_gradients(self, tokens, targets, seed):
        with self.tf.GradientTape() as tape:
            loss = self.loss(tokens, targets, seed)
        # The embedding's gradient comes by rows from the tokens and as a whole from the scores.
        return loss, [self.tf.convert_to_tensor(one) for one in tape.gradient(loss, self.variables)]

    def loss(self, tokens, targets, _seed):
        """Mean cross-entropy of masked tokens; `targets`, (batch, 2, masked), are their places and their original tokens."""
        places, wanted = self.tf.unstack(targets, axis=1)
        scores = self.tf.cast(self.net([tokens, places]), self.tf.float32)
        return self.tf.reduce_mean(self.tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=scores))

    def open(self):
        from tokens import Synthetic, Windows

        args, first = self.args, self.ranks.rank * self.args.devices
        own = {"batch": args.batch, "ranks": self.ranks.world_size, **self.drawn}
        kind, where = (Synthetic, ()) if args.data == "synthetic" else (Windows, (args.data,))
        sources = [kind(*where, args.seed, rank=first + device, **own) for device in range(args.devices)]
        return Sequences(args, sources, self.place_rows)

    @property
    def drawn(self):
        return {"length": self.args.sequence_length, "vocabulary": self.size.vocabulary}

    def place_rows(self, rows):
        """Mask each device's rows, and copy inputs and targets to it."""
        from tokens import masked

        read = [masked(own, seed=self.args.seed, vocabulary=self.size.vocabulary) for own in rows]

        def part(number):
            def of(replica):
                return self.tf.constant(read[replica % len(read)][number], self.tf.int32)

            return self.shim.values(self.ranks.strategy, of)

        return part(0), part(1)

    def shared_batch(self):
        from tokens import SHARED, sequences

        rows = sequences(self.args.seed, first=SHARED, count=self.args.batch, **self.drawn)
        return self.place_rows([rows] * self.args.devices)

    def flop_per_sample(self):
        from costs import flop_per_token

        return flop_per_token(self.args.model, length=self.args.sequence_length)


if __name__ == "__main__":
    args = parser(__doc__.splitlines()[0]).parse_args()
    check_model(args, "TensorFlow", MODELS)
    if args.precision == "fp8":
        refuse("--precision=fp8 is not offered with TensorFlow; ask for bf16")
    for name, value in FIXED.items():
        if getattr(args, name) != value:
            flag = f"--{name.replace('_', '-')}"
            refuse(f"{flag}={getattr(args, name)} is not offered with TensorFlow; ask for {flag}={value}")
    check(args)
    run(Bert, args)
