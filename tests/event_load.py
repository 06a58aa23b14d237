"""Measures what a large job costs the runner: its share of a core, and lost events, with committed events replayed through real pipes.

.venv/bin/python tests/event_load.py NODES RANKS SECONDS OUT

Each node is a process for its ranks and one for its sampler, like a Slurm step to the runner. They write the output of the run below at its
pace, all at the same moments: its windows and losses, and telemetry of as many devices as a node has ranks, over and over.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from runner.core.console import open_console
from runner.core.container_spec import ContainerSpec, Role
from runner.core.events.parse import PREFIX, ROWS_PREFIX
from runner.core.interrupts import Stopped
from runner.core.record import EVENTS, RunPlan
from runner.engines.boxes import Bare
from runner.engines.command import CommandEngine
from runner.engines.ways import Here
from runner.report.progress import progress
from runner.results.store import RunWriter, read_plan
from runner.run.execute import Limits, execute
from runner.run.monitors import monitoring
from runner.run.trial_runner import Watch

ROOT = Path(__file__).resolve().parents[1]
REPLAYED_RUN = ROOT / "results" / "h100" / "language" / "20261125T111228Z-52e3-pytorch-gpt2-124m-2gpu-r1"
# Writes each line of a file when it is due, on a clock shared by all such processes.
REPLAY = """
import json, sys, time
begin = float(sys.argv[2])
for line in open(sys.argv[1]):
    due, text = json.loads(line)
    time.sleep(max(0, begin + due - time.monotonic()))
    print(text, flush=True)
"""
LEAD_S = 5.0
"""Seconds for processes to start, plus 0.3 per node."""


def main(nodes: int, ranks: int, seconds: float, out: Path) -> None:
    out.mkdir(parents=True)
    begin = time.monotonic() + LEAD_S + 0.3 * nodes
    said = Counter[str]()
    specs: dict[Role, list[ContainerSpec]] = {"worker": [], "monitor": []}
    for node in range(nodes):
        for role, script in (("worker", events(node, ranks, seconds, begin)), ("monitor", telemetry(ranks, seconds))):
            said.update(kind(text) for _, text in script)
            file = out / f"{role}{node}.jsonl"
            file.write_text("".join(f"{json.dumps(line)}\n" for line in script))
            specs[role].append(spec(role, node, file, begin))
    engine = CommandEngine(Here(), Bare(Path(sys.executable), ROOT / "workloads"), version=None)
    engines = {one.node: engine for one in specs["worker"]}
    trial = read_plan(REPLAYED_RUN).trial
    writer = RunWriter(out / "run")
    writer.create(RunPlan(run_id="run", trial=trial, containers=tuple(specs["worker"]), command_lines=()))
    before, started = used(), time.monotonic()
    with progress(open_console(stderr=True)) as shown:
        watch = Watch(shown, trial)
        common = {"engines": engines, "writer": writer, "watch": watch, "stopped": Stopped()}
        with monitoring(specs["monitor"], **common, idle_s=0):
            outcome = execute(**common, specs=specs["worker"], limits=Limits(seconds + 600, 600), remote=True)
    took, share = time.monotonic() - started, used() - before
    writer.close()
    heard = Counter(json.loads(line)["event"] for line in (out / "run" / EVENTS).open())
    heard["rows"] = sum(1 for _ in (out / "run" / "telemetry.jsonl").open())
    late = sorted(event.received - event.t for event in watch.events if event.event == "window")
    sys.stdout.write(
        f"{outcome.status} {outcome.reason or ''}: {nodes} nodes of {ranks} ranks, {took:.0f} s, {sum(said.values()) / seconds:.0f} lines/s\n"
        f"CPU {share:.1f} s: {share / took:.1%} of a core; windows heard after {late[len(late) // 2]:.3f} s, at most {late[-1]:.3f} s\n"
        f"lost: {dict(said - heard)}; of {dict(said)}\n"
    )


def used() -> float:
    """CPU seconds of this process and its threads."""
    taken = resource.getrusage(resource.RUSAGE_SELF)
    return taken.ru_utime + taken.ru_stime


def spec(role: Role, node: int, script: Path, begin: float) -> ContainerSpec:
    argv = (sys.executable, f"{ROOT}/workloads/lease.py", sys.executable, "-c", REPLAY, str(script), str(begin))
    return ContainerSpec(
        name=f"{role}{node}", node=f"n{node}", role=role, image="none", argv=argv, env={}, user="0:0", labels={}
    )


def events(node: int, ranks: int, seconds: float, begin: float) -> list[tuple[float, str]]:
    """Lines of a node's ranks, each with its due time in seconds: those before the windows immediately, then the others over and over."""
    own = [event for event in map(json.loads, (REPLAYED_RUN / EVENTS).open()) if event["rank"] == 1]
    edges = [event["t"] for event in own if event["event"] == "window"]
    first, span = edges[0], edges[-1] - edges[0]
    lines = [(0.0, event) for event in own if event["t"] < first]
    steady = [event for event in own if first <= event["t"] < edges[-1]]
    lines += [
        (due, event)
        for turn in range(int(seconds // span) + 1)
        for event in steady
        if (due := turn * span + event["t"] - first) < seconds
    ]
    return [
        (
            due,
            PREFIX + json.dumps(_of_program(event, t=begin + due, rank=rank)),
        )
        for due, event in lines
        for rank in range(node * ranks, (node + 1) * ranks)
    ]


def telemetry(devices: int, seconds: float) -> list[tuple[float, str]]:
    """Lines of a sampler: each second, one GPU's and the host's rows of one second of the run, repeated for all devices."""
    rows = [
        row
        for row in pq.read_table(REPLAYED_RUN / "telemetry.parquet").to_pylist()
        if row["device"] in ("gpu0", "host")
    ]
    middle = rows[len(rows) // 2]["t"]
    second = [row for row in rows if middle <= row["t"] < middle + 1]
    gpus = [f"gpu{number}" for number in range(devices)]
    found = [row | {"device": name} for row in second for name in (gpus if row["device"] == "gpu0" else ["host"])]
    columns = {name: [row[name] for row in found] for name in found[0] if name not in ("node", "rank")}
    shown = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    text = ROWS_PREFIX + json.dumps({"table": "telemetry", "rank": 0, "columns": shown})
    starts = (event for event in map(json.loads, (REPLAYED_RUN / EVENTS).open()) if event["event"] == "monitor_start")
    start = PREFIX + json.dumps(_of_program(next(starts)))
    return [(-LEAD_S, start), *((float(due), text) for due in range(int(seconds)))]


def _of_program(event: dict[str, Any], **changes: float) -> dict[str, Any]:
    """An event without the fields that the runner adds."""
    return {key: event[key] for key in event if key not in ("container", "received")} | changes


def kind(text: str) -> str:
    return "rows" if text.startswith(ROWS_PREFIX) else str(json.loads(text.removeprefix(PREFIX))["event"])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
