"""What a pass under a profiler found: rows of kernels, copies, calls and operators in, the `Profile` of a record out. Pure."""
