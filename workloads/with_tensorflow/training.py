"""Common part of all TensorFlow training programs, outside the measurement: `run`, their main, and the base of their class.

    class Cnn(Training):
        def build(self):
            self.take(model)      # a Keras model of (inputs, seed), trained on (inputs, labels) by `update_rule`, by default SGD

    run(Cnn, parser(...).parse_args())

The program defines what is measured: `step`, one iteration, and `window`, the steps between two edges (`loop.py`). A step is one graph,
whose operators run when their inputs are ready: those of the update between those of the backward pass. Its regions are the input and the
rest, called `step`; forward, backward and optimizer cannot be told apart. For one replica a program defines

    build()                       make networks and their optimizers, in the scope of the strategy: by `take`, or by setting `variables`,
                                  the list of everything trained; weights are drawn from Keras' seed, which is set
    train_one(*batch, iteration)  one replica's part of an iteration: its loss
    loss(*batch, seed)            the training-mode loss, without update
    loss_and_gradients(*batch, seed)  with `take`: that loss and the gradients of all `variables`
    pass_one(*batch, seed)        without `take`: a forward and backward pass; returns all it computes, or TensorFlow would prune it
    prepared(inputs)              the network's input, from that of a batch

and for a process

    open()                        endless batches, tuples with one value per device: `*batch` above
    shared_batch()                the batch on which all replicas compute one loss
    validation()                  for convergence runs (`loop.py`): batches (inputs, labels, weights) of this process' share of the
                                  validation set; padding of the last batch has weight 0, samples have 1
    flop_per_sample()             if it differs

Everything random in a replica is seeded with a pair (stream, step) in int32 and with a number of its own: no two replicas
share a stream, no two iterations a step.
"""

import math
import os
import time

import loop
from arguments import check_cpu_precision, check_epochs, check_strategy, refuse
from events import Events, process_start
from process import leave, pin
from profiling import Regions
from with_tensorflow import techniques
from with_tensorflow.device import environment, set_up

# Set by Horovod's own launcher and by Open MPI.
HOROVOD_RANKS = {"HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"}


def check(args):
    """Refuse what no TensorFlow program supports; runs before TensorFlow's import and does not need it."""
    check_strategy(args, "TensorFlow", ("single", "mirrored", "multiworker", "ps", "horovod"))
    if args.devices > 1 and args.strategy != "mirrored":
        refuse(f"--devices={args.devices} needs --strategy=mirrored; other strategies drive one device per process")
    if args.strategy == "horovod" and not HOROVOD_RANKS & set(os.environ):
        refuse("--strategy=horovod needs several ranks; start this program with horovodrun")
    if args.strategy == "multiworker" and "TF_CONFIG" not in os.environ:
        refuse("--strategy=multiworker needs TF_CONFIG; start this program with tf_workers.py")
    if args.strategy == "ps" and "DLSCALE_SERVERS" not in os.environ:
        refuse("--strategy=ps needs DLSCALE_SERVERS, where servers.py listens: HOST:PORT,...")
    if args.strategy == "ps" and args.precision == "fp16":
        refuse("--strategy=ps with --precision=fp16: servers do not scale losses; ask for fp32, tf32 or bf16")
    if args.strategy != "multiworker" and "TF_CONFIG" in os.environ:
        refuse(f"--strategy={args.strategy} would train a model per worker of TF_CONFIG; ask for multiworker")
    if args.profile_region not in {None, "input"}:
        refuse(
            f"--profile-region={args.profile_region}: TensorFlow interleaves forward pass, backward pass and update in one graph; "
            "ask for input, or leave it out and see the operators' names"
        )
    check_cpu_precision(args)
    check_epochs(args)


def check_version(args, tf):
    """Refuse what the vendor's 1.15 lacks."""
    from with_tensorflow import shim

    if shim.V1 and (args.strategy not in {"single", "horovod"} or args.precision == "bf16"):
        refuse(f"TensorFlow {tf.__version__} is offered with single and horovod, in fp32, tf32 and fp16")
    if shim.V1 and args.profile:
        refuse(f"--profile={args.profile} needs TensorFlow 2, this is {tf.__version__}; leave it out, or ask for 2.21")


