"""Many records on disk, derived from the committed ones: each replicate is on another day, with other names and a slightly different speed.

.venv/bin/python tests/many.py 20000 /tmp/many/20000
"""

from __future__ import annotations

import json
import os
import random
import sys
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "results" / "h200"
BESIDE = ("plan.json", "telemetry.parquet")
"""Files read along with a record; linked, because thousands of copies would not differ."""


def leave_many(folder: Path, number: int, *, of: Path = HERE) -> list[Path]:
    """Leave `number` run directories in the topics of a machine. Returns them."""
    sources = [(path, path.read_text()) for path in sorted(of.rglob("record.json"))]
    chance = random.Random(0)
    made: list[Path] = []
    for replicate in count():
        for path, text in sources:
            if len(made) == number:
                return made
            made.append(_leave(folder / path.parent.parent.relative_to(of), path, text, replicate, chance))
    raise AssertionError


def _leave(topic: Path, path: Path, text: str, replicate: int, chance: random.Random) -> Path:
    fields = json.loads(text)
    names = [fields["run_id"], fields["matrix_id"], fields["scaling"]["baseline_run_id"]]
    fields["run_id"], fields["matrix_id"], fields["scaling"]["baseline_run_id"] = (
        name and f"r{replicate:03}-{name}" for name in names
    )
    said = fields["provenance"]
    said["recorded_at"] = (datetime.fromisoformat(said["recorded_at"]) + timedelta(days=replicate)).isoformat()
    slower, measured = chance.uniform(0.97, 1.03), fields["measurement"]
    for window in measured["windows"]:
        window["seconds"] *= slower
    if measured["throughput"]:
        measured["throughput"]["value"] /= slower
    directory = topic / fields["run_id"]
    directory.mkdir(parents=True)
    (directory / "record.json").write_text(json.dumps(fields, indent=1, ensure_ascii=False))
    for name in BESIDE:
        if (path.parent / name).exists():
            try:
                os.link(path.parent / name, directory / name)
            except OSError:
                (directory / name).symlink_to(path.parent / name)
    return directory


if __name__ == "__main__":
    leave_many(Path(sys.argv[2]), int(sys.argv[1]))
