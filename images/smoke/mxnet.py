# ruff: noqa: INP001, S101, T201 - a script that a build runs: it prints what it finds and fails where an assertion does
"""Last step of the image's build: MXNet is the locked version, imports as the image's user, and computes.

    python3 smoke.py VERSION cpu|gpu

A GPU build imports only where there is a driver. Without one, every library that it is linked against must be there but the
driver's own, libcuda.
"""

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

version, device = sys.argv[1:]
library = Path(importlib.util.find_spec("mxnet").submodule_search_locations[0]) / "libmxnet.so"
linked = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=True).stdout
missing = {line.split()[0] for line in linked.splitlines() if line.endswith("not found")}
print(f"{library}: {len(linked.splitlines())} libraries, not found: {sorted(missing) or 'none'}")

if device == "gpu" and missing:
    assert missing == {"libcuda.so.1"}, missing
    installed, state = importlib.metadata.version("mxnet-cu112"), "lacks nothing but the driver (not imported)"
else:
    assert not missing, missing
    import mxnet
    from mxnet import autograd, gluon, nd

    installed, state = mxnet.__version__, "works"
    assert mxnet.runtime.Features().is_enabled("DIST_KVSTORE"), "no distributed key-value store"
    layer = gluon.nn.Conv2D(channels=4, kernel_size=3, in_channels=3)
    layer.initialize(mxnet.init.One())
    with autograd.record():
        loss = layer(nd.ones((2, 3, 8, 8))).sum()
    loss.backward()
    # 27 ones under each of 6 x 6 positions, 4 channels, 2 images
    assert loss.asscalar() == 27 * 36 * 4 * 2, loss.asscalar()
assert installed == version, installed
print(f"mxnet {installed} {state}")