class Training(loop.Training):
    """One process' training; `workloads/loop.py` describes its methods."""

    framework = "with_tensorflow"
    offered = ("xla",)  # techniques that the program offers

    def __init__(self, args, tf, ranks):
        from with_tensorflow import shim

        self.args, self.tf, self.shim, self.ranks = args, tf, shim, ranks
        self.on_gpu = args.device == "gpu"
        self.uses_step_loop = "step-loop" in args.techniques
        self.xla = args.xla or "xla" in args.techniques
        self.iteration, self.regions = 0, Regions()
        with ranks.strategy.scope():
            shim.set_seed(args.seed)  # the same in all processes, so that they start from the same weights
            self.build()
        ranks.broadcast(self.variables)
        self.train = (self.looped if self.uses_step_loop else self.on_all)(self.train_one)
        self.test = self.on_all(self.loss)
        self.batches = loop.Batches(self.open())

    def take(self, net):
        self.net = net
        self.variables = self.shim.trained(net)
        self.optimizer = self.ranks.updates(self.variables, self.update_rule)
        self.differentiate = self.shim.compiled(self.loss_and_gradients, xla=self.xla)
        self.validation_results = self.on_all(self.validation_result)

    @property
    def rates(self):
        args = self.args
        return {"learning_rate": args.learning_rate, "momentum": args.momentum, "weight_decay": args.weight_decay}

    def update_rule(self, variables):
        """The optimizer of the network's variables: SGD unless a program overrides it."""
        from with_tensorflow.optimizers import Sgd

        return Sgd(variables, **self.rates, scaled=self.args.precision == "fp16")

    def pass_one(self, inputs, labels, seed):
        return self.differentiate(inputs, labels, seed)

    def on_all(self, function):
        """Make one graph that runs a function once per replica; it returns the result of each device of this process."""

        def run(*inputs: object):
            results = self.shim.run(self.ranks.strategy, function, inputs)
            return self.ranks.strategy.experimental_local_results(results)

        return self.tf.function(run, autograph=False)

    def looped(self, function):
        """Like `on_all`, but for `count` iterations from number `first` in one call: a vector of their results per device."""
        tf, local = self.tf, self.ranks.strategy.experimental_local_results

        def run(*inputs: object):
            *batch, first, count = inputs

            def iterate(done, *by_device: object):
                results = local(self.shim.run(self.ranks.strategy, function, (*batch, first + done)))
                return (done + 1, *(array.write(done, result) for array, result in zip(by_device, results)))  # noqa: B905 - Python 3.8

            arrays = [tf.TensorArray(tf.float32, size=count, element_shape=()) for _ in range(self.args.devices)]
            _, *by_device = tf.while_loop(lambda done, *_: done < count, iterate, (0, *arrays), parallel_iterations=1)
            return [array.stack() for array in by_device]

        return tf.function(run, autograph=False)

    def replica(self):
        """Global number of the calling replica."""
        return self.ranks.offset + self.tf.distribute.get_replica_context().replica_id_in_sync_group

    def own_seed(self, iteration):
        """Seed of the calling replica in an iteration."""
        return self.tf.stack([self.args.seed + self.replica(), iteration])

    def common_seed(self):
        """Seed that all replicas share, of no iteration."""
        return self.tf.constant([self.args.seed, -1])

    def synchronize(self):
        if self.on_gpu:  # on CPUs a call returns when its work is done
            self.shim.synchronize()

    def evaluate(self):
        self.ranks.settle()
        return [float(loss) for loss in self.test(*self.shared_batch(), self.common_seed())]

    def exchange(self, elements):
        return self.ranks.exchange(elements)

    def collectives(self):
        return self.ranks.collectives()

    def alone(self):
        batch, run = self.shared_batch(), self.on_all(self.pass_one)
        return lambda: run(*batch, self.common_seed())

    def product(self, size, precision):
        # One process has the threads of all its devices.
        factor = self.tf.fill((size, size), self.tf.constant(0.5, "bfloat16" if precision == "bf16" else "float32"))
        return self.tf.function(lambda: self.tf.matmul(factor, factor), autograph=False), 1, "tf.matmul"

    def read(self, losses):
        """Results of calls of `train`, one loss or several per device: means over devices, step by step."""
        by_device = ([part.numpy().reshape(-1).tolist() for part in parts] for parts in losses)
        return [math.fsum(step) / len(step) for parts in by_device for step in zip(*parts)]  # noqa: B905 - Python 3.8

    def parameter_count(self):
        return sum(math.prod(variable.shape) for variable in self.variables)

    def parameter_norm(self):
        return loop.norm(variable.numpy() for variable in self.variables)

    def prepared(self, inputs):
        return inputs

    def scores(self, inputs, seed):
        """The network's scores of each sample, in fp32."""
        return self.tf.cast(self.net([self.prepared(inputs), seed]), self.tf.float32)

    def validation_result(self, inputs, labels, weights):
        """One replica's results for a validation batch: sum of losses, number of correct samples, number of samples."""
        from with_tensorflow.layers import in_use

        tf = self.tf
        with in_use(self.net):
            scores = self.scores(inputs, self.common_seed())
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        right = tf.cast(tf.equal(tf.argmax(scores, 1), tf.cast(labels, tf.int64)), tf.float32)
        return tf.stack([tf.reduce_sum(weights * part) for part in (losses, right, tf.ones_like(losses))])

    def validate(self):
        self.ranks.settle()
        self.ranks.share(self.shim.gathered(self.net))
        found = [part.numpy() for batch in self.validation() for part in self.validation_results(*batch)]
        loss_sum, correct, samples = (math.fsum(float(part[index]) for part in found) for index in range(3))
        return {"samples": int(samples), "loss_sum": loss_sum, "correct": int(correct)}

    def flop_per_sample(self):
        from flop import per_sample
        from with_tensorflow.layers import multiplied

        return per_sample(multiplied(self.net))


def differences(moments):
    return [after - before for before, after in zip(moments, moments[1:])]  # noqa: B905, RUF007 - Python 3.8


def run(program, args):
    """Run the requested training, emit its events, and exit (return with multiworker); `program` is a subclass of `Training`."""
    pin(args.cpus_per_worker * args.devices)
    check(args)
    techniques.check(args, offered=program.offered)

    from with_tensorflow.ranks import join
    from with_tensorflow.shim import set_precision, tf

    check_version(args, tf)
    set_precision(args.precision)
    techniques.set_up(args, tf)
    gpus = set_up(args, tf)
    imported = time.monotonic()
    ranks = join(args)
    events = Events(rank=ranks.rank)
    events.emit("phase", name="import", seconds=imported - process_start())
    events.emit("env", **environment(args, tf, gpus))
    training = program(args, tf, ranks)
    events.phase("model", imported)
    loop.report(training, events, args, world_size=ranks.world_size)
    ranks.leave()
    if args.strategy != "multiworker":  # its processes sign off from each other in the interpreter's shutdown
        leave()
