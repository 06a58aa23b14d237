"""Training programs run outside the package, each with its own folder on the path; so do their tests."""

import sys
from pathlib import Path

WORKLOADS = Path(__file__).resolve().parents[3] / "workloads"
sys.path[:0] = [str(WORKLOADS), str(WORKLOADS / "imagenet_cnn")]
