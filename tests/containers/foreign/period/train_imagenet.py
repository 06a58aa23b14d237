"""A stand-in for example/image-classification/train_imagenet.py of MXNet 0.7: accepts its flags, trains nothing, and writes a log like its own.

The lines are formatted as in a log of MXNet 0.7 (tests/golden/dialects/mxnet-0.7-node.log): one per metric, every 50 batches.
"""

import argparse
import logging
import os

FREQUENT = 50
SPEEDS = (78.21, 78.07, 77.89, 78.4, 78.11, 77.95)

parser = argparse.ArgumentParser()
for flag in ("--network", "--data-dir", "--gpus"):
    parser.add_argument(flag)
for flag in ("--batch-size", "--data-shape", "--num-epochs"):
    parser.add_argument(flag, type=int, required=True)
args = parser.parse_args()
assert os.path.isdir(args.data_dir), args.data_dir  # noqa: PTH112 - as old as the program
logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger()
log.info("2016-08-19 13:00:00,000 Node[0] Start training with [cpu(0)] on %s", args.data_dir)
for number, speed in enumerate(SPEEDS, start=1):
    for metric in ("accuracy=0.001719", "top_k_accuracy_5=0.010156"):
        line = "2016-08-19 13:07:42,013 Node[0] Epoch[0] Batch [%d]\tSpeed: %.2f samples/sec\tTrain-%s"
        log.info(line, FREQUENT * number, speed, metric)
