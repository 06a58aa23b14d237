"""Passes under a profiler: short runs of their own beside the measured ones.

    plan        measured trials → the passes that come after them
    counting    who reads hardware counters in a pass of kind `metrics`, and why
    nsight      what this machine has to read them with
    show        `dlscale profile`: finds a pass and prints it

What a pass found is worked out in `runner.profile`.
"""
