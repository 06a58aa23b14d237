"""Command-line arguments specific to speech recognizers, and model sizes. Standard library and `speech` only."""

from collections import namedtuple

from arguments import refuse, training_parser
from speech import FREQUENCIES

# Channels of the convolutions, recurrent layers per direction, their width, whether batch normalization is between them, and whether the
# network is the TBD suite's: a separate stack per direction, joined at the end; no padding along the frequencies; pairs of letters.
Size = namedtuple("Size", ("channels", "depth", "width", "normalize", "suite"))  # noqa: PYI024 - no types in workloads
SIZES = {
    name: Size(channels, depth, width, "normalized" in how, "suite" in how)
    for name, channels, depth, width, how in (
        ("deepspeech2", 32, 7, 1760, ("normalized",)),
        ("deepspeech2-5x800", 32, 5, 800, ("normalized",)),
        ("deepspeech2-small", 8, 2, 64, ()),
        ("deepspeech2-tbd", 32, 7, 1760, ("normalized", "suite")),
        ("deepspeech2-tbd-small", 8, 2, 64, ("suite",)),
    )
}


def geometry(channels, *, suite):
    """((input channels, kernel, stride, padding) of each convolution, over frequencies and frames; number of frequencies after each)."""
    beside = (0, 0) if suite else (20, 10)
    shapes = ((1, (41, 11), (2, 2), (beside[0], 5)), (channels, (21, 11), (2, 1), (beside[1], 5)))
    heights = []
    for _, kernel, stride, padding in shapes:
        read = heights[-1] if heights else FREQUENCIES
        heights.append((read + 2 * padding[0] - kernel[0]) // stride[0] + 1)
    return shapes, heights


def parser(description):
    argparser = training_parser(description, models=tuple(SIZES))
    argparser.add_argument("--momentum", required=True, type=float)
    argparser.add_argument("--weight-decay", required=True, type=float)
    argparser.add_argument("--longest", required=True, type=float, help="seconds of the longest synthetic utterance")
    argparser.add_argument("--clip-norm", required=True, type=float, help="limit of the norm of all gradients")
    return argparser


def check(args):
    if args.epoch_iterations:
        refuse(f"--epoch-iterations={args.epoch_iterations}: there is no validation set of utterances; leave it out")
    if args.longest < 1:
        refuse(f"--longest={args.longest}: synthetic utterances have at least 1 second; the workload has 17")
    if not args.clip_norm > 0:
        refuse(f"--clip-norm={args.clip_norm} leaves no gradient; the paper has 400")
