"""How the processes of the MXNet program meet and average their gradients: a single one, a key-value store, or Horovod.

Each class joins the processes on construction. `trainer` makes the trainer that applies the gradients (`in_process`: in this process, which
then sees the sums, rather than in the store), `step_size` is the number of samples that its `step` has to divide by,
`barrier` waits for all processes, `slowest` returns the maximum over all, or None if they cannot exchange it,
`share` copies parameters without gradients from the first device of rank 0 to all devices of all processes,
`exchange` makes what `probe.py` times, `collectives` what `collectives.py` times, `leave` shuts communication down.
"""

import contextlib
import functools
from itertools import count

import process
from collectives import by_horovod, payload
from probe import part
from with_mxnet.shim import mx

# Gluon's trainer numbers its keys from 0, and a store with numeric keys takes no names. The probe uses keys from here on.
PROBE_KEY = 1 << 20
# `share` uses keys from here on; a store sends no key twice.
SHARE_KEY = 1 << 30


class Alone(process.Alone):
    """One process, one device."""

    processes = 1
    store = None

    def trainer(self, parameters, rates, *, in_process):
        return mx.gluon.Trainer(
            parameters, "sgd", rates, kvstore=self.store, update_on_kvstore=False if in_process else None
        )

    def step_size(self, local_batch):
        return local_batch

    def share(self, parameters):
        for parameter in parameters:
            parameter.set_data(parameter.list_data()[0])


class PushPull:
    """Pushes the buffers of this process to one key and pulls their sum; `workloads/probe.py` describes its methods.

    Until the trainer sets an optimizer, a store keeps the sum of the last push.
    """

    operation = "push_pull"

    def __init__(self, ranks, elements, contexts):
        self.store, self.key = ranks.store, PROBE_KEY + elements
        self.devices = ranks.processes * len(contexts)
        first = ranks.rank * len(contexts)
        self.parts = [mx.nd.array(part(first + number, elements), ctx=ctx) for number, ctx in enumerate(contexts)]
        self.buffers = [array.copy() for array in self.parts]
        self.sums = [array.zeros_like() for array in self.parts]
        self.store.init(self.key, mx.nd.zeros(elements))

    def fill(self):
        for buffer, array in zip(self.buffers, self.parts, strict=True):
            # A distributed store with one CPU device sends from the pushed array and receives into it.
            array.copyto(buffer)

    def run(self):
        self.store.push(self.key, self.buffers)
        self.store.pull(self.key, out=self.sums)

    def results(self):
        return [array.asnumpy() for array in self.sums]


class AsynchronousPushPull(PushPull):
    """A PushPull for a server that steps with each worker's push and needs an optimizer; this one accumulates all pushes.

    A pull returns an intermediate value, so the sum is checked after everybody has pushed. The trainer's optimizer, set at its first
    step, replaces this one.
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
    """A store within this process, for its devices: `local`, `device`, `nccl`."""

    no_collectives = "MXNet's key-value store only pushes and pulls"

    def __init__(self, name):
        self.store = mx.kv.create(name)

    def exchange(self, elements, contexts):
        return PushPull(self, elements, contexts) if len(contexts) > 1 else None


class Distributed(Local):
    """A store on parameter servers, for several processes: `dist_sync`, `dist_sync_device`, `dist_async`."""

    def __init__(self, name):
        super().__init__(name)
        self.rank, self.processes = self.store.rank, self.store.num_workers
        self.synchronous = name != "dist_async"
        self.share_keys = count(SHARE_KEY)

    def trainer(self, parameters, rates, *, in_process):
        new_trainer = super().trainer(parameters, rates, in_process=in_process)
        if in_process:
            # The server's keys hold weights first, and gradients from the first exchange on. By default the trainer pulls the weights
            # and pushes its first gradients without a barrier, so that a late worker would pull gradients as weights.
            new_trainer._init_kvstore()  # noqa: SLF001
            new_trainer._init_params()  # noqa: SLF001
            mx.nd.waitall()
        return new_trainer

    def step_size(self, local_batch):
        """A synchronous server sums all workers' gradients before it steps; an asynchronous one steps with each worker's."""
        return local_batch * self.processes if self.synchronous else local_batch

    def barrier(self):
        self.store._barrier()  # noqa: SLF001 - no public name; MXNet's own launcher tests use it

    def slowest(self, seconds):
        """Return None: once the trainer has set their optimizer, servers step with everything pushed, and can't return a maximum."""

    def share(self, parameters):
        """A server keeps the first value of a key, which rank 0 sends."""
        for parameter in parameters:
            self.store.broadcast(next(self.share_keys), parameter.list_data()[0], out=parameter.list_data())

    def exchange(self, elements, contexts):
        return (PushPull if self.synchronous else AsynchronousPushPull)(self, elements, contexts)


class AllReduce:
    """Horovod's sum over all ranks; `workloads/probe.py` describes its methods."""

    operation = "all_reduce"

    def __init__(self, ranks, elements, context):
        self.hvd, self.devices, self.name = ranks.hvd, ranks.processes, f"probe.{elements}"
        self.part = mx.nd.array(part(ranks.rank, elements), ctx=context)

    def fill(self):
        """Do nothing: the sum is allocated."""

    def run(self):
        self.sum = self.hvd.allreduce(self.part, op=self.hvd.Sum, name=self.name)

    def results(self):
        return [self.sum.asnumpy()]


class Collective:
    """One of `collectives.OPERATIONS` by `send`, a function of an array and a name."""

    def __init__(self, operation, send, ranks, context, elements):
        self.operation, self.send, self.name = operation, send, f"probe.{operation}.{elements}"
        self.number, self.devices, self.share = ranks.rank, ranks.processes, elements // ranks.processes
        self.payload = mx.nd.array(payload(operation, self.number, self.devices, self.share), ctx=context)

    def fill(self):
        """Do nothing: the result is allocated."""

    def run(self):
        self.result = self.send(self.payload, self.name)

    def results(self):
        return [self.result.asnumpy()]


class Horovod(Alone):
    """The processes that Horovod's launcher started; Horovod's own variables set fusion and cycle time."""

    def __init__(self, compression):
        import horovod.mxnet as hvd

        hvd.init()
        self.hvd, self.rank, self.processes = hvd, hvd.rank(), hvd.size()
        self.compression = getattr(hvd.Compression, compression)

    def trainer(self, parameters, rates, *, in_process):
        del in_process  # always in this process
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
        ops, missing = by_horovod(self.hvd, on_gpu=contexts[0].device_type == "gpu")
        yield (
            {name: functools.partial(Collective, name, send, self, contexts[0]) for name, send in ops.items()},
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
