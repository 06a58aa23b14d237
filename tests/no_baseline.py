"""`dlscale` whose trainings on several devices run without the one on a single device before: `python no_baseline.py WORDS...`, for a run that
is to be ended from outside at a scale, however long it would last.
"""

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from runner.commands.cli import main
from runner.run import bench

bench.run = partial(bench.run, wanted=lambda trial: trial.world_size > 1)

if __name__ == "__main__":
    main()
