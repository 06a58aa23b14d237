"""Prevents a node that `diagnose` forgets, measures under another's name, or leaves something on.

tests/unit/analysis/test_nodes.py tests on values that a slow node is found: the speed of these hosts depends on the machine's other load.
"""

import json

from commands import call

from runner.core.container_spec import LABEL_RUN
from runner.results.store import read_record


def test_every_host_is_measured_separately_and_left_clean(rig, engine, tmp_path):
    small = (
        "--framework=mxnet",
        "--model=lenet",
        "--workers=1",
        "--batch=4",
        "--iterations=8",
        "--warmup=1",
        "--repeat=3",
    )
    done = call("diagnose", f"--hosts={rig.hosts(2)}", *small, "--threads=1", "--json", out=tmp_path)
    assert done.code in (0, 4), done.stderr
    told = json.loads(done.stdout)
    assert (done.code == 4) == bool(told["out"])
    assert not told["failed"]
    names = [node.name for node in rig.nodes[:2]]
    for figure in ("training", "GEMM", "memory", "disk write", "disk read"):
        assert sorted(one["node"] for one in told["verdicts"] if one["figure"] == figure) == sorted(names)
    records = [read_record(path.parent) for path in sorted(tmp_path.glob("*/record.json"))]
    assert [record.trial.placement[0].node for record in records] == names * 3
    (kept,) = tmp_path.glob("*-diagnosis.json")
    assert {len(own) for one in json.loads(kept.read_text())["figures"] for own in one["values"].values()} == {3}
    pooled = call("baseline", tmp_path, out=tmp_path / "expected.json")
    assert pooled.code == 0, pooled.stderr
    assert "2 nodes" in pooled.stdout
    for node in rig.nodes[:2]:
        client = engine(node)
        assert not client.containers.list(all=True, filters={"label": LABEL_RUN})
        assert not client.volumes.list()
