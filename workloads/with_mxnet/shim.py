"""Imports MXNet 1.9.1 where NumPy has moved on: `from with_mxnet.shim import mx`.

MXNet names `numpy.bool`, which NumPy 1.24 removed; Python 3.12 needs a newer NumPy than that.

Run as a program with ps-lite's variables and DMLC_ROLE=scheduler or server, it plays that role until the workers have ended: MXNet
does so while it is imported.
"""

import numpy as np

np.bool = bool

import mxnet as mx  # noqa: E402 - only now can it be imported

__all__ = ["mx"]
