"""Made-up rows and events of a profiling pass, for tests of its figures and of their report."""

from __future__ import annotations

import pandas as pd
from program_events import program_event

from runner.core.events import Env, ProfileStart, ProfileStop
from runner.core.events.parse import COLUMNS

GEMM, WINOGRAD, BN = "ampere_sgemm_128x64_nn", "winograd3x3Kernel", "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"


def start(rank=0, *, kind="kernels", source="torch.profiler", region=None, plain=(1.0, 1.0), steady=True):
    asked = {"kind": kind, "source": source, "region": region}
    return program_event(ProfileStart, rank=rank, iteration=20, steady=steady, plain_step_seconds=plain, **asked)


def stop(rank=0, *, steps=(1.0, 1.0)):
    return program_event(ProfileStop, rank=rank, iterations=len(steps), step_seconds=steps)


def env(device="gpu", rank=0):
    return program_event(Env, rank=rank, python="3.11", framework="pytorch", framework_version="2.13", device=device)


def table(*rows):
    """A table with every column of the contract; columns missing from a row are null."""
    return pd.DataFrame([{"rank": 0, "device": 0, **row} for row in rows], columns=list(COLUMNS["kernels"]))


def kernel(begin, end, name=GEMM, **more):
    return {"kind": "kernel", "name": name, "start": begin, "duration": end - begin, **more}


def call(begin, end, name="cudaLaunchKernel", **more):
    return {"kind": "call", "name": name, "start": begin, "duration": end - begin, "device": -1, **more}


def op(begin, end, name, **more):
    return {"kind": "op", "name": name, "start": begin, "duration": end - begin, "device": -1, **more}


def region(begin, end, name, **more):
    return {"kind": "region", "name": name, "start": begin, "duration": end - begin, "device": -1, **more}


def copy(begin, end, size, name="Memcpy HtoD (Pinned -> Device)", **more):
    return {"kind": "copy", "name": name, "start": begin, "duration": end - begin, "bytes": size, **more}
