"""Command-line arguments specific to language models, and the models' sizes. Standard library only."""

import math
from dataclasses import dataclass

from arguments import IN_BF16, at_least, inference_parser, refuse, training_parser


@dataclass(frozen=True)
class Size:
    """A decoder-only transformer: GPT-2's block, or with `kv_heads` Llama 3's; or an `encoder`, BERT."""

    layers: int
    width: int
    heads: int
    hidden: int  # features in a block's MLP
    vocabulary: int
    longest: int  # tokens of the longest sequence
    kv_heads: int = 0  # heads of keys and values, each shared by several query heads; 0: GPT-2
    tied: bool = True  # whether the output layer is the embedding
    encoder: bool = False  # whether tokens also attend to later ones

    @property
    def llama(self):
        return self.kv_heads > 0


# GPT-2's vocabulary of 50,257 is padded to a multiple of 128, as in nanoGPT: tensor cores need rows of whole 16 bytes.
SIZES = {
    "bert-base": Size(12, 768, 12, 3072, 30_522, 512, encoder=True),
    "bert-tiny": Size(2, 64, 4, 256, 512, 256, encoder=True),
    "gpt2-124m": Size(12, 768, 12, 3072, 50_304, 1024),
    "gpt2-350m": Size(24, 1024, 16, 4096, 50_304, 1024),
    "gpt2-1.5b": Size(48, 1600, 25, 6400, 50_304, 1024),
    "gpt-tiny": Size(2, 64, 4, 256, 512, 256),
    "llama-1b": Size(16, 2048, 32, 8192, 128_256, 131_072, kv_heads=8),
    "llama-8b": Size(32, 4096, 32, 14_336, 128_256, 131_072, kv_heads=8, tied=False),
    "llama-tiny": Size(2, 64, 4, 192, 512, 4096, kv_heads=2),
}
FP8_MULTIPLE = 16  # cuBLAS needs the summed dimension of an 8-bit product to be a multiple of this
PRECISIONS = ("fp32", "tf32", "bf16", "fp8")  # not fp16: nobody trains these models with loss scaling today
BETAS = (0.9, 0.95)  # AdamW's
BERT_EPSILON = 1e-12
STANDARD_DEVIATION = 0.02  # of all initial weights, except those that end a residual branch


def residual_deviation(size):
    """Initial standard deviation of weights that end a residual branch: divided by the square root of the number of branches."""
    return STANDARD_DEVIATION / math.sqrt(2 * size.layers)


def parser(description):
    argparser = training_parser(description, models=tuple(SIZES), precisions=PRECISIONS)
    argparser.add_argument("--weight-decay", required=True, type=float, help="of matrices; biases and gains have none")
    argparser.add_argument("--sequence-length", required=True, type=at_least(2), help="tokens of a sample")
    argparser.add_argument(
        "--gradient-accumulation", required=True, type=at_least(1), help="sequential parts of a batch"
    )
    argparser.add_argument(
        "--checkpointing", required=True, choices=("none", "block"), help="what the backward pass recomputes"
    )
    argparser.add_argument(
        "--weights", required=True, choices=("fp32", "bf16"), help="precision of weights and their updates"
    )
    argparser.add_argument(
        "--reshard", required=True, choices=("forward", "step"), help="fsdp: when to release other ranks' weights"
    )
    argparser.add_argument(
        "--tensor-parallel", required=True, type=at_least(1), help="fsdp+tp: ranks that share each layer"
    )
    return argparser


def infer_parser(description):
    argparser = inference_parser(description, models=tuple(SIZES))
    argparser.add_argument(
        "--sequence-length", required=True, type=at_least(2), help="tokens of a prompt and its continuation"
    )
    argparser.add_argument("--new-tokens", required=True, type=at_least(0), help="of which generated; 0 for an encoder")
    argparser.set_defaults(checkpointing="none", techniques=())
    return argparser


def check_inference(args):
    """Refuse options that inference of language models, or of this one, does not support."""
    longest = SIZES[args.model].longest
    if SIZES[args.model].encoder != (args.new_tokens == 0):
        refuse(f"--new-tokens={args.new_tokens}: an encoder generates none, a decoder one or more")
    if not args.new_tokens < args.sequence_length <= longest:
        refuse(
            f"--sequence-length={args.sequence_length} --new-tokens={args.new_tokens}: a sequence must be longer than its new "
            f"tokens, and {args.model} reads at most {longest}"
        )
    if args.precision in {"fp16", "int8"}:
        refuse(f"--precision={args.precision} is not offered for language models; ask for fp32, tf32 or bf16")
    if args.fit:
        refuse(f"--fit={args.fit}: generated tokens have no accuracy; leave it out")


def check(args):
    """Refuse options that training of language models, or of this one, does not support."""
    size = SIZES[args.model]
    if args.epoch_iterations:
        refuse(f"--epoch-iterations={args.epoch_iterations}: there is no validation set of tokens; leave it out")
    if args.sequence_length > size.longest:
        refuse(f"--sequence-length={args.sequence_length}: {args.model} reads at most {size.longest} tokens")
    if args.batch % args.gradient_accumulation:
        refuse(f"--gradient-accumulation={args.gradient_accumulation} does not divide --batch={args.batch}")
    if args.weights == "bf16" and args.precision not in IN_BF16:
        refuse(f"--weights=bf16 computes in bf16; ask for --precision=bf16 or fp8, not {args.precision}")
    if args.precision == "fp8" and args.batch // args.gradient_accumulation * args.sequence_length % FP8_MULTIPLE:
        refuse(
            f"--precision=fp8 multiplies blocks of {FP8_MULTIPLE} tokens; ask for a --batch whose number of tokens is a multiple"
        )
