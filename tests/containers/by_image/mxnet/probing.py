"""Inside the image: the probe measures right sums and changes no loss, at a parameter server and between two devices of one process.

Prevents a probe whose keys or optimizer stay in the store and train along, a sum that is none, random numbers that move.
"""

import subprocess
import sys

from probed import hold, losses, of, program, ran, read
from programs import parameter_server

ports = iter(range(20001, 20100))


def job(kvstore, model="googlenet"):
    def train(*more):
        words = ("--devices=1", "--strategy=kvstore", f"--kvstore={kvstore}", *more)
        worker = (sys.executable, *program("mxnet", model), *words)
        said = parameter_server(worker, port=next(ports), stdout=subprocess.PIPE)
        return [event for text in said for event in read(text)]

    return train


def on_two_devices(*more):
    return ran(*program("mxnet"), "--devices=2", "--strategy=kvstore", "--kvstore=device", *more)


hold(job("dist_sync"), processes=2, operation="push_pull")
hold(on_two_devices, processes=1, operation="push_pull")

# Who steps first is left to chance, so that only the sums, the first loss and the fall of the others can be held to anything.
asynchronous = job("dist_async", "lenet")("--probe=65536,1048576")
assert [event["wrong"] for event in of(asynchronous, "bandwidth")] == [0, 0]
first, last = losses(asynchronous)[0], min(losses(asynchronous))
assert last < first, losses(asynchronous)
