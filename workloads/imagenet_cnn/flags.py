"""Command-line arguments specific to image classifiers. Standard library only."""

import argparse

from arguments import at_least, inference_parser, training_parser
from networks import MODELS


def parser(description):
    argparser = add_image_arguments(training_parser(description, models=MODELS))
    argparser.add_argument("--momentum", required=True, type=float)
    argparser.add_argument("--weight-decay", required=True, type=float)
    return argparser


def infer_parser(description):
    return add_image_arguments(inference_parser(description, models=MODELS))


def add_image_arguments(argparser):
    argparser.add_argument("--image-size", required=True, type=at_least(32), help="height and width in pixels")
    argparser.add_argument("--num-classes", required=True, type=at_least(2))
    return argparser


def bare_parser(description):
    """Build the parser of a bare loop: only the flags that a comparison needs."""
    argparser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    argparser.add_argument("--model", required=True, choices=MODELS)
    argparser.add_argument("--image-size", required=True, type=at_least(32))
    argparser.add_argument("--batch", required=True, type=at_least(1))
    argparser.add_argument("--iterations", required=True, type=at_least(1))
    argparser.add_argument("--warmup", required=True, type=at_least(1))
    argparser.add_argument("--seed", required=True, type=at_least(0))
    argparser.add_argument("--threads", required=True, type=at_least(1))
    return argparser
