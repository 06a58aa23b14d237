"""Trains a convolutional network with TensorFlow, on one device, several devices or several processes, and reports events.

    python3 train_tensorflow.py --model=resnet18 --image-size=32 --num-classes=1000 --batch=32 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --strategy=single --data=synthetic --learning-rate=0.02 \
        --momentum=0.9 --weight-decay=0.0001 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=1
    python3 train_tensorflow.py ... --devices=2 --strategy=mirrored
    python3 ../tf_workers.py --cluster=127.0.0.1:20001,127.0.0.1:20002 --host=0 --count=2 \
        python3 train_tensorflow.py ... --strategy=multiworker
    python3 ../with_tensorflow/servers.py --address=127.0.0.1:20001 --workers=2
    DLSCALE_SERVERS=127.0.0.1:20001 python3 train_tensorflow.py ... --strategy=ps
    horovodrun --gloo -np 2 python3 train_tensorflow.py ... --strategy=horovod --compression=none
    python3 train_tensorflow.py ... --profile=kernels --profile-iterations=5

A Keras model in a custom loop: Keras 3's `model.fit` does not work under MultiWorkerMirroredStrategy, and its optimizers do not
average under Horovod. Images are NHWC. --xla compiles the forward and backward pass; the exchange between replicas stays outside.

This file has the data, the network, the step and the timed window. `workloads/loop.py`, shared by all programs, runs the windows and
everything before and after them, and emits their events; `with_tensorflow/training.py` has everything that is not measured.
"""

import itertools
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arguments import refuse
from class_folders import check_fit, class_folders, read_index, split
from flags import parser
from networks import AUXILIARY, AVERAGING, EPSILON, RHO, RMSPROP, SMOOTHING, TRANSFORMERS
from with_tensorflow.techniques import TECHNIQUES
from with_tensorflow.training import Training, differences, run


def check_data(args):
    """Refuse paths without images for this program, before TensorFlow is imported: nothing here needs it."""
    data = Path(args.data)
    packed = data.suffix == ".tfrecord" and data.is_file() and data.with_suffix(".json").is_file()
    if args.data != "synthetic" and not data.is_dir() and not packed:
        refuse(f"--data={args.data} is neither a folder of class folders with JPEGs nor a file of pack_tfrecord.py")
    if args.epoch_iterations and not data.is_dir():
        refuse(f"--epoch-iterations with --data={args.data}: validation needs a folder of class folders with JPEGs")


