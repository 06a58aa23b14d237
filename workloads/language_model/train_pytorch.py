"""Trains a language model (GPT-2, Llama 3 or BERT) with PyTorch, on one device or on several, and reports events.

    python3 train_pytorch.py --model=gpt-tiny --batch=8 --iterations=40 --warmup=4 --window=4 --precision=fp32 --device=cpu --devices=1 \
        --strategy=single --data=synthetic --learning-rate=0.001 --weight-decay=0.1 --sequence-length=128 --gradient-accumulation=1 \
        --checkpointing=none --weights=fp32 --reshard=forward --tensor-parallel=1 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=0
    torchrun --standalone --nproc-per-node=2 train_pytorch.py ... --strategy=ddp     (or fsdp, tp)
    torchrun --standalone --nproc-per-node=4 train_pytorch.py ... --strategy=fsdp+tp --tensor-parallel=2
    python3 train_pytorch.py ... --data=FILE.bin
    python3 train_pytorch.py ... --profile=kernels --profile-iterations=5

A sample is a sequence; throughput counts tokens: those whose successor is predicted, or all that BERT reads. AdamW with the betas of GPT-3
and Llama (0.9, 0.95), weight decay for matrices only, a constant learning rate, no clipping, no dropout. With --precision=bf16 and
--weights=fp32, products are in bf16 (torch.autocast; FSDP's own policy) and weights, gradients and updates in fp32. fp8 computes the blocks'
products in 8 bits (`fp8.py`). With --weights=bf16 everything is in bf16: 8 bytes a parameter instead of 16, but updates smaller than a
weight's last digit are lost.

This file has the data, the network, the step and the timed window. `workloads/loop.py`, shared by all programs, runs the windows and
everything before and after them, and emits their events; `with_pytorch/training.py` has everything that is not measured.
"""

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arguments import IN_BF16
from flags import BETAS, SIZES, check, parser
from loop import Batches
from with_pytorch.training import Training, run

EVALUATED = 4  # sequences of the shared loss, at most


class DeviceBatches:
    """Batches of a source on the device, as (tokens, targets) of (batch, length) each; `units` counts this rank's tokens so far.

    `drawn` batches stay on the device and repeat; a file's are copied one by one.
    """

    skipped = frozenset()

    def __init__(self, source, *, drawn, tokens, place):
        self.source, self.tokens, self.place, self.units = source, tokens, place, 0
        self.drawn = itertools.cycle([place(rows) for rows in source.own]) if drawn else None

    def __next__(self):
        self.units += self.tokens
        return next(self.drawn) if self.drawn else self.place(next(self.source))

    @property
    def decoded(self):
        return self.source.decoded


def copy_to_device(arrays, device):
    """Copy tokens and targets to the device, from pinned memory so that the host does not wait."""
    import torch

    tensors = [torch.from_numpy(array).contiguous() for array in arrays]
    return [one.pin_memory().to(device, non_blocking=True) for one in tensors] if device.type == "cuda" else tensors


