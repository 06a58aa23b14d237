"""A training step recorded as one CUDA graph and replayed: a launch in place of hundreds, each of which takes the CPU microseconds.

Everything of a training that is recorded has to live on one stream that is not the default one (PyTorch's notes on CUDA graphs): the
whole program runs on `stream`.
"""

import torch


class Captured:
    """Calls `step(*batch)`, a function that enqueues one step and gives its loss, as it is at first and recorded later."""

    def __init__(self, step, *, before):
        self.step, self.before = step, before
        self.graph, self.batch, self.loss = None, None, None

    def __call__(self, batch):
        if self.before:
            self.before -= 1
            return self.step(batch)
        if self.graph is None:
            self.record(batch)
        for own, given in zip(self.batch, batch, strict=True):
            if own is not given:
                own.copy_(given, non_blocking=True)
        self.graph.replay()
        return self.loss.clone()  # the next replay writes over it

    def record(self, batch):
        """Record a step, which does not run it; it will read the very batch that it is shown."""
        self.batch = batch
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # Other threads may go on with their own work, as the one that decodes JPEGs on the GPU does.
        with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
            self.loss = self.step(batch)

    def end(self):
        """Let go of the graph: ranks can't part while it holds what they send."""
        if self.graph is not None:
            torch.cuda.synchronize()
            self.graph.reset()


def stream():
    torch.cuda.set_stream(torch.cuda.Stream())
