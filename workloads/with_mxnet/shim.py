"""Imports MXNet 1.9 with a current NumPy: `from with_mxnet.shim import mx`.

MXNet uses `numpy.bool`, which NumPy 1.24 removed; Python 3.12 needs a newer NumPy than that.

Run as a program with ps-lite's variables and DMLC_ROLE=scheduler or server, it serves in that role until the workers have exited: MXNet
does so during its import.
"""

import numpy as np

np.bool = bool

import mxnet as mx  # noqa: E402 - after the patch above

__all__ = ["mx"]
