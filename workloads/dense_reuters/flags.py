"""Command-line arguments specific to topic classifiers. Standard library only."""

from arguments import refuse, training_parser


def parser(description):
    argparser = training_parser(description, models=("mlp-512-reuters",))
    argparser.add_argument("--num-classes", required=True, type=int, help="46, the number of topics")
    argparser.add_argument("--dropout", required=True, type=float, help="share of hidden units dropped in a step")
    return argparser


EPSILON = 1e-7  # Adam's, added to the square root: Keras' value


def check(args, *, topics):
    if args.data != "synthetic":
        refuse(f"--data={args.data}: documents are generated, not read; ask for synthetic")
    if args.num_classes != topics:
        refuse(f"--num-classes={args.num_classes}: the documents have {topics} topics")
    if not 0 <= args.dropout < 1:
        refuse(f"--dropout={args.dropout} is not at least 0 and below 1; the example has 0.5")
