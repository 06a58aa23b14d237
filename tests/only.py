"""`dlscale` that runs only some of its trainings: `python only.py WHICH WORDS...`, for tests that need only those, or end
one from outside.
"""

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from runner.commands.cli import main
from runner.run import bench

WHICH = {
    "scaled": lambda trial: trial.world_size > 1,
    "profiled": lambda trial: trial.profile is not None,
    "together": lambda trial: trial.concurrent.case == "together",
}


def run_only(which):
    bench.run = partial(bench.run, select=WHICH[which])


if __name__ == "__main__":
    run_only(sys.argv.pop(1))
    main()
