"""How the replicas of the TensorFlow program meet and average their gradients.

A single one, one process with several devices, several processes by TF_CONFIG, parameter servers, or Horovod. Each class joins the others
on construction.
`strategy` is the tf.distribute strategy of this process; `offset` is added to its replica numbers; `average`, called
in a replica, returns the mean of all replicas' gradients (its own with parameter servers); `broadcast` makes weights equal before the first
step; `share` copies the first replica's values of variables without gradients to all; `barrier` waits for all processes; `slowest` returns
the maximum over all; `exchange` makes what `probe.py` times, `collectives` what `collectives.py` times; `updates` returns what applies
gradients to variables by an optimizer that `rule` makes of them; `settle` brings all to the same weights; `leave` shuts communication down.
"""

import contextlib
import functools
import json
import os

import process
from collectives import by_horovod, payload
from probe import part
from with_tensorflow.shim import tf, values


def all_reduce(operation, tensors):
    """All-reduce the tensors of the replicas of the calling strategy."""
    return tf.distribute.get_replica_context().all_reduce(operation, tensors)


class Alone(process.Alone):
    """One process, one device."""

    world_size, offset = 1, 0

    def __init__(self, device):
        self.strategy = tf.distribute.OneDeviceStrategy(device)

    def average(self, gradients):
        return gradients

    def updates(self, variables, rule):
        return rule(variables)

    def settle(self):
        """Do nothing: averaged gradients keep weights equal."""

    def broadcast(self, variables):
        """Do nothing."""

    def share(self, variables):
        """Do nothing."""


class AllReduce:
    """A sum over all replicas; `workloads/probe.py` describes its methods.

    `reduce` computes it from the values of this process' replicas.
    """

    operation = "all_reduce"

    def __init__(self, ranks, elements, reduce):
        self.strategy, self.devices, self.reduce = ranks.strategy, ranks.world_size, reduce
        self.parts = values(ranks.strategy, lambda replica: tf.constant(part(ranks.offset + replica, elements)))

    def fill(self):
        """Do nothing: sums are allocated."""

    def run(self):
        self.sums = self.reduce(self.parts)

    def results(self):
        return [found.numpy() for found in self.strategy.experimental_local_results(self.sums)]


class Collective:
    """One of `collectives.OPERATIONS` by `send`, a function of a tensor and a name."""

    def __init__(self, operation, send, ranks, elements):
        self.operation, self.send, self.name = operation, send, f"probe.{operation}.{elements}"
        self.number, self.devices, self.share = ranks.rank, ranks.world_size, elements // ranks.world_size
        own = values(ranks.strategy, lambda _: tf.constant(payload(operation, self.number, self.devices, self.share)))
        (self.payload,) = ranks.strategy.experimental_local_results(own)

    def fill(self):
        """Do nothing: results are allocated."""

    def run(self):
        self.result = self.send(self.payload, self.name)

    def results(self):
        return [self.result.numpy()]


class Replicas(Alone):
    """Base of the strategies that join replicas themselves."""

    # Their all-gather takes tensors of any size from each replica, and exchanges the sizes first.
    no_collectives = "TensorFlow's strategies offer none that could be compared"

    def average(self, gradients):
        return all_reduce(tf.distribute.ReduceOp.MEAN, gradients)

    def share(self, variables):
        if variables:
            tf.function(lambda: self.strategy.run(self.assign_first, args=(variables,)), autograph=False)()

    def assign_first(self, variables):
        """Assign the first replica's values, as sums in which all other replicas contribute zeros."""
        first = tf.equal(tf.distribute.get_replica_context().replica_id_in_sync_group, 0)
        terms = [tf.where(first, variable, tf.zeros_like(variable)) for variable in variables]
        for variable, value in zip(variables, all_reduce(tf.distribute.ReduceOp.SUM, terms)):  # noqa: B905 - Python 3.8
            variable.assign(value)

    def exchange(self, elements):
        reduce = tf.function(lambda parts: self.strategy.run(self.sum, args=(parts,)), autograph=False)
        return AllReduce(self, elements, reduce)

    def sum(self, value):
        # A value from outside the function is on no device yet; `identity` puts it on the replica's, where it is summed.
        return all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(value))


class Mirrored(Replicas):
    """Several devices of this process: NCCL between GPUs, copies between logical CPU devices."""

    def __init__(self, devices):
        self.strategy = tf.distribute.MirroredStrategy(devices)
        self.world_size = len(devices)


