"""Command-line arguments that topic classifiers have in addition to those of all programs. Standard library only."""

from arguments import refuse, training_parser


def parser(description):
    made = training_parser(description, models=("mlp-512-reuters",))
    made.add_argument("--num-classes", required=True, type=int, help="46, the topics of the documents")
    made.add_argument("--dropout", required=True, type=float, help="share of the hidden units that a step leaves out")
    return made


EPSILON = 1e-7  # Adam's, added to the square root: Keras' value


def check(args, *, topics):
    if args.data != "synthetic":
        refuse(f"--data={args.data}: documents are drawn, not read; ask for synthetic")
    if args.num_classes != topics:
        refuse(f"--num-classes={args.num_classes}: the documents have {topics} topics")
    if not 0 <= args.dropout < 1:
        refuse(f"--dropout={args.dropout} is no share that leaves anything; the example has 0.5")