class Cnn(Training):
    offered = TECHNIQUES

    def build(self):
        from models_tensorflow import build

        args = self.args
        self.take(build(args.model, args.image_size, args.num_classes, techniques=args.techniques))

    def window(self, iterations):
        """Run one timed window: whole steps, until the devices finish. On a GPU and within a graph, TensorFlow shows no time between steps."""
        if self.uses_step_loop:
            losses = [self.learn(iterations)]
            self.synchronize()
            done = time.monotonic(), self.read(losses), None
            return lambda: done
        marks, losses = [time.perf_counter()], []
        for _ in range(iterations):
            losses.append(self.step())
            marks.append(time.perf_counter())
        self.synchronize()
        done = time.monotonic(), self.read(losses), None if self.on_gpu else differences(marks)
        return lambda: done

    def step(self):
        return self.learn(1)

    def learn(self, iterations):
        """Enqueue one call of `train`: an iteration, or with --techniques=step-loop `iterations` of them on one batch."""
        with self.regions("input"):
            batch = next(self.batches)
        first = self.tf.constant(self.iteration + 1)
        self.iteration += iterations
        with self.regions("step"):
            return (
                self.train(*batch, first, self.tf.constant(iterations))
                if self.uses_step_loop
                else self.train(*batch, first)
            )

    def train_one(self, inputs, labels, iteration):
        """A replica's share of a step; `train` is the graph for all replicas."""
        loss, gradients = self.differentiate(inputs, labels, self.own_seed(iteration))
        self.optimizer.apply(self.ranks.average(gradients))
        return loss

    def loss_and_gradients(self, inputs, labels, seed):
        with self.tf.GradientTape() as tape:
            loss = self.loss(inputs, labels, seed)
            scaled = self.optimizer.scaled(loss)
        return loss, tape.gradient(scaled, self.variables)

    def loss(self, inputs, labels, seed):
        scores, *heads = self.all_scores(inputs, seed)
        loss = self.cross_entropy(scores, labels)
        for head in heads:
            loss += AUXILIARY[self.args.model] * self.cross_entropy(head, labels)
        return loss

    def cross_entropy(self, scores, labels):
        tf, share = self.tf, SMOOTHING.get(self.args.model)
        if not share:
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores))
        classes = self.args.num_classes
        smoothed = (1 - share) * tf.one_hot(labels, classes) + share / classes
        return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=smoothed, logits=scores))

    def all_scores(self, inputs, seed):
        """The scores of the network and its auxiliary classifiers, in fp32."""
        outputs = self.net([self.prepared(inputs), seed])
        return [
            self.tf.cast(scores, self.tf.float32) for scores in (outputs if isinstance(outputs, list) else [outputs])
        ]

    def scores(self, inputs, seed):
        return self.all_scores(inputs, seed)[0]

    def update_rule(self, variables):
        if self.args.model in TRANSFORMERS:
            from with_tensorflow.optimizers import AdamW

            decay = self.args.weight_decay
            return AdamW(variables, learning_rate=self.args.learning_rate, weight_decay=decay)
        if self.args.model not in RMSPROP:
            return super().update_rule(variables)
        from with_tensorflow.optimizers import RmsPropMomentum

        return RmsPropMomentum(variables, **self.rates, rho=RHO, epsilon=EPSILON, averaging=AVERAGING)

    def prepared(self, images):
        from data_tensorflow import normalized

        return normalized(images)

    def open(self):
        from data_tensorflow import Folders, Records, Validation

        args, ranks = self.args, self.ranks
        if args.data == "synthetic":
            return itertools.repeat(self.synthetic())
        packed = not Path(args.data).is_dir()
        index = read_index(args.data) if packed else None
        classes, images = (index["classes"], range(index["images"])) if packed else class_folders(args.data)
        if args.epoch_iterations:
            images, validation = split(images)
            if not validation:
                refuse(f"{args.data} has no class of five JPEGs, so that none is left for validation; give more")
            self.validated = Validation(args, ranks, images=validation)
        check_fit(args, classes=len(classes), images=len(images), devices=ranks.world_size)
        return Records(args, ranks) if packed else Folders(args, ranks, images=images)

    def shared_batch(self):
        from synthetic import SHARED

        return self.synthetic(shared=SHARED)

    def synthetic(self, *, shared=None):
        """A batch per device of the synthetic data set, which stays there: replica r's own samples, or those from number `shared`."""
        from synthetic import samples

        args, tf = self.args, self.tf

        def batch(replica):
            first = (self.ranks.offset + replica) * args.batch if shared is None else shared
            shape = {"image_size": args.image_size, "num_classes": args.num_classes}
            images, labels = samples(args.seed, first=first, count=args.batch, **shape)
            return tf.constant(images.transpose(0, 2, 3, 1)), tf.constant(labels)

        return self.shim.values(self.ranks.strategy, batch)

    def validation(self):
        yield from self.validated.batches()
        self.batches.source.undecodable |= self.validated.skipped


if __name__ == "__main__":
    args = parser(__doc__.splitlines()[0]).parse_args()
    check_data(args)
    if args.model in {*RMSPROP, *TRANSFORMERS} and args.precision == "fp16":
        rule = "RMSprop" if args.model in RMSPROP else "AdamW"
        refuse(f"--precision=fp16 scales losses for SGD, and --model={args.model} has {rule}; ask for bf16 or tf32")
    run(Cnn, args)
