"""How the processes of the MXNet program meet and join their gradients: one alone, a key-value store, or Horovod.

Each class joins the others when it is made. `trainer` makes what applies the gradients, `step_size` is the number of samples that its
`step` has to divide by, `barrier` waits for all processes, `leave` says goodbye.
"""

from mxnet_shim import mx


class Alone:
    """One process, one device."""

    rank, processes = 0, 1
    store = None

    def trainer(self, parameters, rates):
        return mx.gluon.Trainer(parameters, "sgd", rates, kvstore=self.store)

    def step_size(self, local_batch):
        return local_batch

    def barrier(self):
        """There is nobody to wait for."""

    def leave(self):
        """There is nobody to take leave of."""


class Local(Alone):
    """A store that joins the devices of this process: `local`, `device`, `nccl`."""

    def __init__(self, name):
        self.store = mx.kv.create(name)


class Distributed(Local):
    """A store at parameter servers that joins processes: `dist_sync`, `dist_sync_device`, `dist_async`."""

    def __init__(self, name):
        super().__init__(name)
        self.rank, self.processes = self.store.rank, self.store.num_workers
        self.synchronous = name != "dist_async"

    def step_size(self, local_batch):
        """A synchronous server adds up all workers' gradients before it steps; an asynchronous one steps with each of them."""
        return local_batch * self.processes if self.synchronous else local_batch

    def barrier(self):
        self.store._barrier()  # noqa: SLF001 - the only way to it; MXNet's own launcher tests use it


class Horovod(Alone):
    """The processes that Horovod's launcher started; fusion and cycle time are Horovod's own variables."""

    def __init__(self, compression):
        import horovod.mxnet as hvd

        hvd.init()
        self.hvd, self.rank, self.processes = hvd, hvd.rank(), hvd.size()
        self.compression = getattr(hvd.Compression, compression)

    def trainer(self, parameters, rates):
        self.hvd.broadcast_parameters(parameters, root_rank=0)
        return self.hvd.DistributedTrainer(parameters, "sgd", rates, compression=self.compression)

    def barrier(self):
        mx.nd.waitall()
        self.hvd.allreduce(mx.nd.zeros(1), name="barrier").wait_to_read()

    def leave(self):
        self.hvd.shutdown()


def join(args):
    """Meet the other processes in the way that --strategy says."""
    if args.strategy == "horovod":
        return Horovod(args.compression)
    if args.strategy == "kvstore":
        return Distributed(args.kvstore) if args.kvstore.startswith("dist") else Local(args.kvstore)
    return Alone()
