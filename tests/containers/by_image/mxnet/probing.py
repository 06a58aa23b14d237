"""Inside the image: the probe measures right sums and changes no loss, at a parameter server and between two devices of one process.

Prevents a probe whose keys or optimizer stay in the store and train along, a sum that is none, random numbers that move.
"""

import os
import subprocess
import sys

from probed import WORKLOADS, hold, losses, of, program, ran, read

MEETING = {
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_NUM_SERVER": "1",
    "DMLC_NUM_WORKER": "2",
    "DMLC_NODE_HOST": "127.0.0.1",
    "DMLC_INTERFACE": "lo",
}
ports = iter(range(20001, 20100))


def job(kvstore, model="googlenet"):
    def train(*more):
        env = {**os.environ, **MEETING, "DMLC_PS_ROOT_PORT": str(next(ports))}
        shim = (sys.executable, str(WORKLOADS / "with_mxnet/shim.py"))
        words = ("--devices=1", "--strategy=kvstore", f"--kvstore={kvstore}", *more)
        worker = (sys.executable, *program("mxnet", model), *words)
        roles = {"scheduler": [shim], "server": [shim], "worker": [worker, worker]}
        started = [
            subprocess.Popen(argv, env={**env, "DMLC_ROLE": role}, stdout=subprocess.PIPE, text=True)
            for role, commands in roles.items()
            for argv in commands
        ]
        said = [process.communicate(timeout=300)[0] for process in started]
        assert [process.returncode for process in started] == [0] * 4
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
