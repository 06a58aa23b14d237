"""An external program that writes the suite's events: ten windows of 4 iterations of 8 samples, 0.05 s each, with the standard library only."""

import json
import sys
import time

start = time.monotonic()
for index in range(10):
    time.sleep(0.05)
    window = {
        "event": "window",
        "index": index,
        "start": start + 0.05 * index,
        "iterations": 4,
        "samples": 32,
        "seconds": 0.05,
    }
    sys.stdout.write("::dlscale:: " + json.dumps({**window, "rank": 0, "t": time.monotonic()}) + "\n")
    sys.stdout.flush()
