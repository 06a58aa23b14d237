"""Generates tokens with a language model (GPT-2 or Llama 3), or reads them with BERT, in PyTorch, on one device, and reports events.

    python3 infer_pytorch.py --model=gpt-tiny --batch=8 --iterations=20 --warmup=2 --window=2 --precision=fp32 --device=cpu --devices=1 \
        --data=synthetic --sequence-length=128 --new-tokens=32 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=0
    python3 infer_pytorch.py ... --data=FILE.bin

An iteration reads a batch of prompts in one pass (prefill), then one token of each sequence at a time (decode): the most likely next token,
with the keys and values of all earlier ones cached. Throughput counts generated tokens over prefill and decode; the loop is
`workloads/inference.py`. Then each batch of 1, 2, 4, ... up to the measured one is generated separately, to time its first token and each later one.

BERT reads sequences and generates nothing: throughput counts the tokens read, and the first token's time is that of the whole batch.

Networks run as built, in evaluation mode and eager. bf16 has weights, keys, values and arithmetic in bf16; tf32 lets products
round. Times are read from the device's clock, without synchronizing between tokens: from the prompts on the host to their first tokens
on the device, then from token to token.
"""

import itertools
import math
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import inference
from events import NUMBERS_PER_LINE, finite
from flags import SIZES, check_inference, infer_parser
from process import leave, pin
from with_pytorch import device as devices

SEED_OF_CHECK = 1 << 20  # first sequence of the cache check, beyond all prompts


class Generator(inference.OneByOne):
    skipped = frozenset()
    decoded = 0

    def __init__(self, args, torch, device):
        from costs import flop_per_new_token, flop_per_read_token
        from models_torch import build
        from with_pytorch.clock import CudaClock, HostClock

        self.args, self.torch, self.device, self.size = args, torch, device, SIZES[args.model]
        self.overcommits = device.type == "cpu"
        self.clock = HostClock() if self.overcommits else CudaClock()
        self.prompt = args.sequence_length - args.new_tokens
        self.units = args.new_tokens or self.prompt  # tokens that throughput counts, per sample
        torch.manual_seed(args.seed)
        self.net = build(args, device).eval()
        self.parameters = sum(p.numel() for p in self.net.parameters())
        if self.size.encoder:
            self.flop_per_sample = flop_per_read_token(args.model, length=self.prompt)
        else:
            self.flop_per_sample = flop_per_new_token(args.model, prompt=self.prompt, new=args.new_tokens)

    def library(self, most):
        """Return (most, prompt) tokens, which have no labels."""
        from tokens import Windows, sequences

        drawn = {"length": self.prompt, "vocabulary": self.size.vocabulary}
        if self.args.data == "synthetic":
            return sequences(self.args.seed, first=0, count=most, **drawn)[:, :-1], None
        self.decoded = most
        return next(Windows(self.args.data, self.args.seed, batch=most, rank=0, ranks=1, **drawn))[:, :-1], None

    def convert(self):
        """Do nothing: weights were drawn in the requested precision."""

    def predict(self, prompts):
        """Generate (batch, new) tokens greedily after (batch, prompt) tokens."""
        try:
            return self.generate(prompts)[0]
        except self.torch.cuda.OutOfMemoryError:
            pass  # releasing the exception releases the frames that hold the allocations
        self.torch.cuda.empty_cache()
        raise inference.OutOfMemoryError

    def generate(self, prompts):
        """Return the tokens, and the clock's marks: before the prompts leave the host, and after each token."""
        torch, marks, chosen = self.torch, [self.clock.mark()], []
        with torch.inference_mode():
            unread = torch.from_numpy(prompts).to(self.device)
            if self.size.encoder:
                fields = self.net.read(unread)[:, 0]  # the first token represents the sequence
                marks.append(self.clock.mark())
                return fields.float().cpu().numpy(), marks
            cache = self.cache(len(prompts))
            for _ in range(self.args.new_tokens):
                last = self.net.read(unread, cache)[:, -1:]
                unread = self.net.output(last).argmax(-1)
                chosen.append(unread)
                marks.append(self.clock.mark())
            return torch.cat(chosen, dim=1).cpu().numpy(), marks

    def cache(self, batch):
        from models_torch import Cache

        place = {"device": self.device, "dtype": self.net.arithmetic}
        return Cache(self.size, batch=batch, length=self.args.sequence_length, **place)

    def emit_extra(self, events, samples):
        """Emit times of prompts and tokens for each batch size, and the cache's effect on the scores."""
        with events.timed("generation"):
            for batch in batch_sizes(len(samples)):
                self.predict(samples[:batch])  # frameworks choose kernels on the first batch of a length
                self.clock.start()
                inference.timed(lambda: self.emit(events, *self.generate(samples[:batch])))  # noqa: B023 - called immediately
            if not self.size.encoder:
                events.emit("cache", difference=finite(self.difference()))

    def emit(self, events, answers, marks):
        first, *steps = (round(self.clock.between(*pair), 7) for pair in itertools.pairwise(marks))
        fields = {"batch": len(answers), "prompt_tokens": self.prompt, "new_tokens": self.args.new_tokens}
        events.emit("generation", **fields, first_token_s=first, step_s=steps[:NUMBERS_PER_LINE])
        for start in range(NUMBERS_PER_LINE, len(steps), NUMBERS_PER_LINE):
            events.emit("generation", **fields, first_token_s=None, step_s=steps[start : start + NUMBERS_PER_LINE])

    def difference(self):
        """Largest difference between scores computed with the cache and scores of one pass over the sequence, relative to the largest score."""
        from tokens import sequences

        torch, length = self.torch, self.args.sequence_length
        drawn = sequences(self.args.seed, first=SEED_OF_CHECK, count=1, length=length, vocabulary=self.size.vocabulary)
        tokens = torch.from_numpy(drawn[:, :-1]).to(self.device)
        with torch.inference_mode():
            cache = self.cache(1)
            parts = [self.net.read(part, cache) for part in tokens.split([self.prompt] + [1] * self.args.new_tokens, 1)]
            kept, whole = (self.net.output(read).float() for read in (torch.cat(parts, 1), self.net.read(tokens)))
            return ((kept - whole).abs().max() / whole.abs().max()).item()

    def parameter_norm(self):
        squares = [p.detach().double().square().sum() for p in self.net.parameters()]
        return math.sqrt(self.torch.stack(squares).sum().item())

    def free_bytes(self):
        return self.torch.cuda.mem_get_info(self.device)[0]


def batch_sizes(most):
    """1, 2, 4, ... below `most`, and `most`."""
    return [*itertools.takewhile(lambda batch: batch < most, (2**power for power in itertools.count())), most]


def main():
    args = infer_parser(__doc__.splitlines()[0]).parse_args()
    args.weights = "bf16" if args.precision == "bf16" else "fp32"
    check_inference(args)
    inference.check(args)
    pin(args.cpus_per_worker)

    import torch

    devices.check(args, torch)
    imported = time.monotonic()
    device = devices.set_up(args, torch)
    environment = devices.environment(args, torch, device)
    inference.report(lambda: Generator(args, torch, device), args, environment=environment, imported=imported)


if __name__ == "__main__":
    main()
    leave()
