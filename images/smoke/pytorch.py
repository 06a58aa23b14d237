# ruff: noqa: INP001, S101, SLF001, T201 - a script that a build runs: it prints what it finds and fails where an assertion does
"""Last step of the image's build: PyTorch is the locked version, imports as the image's user, computes, and has the code it should.

    python3 smoke.py VERSION cpu|gpu [CUDA CAPABILITY...]

A GPU build imports without a driver; the architectures that it says it was compiled for are held against versions.yaml.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import torch
from PIL import Image, features

version, device, *gpu = sys.argv[1:]
assert torch.__version__.partition("+")[0] == version, torch.__version__
assert torch.distributed.is_gloo_available(), "no Gloo"
assert features.check("jpg"), "Pillow without JPEG"
if device == "gpu":
    import triton

    cuda, *capabilities = gpu
    assert torch.version.cuda == cuda, torch.version.cuda
    assert torch.distributed.is_nccl_available(), "no NCCL"
    compiled = torch._C._cuda_getArchFlags().split()
    assert compiled == ["sm_" + capability.replace(".", "") for capability in capabilities], compiled
    # Triton compiles this when a job starts.
    nvidia = Path(triton.__file__).parent / "backends" / "nvidia"
    headers = (f"-I{nvidia / 'include'}", f"-I{sysconfig.get_path('include')}")
    subprocess.run(("gcc", "-fsyntax-only", *headers, str(nvidia / "driver.c")), check=True)
    print(f"CUDA {cuda}, NCCL {torch.cuda.nccl.version()}, {' '.join(compiled)}")
else:
    assert torch.version.cuda is None, torch.version.cuda

layer = torch.nn.Conv2d(3, 4, 3, bias=False)
torch.nn.init.ones_(layer.weight)
pixels = np.asarray(Image.new("RGB", (8, 8), (1, 1, 1)), dtype=np.float32)
loss = layer(torch.from_numpy(pixels).permute(2, 0, 1).expand(2, 3, 8, 8)).sum()
loss.backward()
# 27 ones under each of 6 x 6 positions, 4 channels, 2 images
assert loss.item() == 27 * 36 * 4 * 2, loss.item()
print(f"pytorch {torch.__version__} works")
