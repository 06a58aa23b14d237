"""Command-line arguments that image classifiers have in addition to those of all programs. Standard library only."""

import argparse

from arguments import at_least, inference_parser, training_parser
from networks import MODELS


def parser(description):
    made = of_images(training_parser(description, models=MODELS))
    made.add_argument("--momentum", required=True, type=float)
    made.add_argument("--weight-decay", required=True, type=float)
    return made


def infer_parser(description):
    return of_images(inference_parser(description, models=MODELS))


def of_images(made):
    made.add_argument("--image-size", required=True, type=at_least(32), help="height and width in pixels")
    made.add_argument("--num-classes", required=True, type=at_least(2))
    return made


def bare_parser(description):
    """Build the parser of a bare loop: only the flags that a comparison needs."""
    made = argparse.ArgumentParser(description=description, allow_abbrev=False)
    made.add_argument("--model", required=True, choices=MODELS)
    made.add_argument("--image-size", required=True, type=at_least(32))
    made.add_argument("--batch", required=True, type=at_least(1))
    made.add_argument("--iterations", required=True, type=at_least(1))
    made.add_argument("--warmup", required=True, type=at_least(1))
    made.add_argument("--seed", required=True, type=at_least(0))
    made.add_argument("--threads", required=True, type=at_least(1))
    return made