class MultiWorker(Replicas):
    """The processes that TF_CONFIG lists, one device each; NCCL between GPUs, TensorFlow's own ring over gRPC between CPU workers."""

    def __init__(self, *, on_gpu):
        kinds = tf.distribute.experimental.CommunicationImplementation
        options = tf.distribute.experimental.CommunicationOptions(implementation=kinds.NCCL if on_gpu else kinds.RING)
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
        config = json.loads(os.environ["TF_CONFIG"])
        self.rank, self.world_size = config["task"]["index"], len(config["cluster"]["worker"])
        self.meeting = tf.function(lambda: self.strategy.run(self.zero_sum), autograph=False)
        self.gather = tf.function(lambda share: self.strategy.run(self.sum, args=(share,)), autograph=False)

    def zero_sum(self):
        return self.sum(tf.zeros([]))

    def barrier(self):
        self.strategy.experimental_local_results(self.meeting())[0].numpy()

    def slowest(self, seconds):
        # Only sums are available: sum a vector with one element per worker, in which each worker sets its own.
        (by_worker,) = self.strategy.experimental_local_results(
            self.gather(seconds * tf.one_hot(self.rank, self.world_size))
        )
        return float(tf.reduce_max(by_worker))

    def leave(self):
        # The first worker coordinates the others, which report an error if it exits before them. A worker may exit from this barrier
        # while another still reads from it: that error means that all have arrived.
        with contextlib.suppress(tf.errors.UnavailableError):
            self.barrier()


class ParameterServers(Alone):
    """The processes that meet at the servers of DLSCALE_SERVERS, one device each; no worker waits for another's gradients."""

    no_collectives = "workers only push to parameter servers and pull from them"

    def __init__(self, device):
        from with_tensorflow.servers import Server

        super().__init__(device)
        self.servers = [Server(address) for address in os.environ["DLSCALE_SERVERS"].split(",")]
        self.rank, self.world_size = map(int, self.servers[0].register())
        self.offset = self.rank
        self.servers[0].prepare_barrier(self.rank, self.world_size)

    def updates(self, variables, rule):
        from with_tensorflow.servers import ServerOptimizer

        self.server_optimizer = ServerOptimizer(self.servers, variables, rule)
        return self.server_optimizer

    def broadcast(self, variables):
        del variables  # the servers hold them
        if self.rank == 0:
            self.server_optimizer.initialize()
        self.settle()

    def settle(self):
        self.barrier()
        self.server_optimizer.pull()
        self.barrier()  # no worker continues while another still pulls

    def share(self, variables):
        if not variables:
            return
        if not hasattr(self, "shared_values"):
            self.shared_values = self.servers[0].shared("gathered", [variable.shape for variable in variables])
        if self.rank == 0:
            self.shared_values.send([variable.numpy() for variable in variables])
        self.barrier()
        for variable, value in zip(variables, self.shared_values.get()):  # noqa: B905 - Python 3.8
            variable.assign(value)
        self.barrier()

    def barrier(self):
        self.slowest(0)

    def slowest(self, seconds):
        return self.servers[0].slowest(seconds)

    def exchange(self, elements):
        from with_tensorflow.servers import PushPull

        return PushPull(self, elements)

    def leave(self):
        for server in self.servers:
            server.leave()


class Horovod(Alone):
    """The processes that Horovod's launcher started; Horovod's own variables set fusion and cycle time."""

    def __init__(self, device, compression):
        import horovod.tensorflow as hvd

        hvd.init()
        super().__init__(device)
        self.hvd, self.rank, self.world_size, self.offset = hvd, hvd.rank(), hvd.size(), hvd.rank()
        self.compression, self.on_gpu = getattr(hvd.Compression, compression), device.startswith("/gpu")

    def average(self, gradients):
        # As in hvd.DistributedGradientTape; a separate call stays outside of what XLA compiles.
        return [
            self.hvd.allreduce(gradient, op=self.hvd.Average, compression=self.compression) for gradient in gradients
        ]

    def broadcast(self, variables):
        self.hvd.broadcast_variables(variables, root_rank=0)

    def share(self, variables):
        if variables:
            self.broadcast(variables)

    def barrier(self):
        self.hvd.allreduce(tf.zeros([]), name="barrier").numpy()

    def slowest(self, seconds):
        return float(self.hvd.allreduce(tf.constant(seconds), op=self.hvd.Max, name="slowest"))

    def exchange(self, elements):
        return AllReduce(
            self, elements, lambda value: self.hvd.allreduce(value, op=self.hvd.Sum, name=f"probe.{elements}")
        )

    @contextlib.contextmanager
    def collectives(self):
        ops, missing = by_horovod(self.hvd, on_gpu=self.on_gpu)
        yield {name: functools.partial(Collective, name, send, self) for name, send in ops.items()}, missing

    def leave(self):
        self.hvd.shutdown()


def join(args):
    devices = [f"/{args.device}:{number}" for number in range(args.devices)]
    if args.strategy == "mirrored":
        return Mirrored(devices)
    if args.strategy == "multiworker":
        return MultiWorker(on_gpu=args.device == "gpu")
    if args.strategy == "ps":
        return ParameterServers(devices[0])
    if args.strategy == "horovod":
        return Horovod(devices[0], args.compression)
    return Alone(devices[0])
