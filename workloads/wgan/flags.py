"""What the command line of a WGAN program has beyond every training program's, and the sizes of its networks. Standard library only."""

from arguments import at_least, refuse, training_parser

MODELS = ("wgan", "wgan-nobn")
WIDTH = 64  # channels of the layers next to the image: ngf and ndf of the authors' program
LEAK = 0.2


def widths(image_size):
    """Channels of the maps from half the image's size down to 4 pixels: 64, 128, ..."""
    return [WIDTH * 2**number for number in range((image_size // 4).bit_length() - 1)]


def parser(description):
    made = training_parser(description, models=MODELS)
    made.add_argument(
        "--image-size", required=True, type=at_least(16), help="height and width in pixels: 16, 32, 64, ..."
    )
    made.add_argument(
        "--n-critic", required=True, type=at_least(1), help="updates of the critic in one of the generator"
    )
    made.add_argument("--clip", required=True, type=float, help="largest weight of the critic after an update")
    return made


def check(args):
    """Refuse a validation, which there is none of, and what the networks can't be built for."""
    if args.epoch_iterations:
        refuse(f"--epoch-iterations={args.epoch_iterations}: a GAN has no validation set; leave it out")
    if args.image_size & (args.image_size - 1):
        refuse(f"--image-size={args.image_size}: layers double from 4 pixels on; ask for 32, 64 or 128")
    if args.precision == "fp16":
        refuse(
            "--precision=fp16 is not offered: scaled losses would be taken back after each update of the critic; ask for bf16"
        )
    if not args.clip > 0:
        refuse(f"--clip={args.clip} leaves the critic no weights; the paper has 0.01")
