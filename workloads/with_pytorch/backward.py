"""When each gradient of a network is ready: times a backward pass without any exchange."""

import torch

TIMED = 3  # passes on a GPU; one on a CPU, where a pass is long
MAX_GROUPS = 60  # groups of gradients to report; a group is ready when its last gradient is


def timed(training):
    """``{forward_s, backward_s, gradients}`` of the pass with the median backward time; gradients are ``[bytes, seconds]`` in order.

    Seconds count from the start of the backward pass; bytes are those that a step exchanges.
    """
    loss = training.loss_of(training.computed, training.shared_batch())
    scale = training.gradient_bytes() / training.parameter_count()
    passes = sorted((time_pass(training, loss) for _ in range(TIMED if training.on_gpu else 1)), key=lambda one: one[1])
    forward_s, backward_s, ready = passes[len(passes) // 2]
    ready.sort(key=lambda gradient: gradient[1])
    length = -(-len(ready) // MAX_GROUPS)
    groups = [ready[first : first + length] for first in range(0, len(ready), length)]
    gradients = [[int(scale * sum(size for size, _ in group)), group[-1][1]] for group in groups]
    return {"forward_s": forward_s, "backward_s": backward_s, "gradients": gradients}


def time_pass(training, loss):
    """Run one pass: seconds of its forward and backward part, and ``(elements, seconds since the backward part began)`` of each gradient."""
    clock, marks = training.clock, []

    def mark_ready(elements):
        return lambda _: marks.append((elements, clock.mark()))

    hooks = [parameter.register_hook(mark_ready(parameter.numel())) for parameter in training.parameters]
    training.synchronize()
    forward_began = clock.mark()
    value = loss()
    forward_ended = clock.mark()
    torch.autograd.grad(value, training.parameters)
    backward_ended = clock.mark()
    training.synchronize()
    for hook in hooks:
        hook.remove()
    return (
        clock.between(forward_began, forward_ended),
        clock.between(forward_ended, backward_ended),
        [(n, clock.between(forward_ended, at)) for n, at in marks],
    )
