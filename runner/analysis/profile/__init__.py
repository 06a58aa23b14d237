"""Rows of kernels, copies, calls and operators from a profiling pass → the `Profile` of a record. Pure."""
