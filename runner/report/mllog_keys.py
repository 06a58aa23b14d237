"""The words of MLPerf's training log, in the one place where they are written: names as of `mlperf_logging/mllog/constants.py`.

Keys that say who submits what to which benchmark (`submission_*`) are not among them: a run of this suite is no submission, its networks
are not trained to a benchmark's target, and who makes one of it has to say so. `tracked_stats` is NVIDIA's (`mlperf-common`), for figures
that the standard does not ask for; the field reads throughput from it.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = ":::MLLOG "

# Kinds of events.
INTERVAL_START: Final = "INTERVAL_START"
INTERVAL_END: Final = "INTERVAL_END"
POINT_IN_TIME: Final = "POINT_IN_TIME"

# What happened when.
INIT_START: Final = "init_start"
INIT_STOP: Final = "init_stop"
RUN_START: Final = "run_start"
RUN_STOP: Final = "run_stop"
EPOCH_START: Final = "epoch_start"
EPOCH_STOP: Final = "epoch_stop"
EVAL_START: Final = "eval_start"
EVAL_STOP: Final = "eval_stop"

# What was run, and what came of it.
SEED: Final = "seed"
GLOBAL_BATCH_SIZE: Final = "global_batch_size"
TRAIN_SAMPLES: Final = "train_samples"
EVAL_SAMPLES: Final = "eval_samples"
OPT_BASE_LR: Final = "opt_base_learning_rate"
OPT_WEIGHT_DECAY: Final = "opt_weight_decay"
EVAL_ACCURACY: Final = "eval_accuracy"
TRACKED_STATS: Final = "tracked_stats"

# Keys of metadata, and their values.
EPOCH_NUM: Final = "epoch_num"
STATUS: Final = "status"
STEP: Final = "step"
SUCCESS: Final = "success"
ABORTED: Final = "aborted"
THROUGHPUT: Final = "throughput"
