"""Inside the image: the probe measures correct sums and changes no loss, with a parameter server and between two devices of one process.

Prevents a probe whose keys or optimizer stay in the store and take part in the training, a wrong sum, random numbers that shift.
"""

import subprocess
import sys

from probed import check, program, read, run_for_events
from programs import parameter_server

ports = iter((20001, 20002))


def on_two_workers(*more):
    worker = (sys.executable, *program("mxnet"), "--devices=1", "--strategy=kvstore", "--kvstore=dist_sync", *more)
    said = parameter_server(worker, port=next(ports), stdout=subprocess.PIPE)
    return [event for text in said for event in read(text)]


def on_two_devices(*more):
    return run_for_events(*program("mxnet"), "--devices=2", "--strategy=kvstore", "--kvstore=device", *more)


check(on_two_workers, processes=2, operation="push_pull")
check(on_two_devices, processes=1, operation="push_pull")
