"""A training step captured as one CUDA graph and replayed: one launch in place of hundreds, each of which costs the CPU microseconds.

The captured part of a training must run on a single non-default stream (PyTorch's notes on CUDA graphs): the
whole program runs on `stream`.
"""

import torch


class Captured:
    """Calls `step(batch)`, which enqueues one step and returns its loss: eagerly `eager_steps` times, then as a captured graph."""

    def __init__(self, step, *, eager_steps):
        self.step, self.eager_steps = step, eager_steps
        self.graph, self.batch, self.loss = None, None, None

    def __call__(self, batch):
        if self.eager_steps:
            self.eager_steps -= 1
            return self.step(batch)
        if self.graph is None:
            self.record(batch)
        for static, new in zip(self.batch, batch, strict=True):
            if static is not new:
                static.copy_(new, non_blocking=True)
        self.graph.replay()
        return self.loss.clone()  # the next replay overwrites it

    def record(self, batch):
        """Capture a step without running it; replays read their input from the tensors of `batch`."""
        self.batch = batch
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # Other threads may continue to launch work, as the one that decodes JPEGs on the GPU does.
        with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
            self.loss = self.step(batch)

    def end(self):
        """Release the graph: ranks can't shut down NCCL while it holds its operations."""
        if self.graph is not None:
            torch.cuda.synchronize()
            self.graph.reset()


def stream():
    torch.cuda.set_stream(torch.cuda.Stream())
