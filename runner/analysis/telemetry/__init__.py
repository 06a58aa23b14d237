"""What devices and hosts did while a run was measured: from the samples of each node's sampler to figures, and doubts about them.

    model       the figures of a record
    spans       when they were measured, on each node's clock
    series      one quantity over time → its figures over a span
    stretches   one figure over a span with pauses in it
    device      the samples of one device, and what is missing with its reason
    gpu, host   the figures of one
    summary     all of a run
    pool        those of several runs together
    doubts      what they say against the run

Values in, values out. What can't be had stays away and is named with its reason; nothing is guessed over a hole in the samples.
"""
