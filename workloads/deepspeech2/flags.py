"""What the command line of a speech recognizer has beyond every training program's, and the sizes of its models. Standard library only."""

from arguments import refuse, training_parser

# channels of the convolutions, recurrent layers, their width, batch normalization
SIZES = {
    "deepspeech2": (32, 7, 1760, True),
    "deepspeech2-5x800": (32, 5, 800, True),
    "deepspeech2-small": (8, 2, 64, False),
}


def parser(description):
    made = training_parser(description, models=tuple(SIZES))
    made.add_argument("--momentum", required=True, type=float)
    made.add_argument("--weight-decay", required=True, type=float)
    made.add_argument("--longest", required=True, type=float, help="seconds of the longest synthetic utterance")
    made.add_argument("--clip-norm", required=True, type=float, help="largest norm of all gradients together")
    return made


def check(args):
    if args.epoch_iterations:
        refuse(f"--epoch-iterations={args.epoch_iterations}: there is no validation set of utterances; leave it out")
    if args.longest < 1:
        refuse(f"--longest={args.longest}: synthetic utterances are 1 second and more; the workload has 17")
    if not args.clip_norm > 0:
        refuse(f"--clip-norm={args.clip_norm} leaves no gradient; the paper has 400")
