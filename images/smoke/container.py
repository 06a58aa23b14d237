# ruff: noqa: INP001, S101, T201 - a script that a build runs: it prints what it finds and fails where an assertion does
"""Last step of the build on a vendor's container: the image's user finds the framework in the wanted version, and what else it brings.

    python3 smoke.py caffe|mxnet|pytorch|tensorflow VERSION PYTHON [horovod] [dali]

A build has no GPU and no driver, without which these frameworks do not load: a library that is not found may only be the driver's
own. Runs in Pythons from 3.6 on.
"""

import importlib.util
import shutil
import subprocess
import sys

framework, version, python, *brought = sys.argv[1:]
assert f"{sys.version_info.major}.{sys.version_info.minor}" == python, sys.version

if framework == "caffe":
    program = shutil.which("caffe")
    assert program, "no program `caffe` on PATH"
    linked = subprocess.check_output(["ldd", program]).decode()
    missing = {line.split()[0] for line in linked.splitlines() if line.endswith("not found")}
    assert missing <= {"libcuda.so.1", "libnvidia-ml.so.1"}, missing
    assert f"libcaffe-nv.so.{version.rpartition('.')[0]}" in linked, linked
else:
    import importlib.metadata

    # NVIDIA has called the package tensorflow, tensorflow-gpu and nvidia-tensorflow.
    called = {"pytorch": "torch"}.get(framework, framework)
    held = {
        found.metadata["Name"]: found.version
        for found in importlib.metadata.distributions()
        if called in (found.metadata["Name"] or "")
    }
    assert any(number.startswith(version) for number in held.values()), held
for name in brought:
    assert importlib.util.find_spec({"dali": "nvidia.dali"}.get(name, name)), "no " + name
print(f"{framework} {version} is there (not loaded)")
