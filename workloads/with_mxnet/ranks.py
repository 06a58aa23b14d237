"""How the processes of the MXNet program meet and join their gradients: one alone, a key-value store, or Horovod.

Each class joins the others when it is made. `trainer` makes what applies the gradients (`here`: in this
process, which sees them before; a store would else do it where it adds them up), `step_size` is the number of samples that its
`step` has to divide by, `barrier` waits for all processes, `slowest` gives the most of what each hands in, or None where they can't tell
each other, `share` gives parameters that no gradient reaches the values of rank 0's first device, on all devices of all processes,
`exchange` makes what `probe.py` times, `collectives` what `collectives.py` does, `leave` says goodbye.
"""

import contextlib
import functools
from itertools import count

import process
from collectives import by_horovod, sent
from probe import part
from with_mxnet.shim import mx

# Gluon's trainer numbers its keys from 0, and a store that has seen a number takes no names. Keys from here on are the probe's.
PROBE_KEY = 1 << 20
# And from here on those of what `share` sends; a store sends no key twice.
SHARE_KEY = 1 << 30


class Alone(process.Alone):
    """One process, one device."""

    processes = 1
    store = None

    def trainer(self, parameters, rates, *, here):
        return mx.gluon.Trainer(parameters, "sgd", rates, kvstore=self.store, update_on_kvstore=False if here else None)

    def step_size(self, local_batch):
        return local_batch

    def share(self, parameters):
        for parameter in parameters:
            parameter.set_data(parameter.list_data()[0])


class PushPull:
    """Pushes the buffers of this process to a key of their own and pulls their sum; `workloads/probe.py` says what its methods are for.

    Before the trainer has set an optimizer, a store keeps the sum of what was pushed last.
    """

    operation = "push_pull"

    def __init__(self, ranks, elements, contexts):
        self.store, self.key = ranks.store, PROBE_KEY + elements
        self.devices = ranks.processes * len(contexts)
        first = ranks.rank * len(contexts)
        self.parts = [mx.nd.array(part(first + number, elements), ctx=ctx) for number, ctx in enumerate(contexts)]
        self.buffers = [found.copy() for found in self.parts]
        self.sums = [found.zeros_like() for found in self.parts]
        self.store.init(self.key, mx.nd.zeros(elements))

    def fill(self):
        for buffer, found in zip(self.buffers, self.parts, strict=True):
            # A distributed store of one CPU device sends out of the array that was pushed, and receives into it too.
            found.copyto(buffer)

    def run(self):
        self.store.push(self.key, self.buffers)
        self.store.pull(self.key, out=self.sums)

    def results(self):
        return [found.asnumpy() for found in self.sums]


class AsynchronousPushPull(PushPull):
    """The same at a server that steps with what each worker pushes, and wants to be told how: it adds up all that it ever gets.

    What is pulled lies between, so that the sum is looked at when everybody has pushed. The trainer's optimizer, which comes with its first
    step, takes the place of this one.
    """

    def __init__(self, ranks, elements, contexts):
        super().__init__(ranks, elements, contexts)
        self.pushed, self.barrier = 0, ranks.barrier
        self.store.set_optimizer(mx.optimizer.Test())

    def run(self):
        super().run()
        self.pushed += 1

    def results(self):
        self.barrier()
        self.store.pull(self.key, out=self.sums)
        return [found / self.pushed for found in super().results()]


class Local(Alone):
    """A store that joins the devices of this process: `local`, `device`, `nccl`."""

    no_collectives = "MXNet's key-value store only pushes and pulls"

    def __init__(self, name):
        self.store = mx.kv.create(name)

    def exchange(self, elements, contexts):
        return PushPull(self, elements, contexts) if len(contexts) > 1 else None


