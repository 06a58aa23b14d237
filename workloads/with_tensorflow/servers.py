"""Parameter servers for strategy `ps`: processes that hold the weights and step with each worker's gradients as they arrive.

    python3 servers.py --address=127.0.0.1:20001 --workers=2
    DLSCALE_SERVERS=127.0.0.1:20001 python3 train_tensorflow.py ... --strategy=ps

Training is asynchronous: a worker sends its gradients, receives the weights, which others may have changed meanwhile, and waits for nobody
(Abadi et al., "TensorFlow: A System for Large-Scale Machine Learning", OSDI 2016, section 4.4). Each worker is a separate client, with
a graph and a session at every server. Sessions share variables and queues by name; resources of an eager client are private to it.

Run as a program it is one server, which exits when all its workers have signed off.
"""

import argparse
import contextlib
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from probe import part
from with_tensorflow.shim import tf

# Seconds that a worker waits for a server that still imports TensorFlow, and between two attempts.
CONNECT_S, RETRY_S = 300, 0.2
# Seconds that a server stays up to answer the last worker, and milliseconds that a worker waits for this answer.
LINGER_S, SIGN_OFF_MS = 1, 10_000


class Queues:
    """Messages between workers and a server, in queues with the same names for all; create it in a graph."""

    def __init__(self):
        self.ranks = queue("ranks", tf.int32, (2,))  # (rank, workers), taken by each worker that registers
        self.arrivals = queue("come")  # values of the workers that have reached a barrier
        self.sign_offs = queue("left")

    def released(self, rank):
        """The queue that a worker waits on at a barrier; each has its own, or a fast worker would take a slow one's message."""
        return queue(f"going{rank}")


def queue(name, dtype=tf.float32, shape=()):
    return tf.queue.FIFOQueue(1 << 20, [dtype], shapes=[shape], shared_name=name, name=name)


class Shared:
    """Values at a server that one worker sends and all get, in variables with common names; create it in the worker's graph."""

    def __init__(self, session, name, shapes):
        self.session = session
        self.variables = [tf.Variable(tf.zeros(shape), name=f"{name}{n}") for n, shape in enumerate(shapes)]
        self.sent = [tf.compat.v1.placeholder(tf.float32, shape) for shape in shapes]
        self.assigned = [one.assign(value) for one, value in zip(self.variables, self.sent)]  # noqa: B905 - Python 3.8
        self.values = [one.read_value() for one in self.variables]

    def send(self, values):
        self.session.run(self.assigned, dict(zip(self.sent, values)))  # noqa: B905 - Python 3.8

    def get(self):
        return self.session.run(self.values)


class Server:
    """One server, as a worker sees it: some of the weights, and the rule that updates them there."""

    def __init__(self, address):
        wait_for(address)
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.queues = Queues()
            self.number = tf.compat.v1.placeholder(tf.float32, ())
            self.sign_off = self.queues.sign_offs.enqueue(self.number)
        self.session = tf.compat.v1.Session(f"grpc://{address}", graph=self.graph)

    def register(self):
        """``(rank, workers)`` of the calling worker."""
        with self.graph.as_default():
            return self.session.run(self.queues.ranks.dequeue())

    def prepare_barrier(self, rank, workers):
        """Prepare the operations of `slowest`; the first worker releases all once it has heard from each."""
        with self.graph.as_default():
            self.arrive = self.queues.arrivals.enqueue(self.number)
            self.all = tf.reduce_max(self.queues.arrivals.dequeue_many(workers)) if rank == 0 else None
            self.release = tf.group(*(self.queues.released(other).enqueue(self.number) for other in range(workers)))
            self.released = self.queues.released(rank).dequeue()

    def slowest(self, seconds):
        self.session.run(self.arrive, {self.number: seconds})
        if self.all is not None:
            self.session.run(self.release, {self.number: self.session.run(self.all)})
        return float(self.session.run(self.released))

    def create_weights(self, shapes, rule):
        """Create weights of these shapes, and the state of `rule(weights)`."""
        with self.graph.as_default():
            self.weights = Shared(self.session, "weight", shapes)
            variables = self.weights.variables
            optimizer = rule(variables)
            # Initialized after the weights, whose values moving averages start from.
            state = [one for one in tf.compat.v1.global_variables() if all(one is not other for other in variables)]
            self.state_initializers = [one.initializer for one in state]

            def step(*gradients: object):
                optimizer.apply(gradients)
                return [weight.read_value() for weight in variables]

            self.step_result = tf.function(step, autograph=False)(*self.weights.sent)

    def initialize(self, values):
        self.weights.send(values)
        self.session.run(self.state_initializers)

    def push(self, gradients):
        """Apply gradients; return the weights after the step."""
        return self.session.run(self.step_result, dict(zip(self.weights.sent, gradients)))  # noqa: B905 - Python 3.8

    def shared(self, name, shapes):
        with self.graph.as_default():
            return Shared(self.session, name, shapes)

    def leave(self):
        # A server that has exited can't acknowledge; a session would retry for ever.
        patience = tf.compat.v1.RunOptions(timeout_in_ms=SIGN_OFF_MS)
        with contextlib.suppress(tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError):
            self.session.run(self.sign_off, {self.number: 0}, options=patience)


