"""Parses `:::MLLOG` lines by MLPerf's own rules, without using the suite's code that wrote them.

Keys and kinds of events are those of `mlperf_logging/mllog/constants.py`; the order is the one required by
`compliance_checker/training_*/common.yaml` of the same repository; `tracked_stats` and its metadata keys are NVIDIA's.
"""

import json

FIELDS = ["namespace", "time_ms", "event_type", "key", "value", "metadata"]
INTERVALS = {
    f"{name}_{edge}": (name, kind)
    for name in ("init", "run", "epoch", "eval")
    for edge, kind in (("start", "INTERVAL_START"), ("stop", "INTERVAL_END"))
}
POINTS = {
    *("seed", "global_batch_size", "train_samples", "eval_samples", "opt_base_learning_rate", "opt_weight_decay"),
    *("eval_accuracy", "tracked_stats"),
}
ONCE = {
    "init_start",
    "init_stop",
    "run_start",
    "run_stop",
    "seed",
    "global_batch_size",
    "train_samples",
    "eval_samples",
}


def read(text):
    """Parse every line into its object; fails on a line that breaks the rules."""
    lines = []
    for line in text.splitlines():
        assert line.startswith(":::MLLOG {"), line
        lines.append(json.loads(line[len(":::MLLOG ") :], parse_constant=refuse))
    for line in lines:
        assert list(line) == FIELDS
        assert isinstance(line["time_ms"], int)
        assert isinstance(line["metadata"], dict)
        assert isinstance(line["namespace"], str)
        kind = INTERVALS[line["key"]][1] if line["key"] in INTERVALS else "POINT_IN_TIME"
        assert line["key"] in INTERVALS or line["key"] in POINTS, line
        assert line["event_type"] == kind, line
    assert [line["time_ms"] for line in lines] == sorted(line["time_ms"] for line in lines)
    keys = [line["key"] for line in lines]
    assert not [key for key in ONCE if keys.count(key) > 1]
    check_intervals(lines)
    return lines


def refuse(word):
    raise AssertionError(f"{word} is no JSON")


def check_intervals(lines):
    """Check that intervals start before they end, do not overlap, and nest: epochs and validations within the run, the run after init."""
    going = {}
    ended = set()
    for line in lines:
        name, _ = INTERVALS.get(line["key"], (None, None))
        number = line["metadata"].get("epoch_num")
        if line["event_type"] == "INTERVAL_START":
            assert name not in going, line
            going[name] = number
        elif line["event_type"] == "INTERVAL_END":
            assert going.pop(name) == number, line
            ended.add(name)
        if name == "run":
            assert "init" in ended
        if name in {"epoch", "eval"} or line["key"] in {"eval_accuracy", "tracked_stats"}:
            assert "run" in going, line
        if name in {"epoch", "eval"} or line["key"] == "eval_accuracy":
            assert number >= 1, line
    assert not going
    (stop,) = (line for line in lines if line["key"] == "run_stop")
    assert stop["metadata"]["status"] in {"success", "aborted"}