class Distributed(Local):
    """A store at parameter servers that joins processes: `dist_sync`, `dist_sync_device`, `dist_async`."""

    def __init__(self, name):
        super().__init__(name)
        self.rank, self.processes = self.store.rank, self.store.num_workers
        self.synchronous = name != "dist_async"
        self.shared = count(SHARE_KEY)

    def trainer(self, parameters, rates, *, here):
        made = super().trainer(parameters, rates, here=here)
        if here:
            # The server's keys hold weights at first, and from the first exchange on gradients. Left to itself, the trainer asks for the
            # weights and sends its first gradients at once, and a worker that is late is given the gradients for weights.
            made._init_kvstore()  # noqa: SLF001
            made._init_params()  # noqa: SLF001
            mx.nd.waitall()
        return made

    def step_size(self, local_batch):
        """A synchronous server adds up all workers' gradients before it steps; an asynchronous one steps with each of them."""
        return local_batch * self.processes if self.synchronous else local_batch

    def barrier(self):
        self.store._barrier()  # noqa: SLF001 - the only way to it; MXNet's own launcher tests use it

    def slowest(self, seconds):
        """Servers step with all that they are pushed once the trainer has told them how, and keep nothing else."""

    def share(self, parameters):
        """A server keeps the first value of a key as it is sent by rank 0."""
        for parameter in parameters:
            self.store.broadcast(next(self.shared), parameter.list_data()[0], out=parameter.list_data())

    def exchange(self, elements, contexts):
        return (PushPull if self.synchronous else AsynchronousPushPull)(self, elements, contexts)


class AllReduce:
    """Horovod's sum over all ranks; `workloads/probe.py` says what its methods are for."""

    operation = "all_reduce"

    def __init__(self, ranks, elements, context):
        self.hvd, self.devices, self.name = ranks.hvd, ranks.processes, f"probe.{elements}"
        self.part = mx.nd.array(part(ranks.rank, elements), ctx=context)

    def fill(self):
        """The sum has an array of its own."""

    def run(self):
        self.sum = self.hvd.allreduce(self.part, op=self.hvd.Sum, name=self.name)

    def results(self):
        return [self.sum.asnumpy()]


class Collective:
    """One of `collectives.OPERATIONS` by `send`, a function of an array and a name; see there."""

    def __init__(self, operation, send, ranks, context, elements):
        self.operation, self.send, self.name = operation, send, f"probe.{operation}.{elements}"
        self.number, self.devices, self.share = ranks.rank, ranks.processes, elements // ranks.processes
        self.sent = mx.nd.array(sent(operation, self.number, self.devices, self.share), ctx=context)

    def fill(self):
        """The result has an array of its own."""

    def run(self):
        self.result = self.send(self.sent, self.name)

    def results(self):
        return [self.result.asnumpy()]


class Horovod(Alone):
    """The processes that Horovod's launcher started; fusion and cycle time are Horovod's own variables."""

    def __init__(self, compression):
        import horovod.mxnet as hvd

        hvd.init()
        self.hvd, self.rank, self.processes = hvd, hvd.rank(), hvd.size()
        self.compression = getattr(hvd.Compression, compression)

    def trainer(self, parameters, rates, *, here):
        del here  # it is never anywhere else
        self.hvd.broadcast_parameters(parameters, root_rank=0)
        return self.hvd.DistributedTrainer(parameters, "sgd", rates, compression=self.compression)

    def barrier(self):
        mx.nd.waitall()
        self.hvd.allreduce(mx.nd.zeros(1), name="barrier").wait_to_read()

    def slowest(self, seconds):
        return float(self.hvd.allreduce(mx.nd.array([seconds]), op=self.hvd.Max, name="slowest").asscalar())

    def share(self, parameters):
        for parameter in parameters:
            self.hvd.broadcast_(parameter.data(), root_rank=0, name=f"share.{parameter.name}")

    def exchange(self, elements, contexts):
        return AllReduce(self, elements, contexts[0])

    @contextlib.contextmanager
    def collectives(self, contexts):
        known, missing = by_horovod(self.hvd, on_gpu=contexts[0].device_type == "gpu")
        yield (
            {name: functools.partial(Collective, name, send, self, contexts[0]) for name, send in known.items()},
            missing,
        )

    def leave(self):
        self.hvd.shutdown()


def join(args):
    if args.strategy == "horovod":
        return Horovod(args.compression)
    if args.strategy == "kvstore":
        return Distributed(args.kvstore) if args.kvstore.startswith("dist") else Local(args.kvstore)
    return Alone()
