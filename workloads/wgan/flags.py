"""Command-line arguments specific to WGAN programs, and the networks' sizes. Standard library only."""

from arguments import at_least, refuse, training_parser

PENALIZED = "wgan-gp"
MODELS = ("wgan", PENALIZED, "wgan-nobn")
WIDTH = 64  # channels of the layers next to the image: ngf and ndf of the authors' program
LEAK = 0.2


def widths(image_size):
    """Channels of the maps, from half the image's size down to 4 pixels: 64, 128, ..."""
    return [WIDTH * 2**number for number in range((image_size // 4).bit_length() - 1)]


def latent_size(model):
    """Size of the vector from which the generator makes an image."""
    return 128 if model == PENALIZED else 100


def residual_widths(image_size):
    """Channels of `wgan-gp`'s maps, from the image's size down to 4 pixels, as in gan_64x64: 64, 128, 256, 512, 512."""
    return [WIDTH * min(2**number, 8) for number in range((image_size // 4).bit_length())]


def parser(description):
    argparser = training_parser(description, models=MODELS)
    argparser.add_argument(
        "--image-size", required=True, type=at_least(16), help="height and width in pixels: 16, 32, 64, ..."
    )
    argparser.add_argument(
        "--n-critic", required=True, type=at_least(1), help="updates of the critic per update of the generator"
    )
    argparser.add_argument("--clip", type=float, help="limit of the critic's weights after an update; not for wgan-gp")
    argparser.add_argument("--penalty", type=float, help="wgan-gp: weight of the gradient penalty")
    return argparser


def check(args):
    """Refuse validation, which a GAN lacks, and options that the networks do not support."""
    if args.epoch_iterations:
        refuse(f"--epoch-iterations={args.epoch_iterations}: a GAN has no validation set; leave it out")
    if args.image_size & (args.image_size - 1):
        refuse(f"--image-size={args.image_size}: layers double the size from 4 pixels; ask for 32, 64 or 128")
    if args.precision == "fp16":
        refuse(
            "--precision=fp16 is not offered: a scaler would have to undo overflowed updates of the critic; ask for bf16"
        )
    if args.model == PENALIZED and (args.clip is not None or not (args.penalty or 0) > 0):
        refuse(f"--model={PENALIZED} takes --penalty, above 0, and no --clip; its paper has 10")
    if args.model != PENALIZED and (args.penalty is not None or not (args.clip or 0) > 0):
        refuse(f"--model={args.model} takes --clip, above 0, and no --penalty; its paper has 0.01")