class LanguageModel(Training):
    """One rank's network and sequences."""

    offered = frozenset(
        {"fused-optimizer", "cudnn-attention", "loss-kernel", "compile", "one-message", "bf16-gradients"}
    )
    lacks = frozenset({"dp", "horovod"})
    cuts = True

    def __init__(self, args, torch, device, ranks):
        from models_torch import build

        super().__init__(args, torch, device, ranks)
        self.size = SIZES[args.model]
        if "cudnn-attention" in args.techniques:
            for other in ("flash", "mem_efficient", "math"):
                getattr(torch.backends.cuda, f"enable_{other}_sdp")(enabled=False)
        self.take(build(args, device))
        tokens = args.batch * args.sequence_length
        drawn = args.data == "synthetic"
        self.batches = Batches(DeviceBatches(self.source(), drawn=drawn, tokens=tokens, place=self.place_rows))

    def place_rows(self, rows):
        return copy_to_device(self.prepare(rows), self.device)

    def prepare(self, rows):
        from tokens import masked, with_targets

        return (
            masked(rows, seed=self.args.seed, vocabulary=self.size.vocabulary)
            if self.size.encoder
            else with_targets(rows)
        )

    def source(self):
        """Open this rank's sequences; ranks that share each layer read the same ones, a batch for each of them."""
        from tokens import Synthetic, Windows

        args, ranks_per_layer = self.args, self.ranks.ranks_per_layer
        own = {
            "batch": args.batch * ranks_per_layer,
            "rank": self.ranks.rank // ranks_per_layer,
            "ranks": self.ranks.world_size // ranks_per_layer,
        }
        own |= {"length": args.sequence_length, "vocabulary": self.size.vocabulary}
        return Synthetic(args.seed, **own) if args.data == "synthetic" else Windows(args.data, args.seed, **own)

    def window(self, iterations):
        """Enqueue the steps of a timed window. Nothing here waits for a GPU: the clock records an event at each mark."""
        marks, losses = [self.clock.mark()], []
        for _ in range(iterations):
            losses.append(self.step())
            marks.append(self.clock.mark())
        return self.clock.edge(marks, losses)

    def step(self):
        with self.regions("input"):
            tokens, targets = next(self.batches)
        with self.regions("optimizer"):
            self.optimizer.zero_grad()
        parts = self.args.gradient_accumulation
        losses = []
        for number, batch in enumerate(zip(tokens.chunk(parts), targets.chunk(parts), strict=True), start=1):
            self.ranks.accumulate(self.model, last=number == parts)  # only the last part exchanges gradients
            with self.regions("forward"), self.autocast:
                loss = self.loss(self.model, batch) / parts
            with self.regions("backward"):
                loss.backward()
            losses.append(loss.detach())
        with self.regions("optimizer"):
            self.ranks.update(self.optimizer, self.scaler)
        return sum(losses)  # stays on the device: reading it here would stall every step

    def loss(self, model, batch):
        return self.ranks.whole(model(*batch))

    def update_rule(self):
        return self.adamw(betas=BETAS)

    def shared_batch(self):
        return self.shared(self.args.batch)

    def shared_loss(self):
        """The loss of at most EVALUATED sequences: uncompiled, a network has fp32 scores of all words, which may not fit next to a training batch."""
        return self.loss_of(self.net, self.shared(min(self.args.batch, EVALUATED)))

    def shared(self, count):
        from tokens import SHARED, sequences

        args = self.args
        drawn = sequences(
            args.seed, first=SHARED, count=count, length=args.sequence_length, vocabulary=self.size.vocabulary
        )
        return self.place_rows(drawn)

    def alone(self):
        """None if sharded: without the other ranks' weights and sums, no pass is comparable to a step's."""
        return None if self.ranks.cuts else super().alone()

    def gradient_bytes(self):
        if not self.ranks.cuts:
            return super().gradient_bytes() // (2 if self.args.weights == "bf16" else 1)
        element = 2 if self.args.precision in IN_BF16 else 4
        tokens = self.args.batch * self.ranks.ranks_per_layer * self.args.sequence_length
        return self.ranks.all_reduce_bytes(self.net, tokens=tokens, element=element)

    def state_bytes(self):
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        return sum(self.ranks.own(tensor).nbytes for tensor in (*self.parameters, *kept))

    def flop_per_sample(self):
        from costs import flop_per_token

        return flop_per_token(self.args.model, length=self.args.sequence_length)

    def flop_counts(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from with_pytorch.profiler import flop_counts

        if self.ranks.cuts:
            return []  # parameters on other ranks are not leaves of this rank's graph
        batch = self.shared(1)

        def loss():
            with self.autocast, sdpa_kernel(SDPBackend.MATH):  # fused kernels also count recomputation
                return self.loss(self.net, batch)

        return flop_counts(loss, self.parameters, samples=self.args.sequence_length)


if __name__ == "__main__":
    args = parser(__doc__.splitlines()[0]).parse_args()
    check(args)
    run(LanguageModel, args)