class ServerOptimizer:
    """Replaces the optimizer in a worker: the servers apply the rule, and return the weights."""

    def __init__(self, servers, variables, rule):
        self.servers, self.variables = servers, variables
        self.assignment = assignment([variable.shape.num_elements() for variable in variables], len(servers))
        for server, share in zip(servers, self.assignment):  # noqa: B905 - Python 3.8
            server.create_weights([variables[number].shape for number in share], rule)
        self.threads = ThreadPoolExecutor(len(servers))

    def scaled(self, loss):
        return loss

    def apply(self, gradients):
        """Do one step; call it in a replica."""
        from with_tensorflow.optimizers import put

        kinds = [tf.float32] * len(self.variables)
        for variable, value in zip(self.variables, tf.numpy_function(self.push, gradients, kinds)):  # noqa: B905
            put(variable, tf.ensure_shape(value, variable.shape))

    def push(self, *gradients: object):
        return self.on_all_servers(lambda server, share: server.push([gradients[number] for number in share]))

    def initialize(self):
        values = [variable.numpy() for variable in self.variables]
        self.on_all_servers(lambda server, share: server.initialize([values[number] for number in share]) or share)

    def pull(self):
        for variable, value in zip(self.variables, self.on_all_servers(lambda server, _: server.weights.get())):  # noqa: B905
            variable.assign(value)

    def on_all_servers(self, call):
        """Call `call` for all servers concurrently; return its results per variable, in the order of the variables."""
        by_variable = [None] * len(self.variables)
        for share, results in zip(self.assignment, self.threads.map(call, self.servers, self.assignment)):  # noqa: B905
            for number, value in zip(share, results):  # noqa: B905 - Python 3.8
                by_variable[number] = value
        return by_variable


class PushPull:
    """Adds a buffer to one at the first server and reads it back; `workloads/probe.py` describes its methods.

    The server accumulates all pushes, and a read returns an intermediate value: the sum is checked after everybody has pushed.
    """

    operation = "push_pull"

    def __init__(self, ranks, elements):
        self.ranks, self.server, self.devices, self.pushed = ranks, ranks.servers[0], ranks.world_size, 0
        self.part = part(ranks.rank, elements)
        with self.server.graph.as_default():
            self.sum = tf.Variable(tf.zeros(elements), name=f"probe{elements}", trainable=False)
            self.sent = tf.compat.v1.placeholder(tf.float32, (elements,))
            with tf.control_dependencies([self.sum.assign_add(self.sent, read_value=False)]):
                self.added = self.sum.read_value()
            self.value = self.sum.read_value()
        if ranks.rank == 0:
            self.server.session.run(self.sum.initializer)

    def fill(self):
        """Do nothing: the buffer that is sent stays unchanged."""

    def run(self):
        self.server.session.run(self.added, {self.sent: self.part})
        self.pushed += 1

    def results(self):
        self.ranks.barrier()
        return [self.server.session.run(self.value) / self.pushed]


def assignment(sizes, servers):
    """Indices of variables for each server: largest first, each to the server with least so far."""
    assigned, totals = [[] for _ in range(servers)], [0] * servers
    for number in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        emptiest = totals.index(min(totals))
        assigned[emptiest].append(number)
        totals[emptiest] += sizes[number]
    return assigned


def wait_for(address):
    """Return once something listens at ``host:port``; a session tries only once."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + CONNECT_S
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=RETRY_S).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(RETRY_S)
        else:
            return


def serve(address, workers):
    """Serve until all workers have signed off; never returns."""
    tf.config.set_visible_devices([], "GPU")
    server = tf.distribute.Server({"ps": [address]}, job_name="ps", task_index=0)
    with tf.Graph().as_default(), tf.compat.v1.Session(server.target) as session:
        queues = Queues()
        session.run(queues.ranks.enqueue_many([[[rank, workers] for rank in range(workers)]]))
        session.run(queues.sign_offs.dequeue_many(workers))
    time.sleep(LINGER_S)
    os._exit(0)  # TensorFlow's server has no shutdown


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--address", required=True, help="HOST:PORT to listen on")
    parser.add_argument("--workers", required=True, type=int, help="number of workers to serve")
    args = parser.parse_args()
    serve(args.address, args.workers)
