"""`dlscale diagnose`: the same short training and probes on each node separately, in rounds, to find slow nodes; and the baselines to compare with.

Nodes are measured one at a time, so that none shares a switch, a disk or a power line with another node under load.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from runner.analysis.comparisons.nodes import Diagnosis, Figure, judge, pooled, refuse_other
from runner.cluster.hosts.by_command import CommandReach
from runner.cluster.hosts.endpoint import base_image, engine_errors
from runner.cluster.hosts.survey import Surveyed
from runner.cluster.machine import speed_probe
from runner.core.console import open_console
from runner.core.errors import RequestError, RunFailedError
from runner.core.frozen import reading
from runner.core.measurement import FEWEST_RUNS
from runner.core.node import Node
from runner.core.record import RunRecord
from runner.core.request import Request
from runner.core.trial import Trial, title
from runner.core.workload import shown_settings
from runner.engines.images import run_confined
from runner.engines.process import CommandError, become
from runner.engines.process import run as run_here
from runner.plan.choice import choose
from runner.plan.discovery import Resources, discover_own
from runner.plan.layout import Prepared
from runner.plan.plan import plan
from runner.plan.slurm import salloc
from runner.report.nodes import print_json, show
from runner.report.progress import Progress, progress
from runner.results.disk import check_writable
from runner.results.store import RESERVE_BYTES, write_report
from runner.run.bench import stamp
from runner.run.prepare import prepare
from runner.run.trial_runner import TrialRunner

SUFFIX: Final = "-diagnosis.json"
EXIT_OUT: Final = 4
"""Exit code if a node failed or is out, the same as for an invalid run."""
# A world-writable folder of the suite's base image.
_SCRATCH: Final = "/var/tmp"  # noqa: S108 - inside a container
_SPEED_NAMES: Final[Mapping[str, str]] = {"memory": "memory", "disk_write": "disk write", "disk_read": "disk read"}
_GIGA: Final = 1e9


def diagnose(request: Request, *, baseline: Path | None, command: tuple[str, ...], as_json: bool) -> int:
    """Measure every node in REPEAT rounds, print the slow ones, write the figures, and return the exit code.

    Raises RequestError before anything starts, e.g. if the baseline is of another training; RunFailedError if a run was not recorded or was stopped.
    """
    if request.repeat < FEWEST_RUNS:
        raise RequestError(
            f"REPEAT={request.repeat}: an interval requires {FEWEST_RUNS} rounds or more; ask for REPEAT=5"
        )
    expected = _read(baseline) if baseline else None
    if request.cluster:  # GPUS counts the GPUs of each node here, and those of all nodes in a job
        gpus = request.gpus and tuple(count * (request.nodes or 1) for count in request.gpus)
        become(salloc(request.model_copy(update={"gpus": gpus}), command))
    per_node = request.model_copy(update={"nodes": None})  # each trial has one
    resources = discover_own(per_node)
    with closing(resources.cluster), progress(open_console(stderr=True)) as shown:
        rounds = _Rounds(per_node, _of_nodes(resources, slice(request.nodes)), command, shown)
        found = rounds.measure(expected)
    path = write_report(resources.out, f"{rounds.name}{SUFFIX}", found.model_dump_json(indent=1) + "\n")
    verdicts = judge(found, expected)
    if as_json:
        print_json(found, verdicts)
    else:
        show(open_console(soft_wrap=True), found, verdicts, path=path)
    return EXIT_OUT if found.failed or any(one.is_slow for one in verdicts) else 0


def make_baseline(places: Sequence[Path], *, out: Path) -> None:
    """Pool diagnoses on file into one baseline. Raises RequestError if there are none, or if they are not of the same training and device."""
    files = [path for place in places for path in ([place] if place.is_file() else sorted(place.rglob(f"*{SUFFIX}")))]
    found = pooled(map(_read, files))
    write_report(out.absolute().parent, out.name, found.model_dump_json(indent=1) + "\n")
    nodes = {node for figure in found.figures for node in figure.values}
    open_console(soft_wrap=True).print(
        f"{out}: {found.what} on {found.device}, {len(nodes)} node{'s' if len(nodes) > 1 else ''}; `dlscale diagnose --baseline={out}` compares with it"
    )


def _read(path: Path) -> Diagnosis:
    with reading(path, "is no file of `dlscale diagnose`", step="name another file"):
        return Diagnosis.model_validate_json(path.read_text(encoding="utf-8"))


@dataclass
class _Rounds:
    """All rounds of one diagnosis; the name of its file is `name` and `SUFFIX`."""

    request: Request
    resources: Resources
    command: tuple[str, ...]
    shown: Progress
    name: str = field(default_factory=stamp)
    values: dict[tuple[str, str], dict[str, list[float]]] = field(default_factory=dict)  # by figure and unit, by node
    failed: dict[str, str] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)

    def measure(self, expected: Diagnosis | None) -> Diagnosis:
        """Plan for every node, then measure each node once a round; a node that has failed is skipped from then on.

        Raises RequestError if a node can't run the training, or if the baseline is of another one.
        """
        device = self._common_device_model()
        places = range(len(self.resources.cluster.members))
        chosen, _ = choose(self.request, self._node_resources(0), say=self.shown.stage)
        self.resources = replace(self.resources, image=chosen.image)
        planned = {place: self._trials(self._node_resources(place)) for place in places}
        trial, *others = (trials[0] for trials in planned.values())
        if any(other.world_size != trial.world_size for other in others):
            variable = "GPUS" if trial.device == "gpu" else "WORKERS"
            raise RequestError(
                f"the nodes have different numbers of devices; choose a number that all have with {variable}=n"
            )
        what = in_words(trial)
        if expected:
            refuse_other(expected, what=what, device=device)
        check_writable(self.resources.out, room=RESERVE_BYTES)
        prepared = prepare(self.resources, self.shown, packed_at=None, run=self.name)
        try:
            for number in range(self.request.repeat):
                for place in places:
                    self.shown.begin(number * len(places) + place + 1, self.request.repeat * len(places))
                    self._measure_once(self._node_resources(place), planned[place][number], prepared, place)
        finally:
            prepared.release()
        return Diagnosis(
            what=what,
            device=device,
            figures=tuple(
                Figure(
                    name=name,
                    unit=unit,
                    values={node: tuple(own) for node, own in by_node.items() if node not in self.failed},
                )
                for (name, unit), by_node in self.values.items()
            ),
            failed=self.failed,
            runs=tuple(self.runs),
        )

    def _common_device_model(self) -> str:
        """Return the device model that all nodes share. Raises RequestError if they differ."""
        kinds: dict[str, list[str]] = {}
        for member in self.resources.cluster.members:
            kinds.setdefault(_device_model(member.node, gpu=self.resources.device == "gpu"), []).append(
                member.node.name
            )
        if len(kinds) > 1:
            listed = "; ".join(f"{', '.join(nodes)}: {kind}" for kind, nodes in kinds.items())
            raise RequestError(
                f"only nodes of one kind are comparable, and these are of several ({listed}); list nodes of one kind"
            )
        return next(iter(kinds))

    def _node_resources(self, place: int) -> Resources:
        """Return the resources restricted to the node at index `place`."""
        return _of_nodes(self.resources, slice(place, place + 1))

    def _trials(self, resources: Resources) -> tuple[Trial, ...]:
        """Return a node's trials at its largest scale, one a round. Raises RequestError if the node can't run them."""
        trials = plan(self.request, resources)
        most = max(trial.world_size for trial in trials)
        return tuple(trial for trial in trials if trial.world_size == most)

    def _measure_once(self, resources: Resources, trial: Trial, prepared: Prepared, place: int) -> None:
        """Measure one node once, unless it has failed."""
        node = resources.node.name
        if node in self.failed:
            return
        runner = TrialRunner(self.request, resources, prepared, self.shown, self.command, stamp(), lambda _, __: None)
        ((_, record),) = runner.run_all([trial])
        if record.outcome.status == "interrupted":
            raise RunFailedError("stopped; an incomplete diagnosis is not judged, its records are kept")
        self.runs.append(record.run_id)
        if record.validity.status == "invalid":
            self.failed[node] = "; ".join(record.validity.reasons)
            return
        surveyed = self.resources.cluster.surveyed
        try:
            speeds = tuple(_memory_and_disk_speeds(surveyed[place] if surveyed else None, self.resources.out))
        except (RequestError, RunFailedError) as error:
            self.failed[node] = str(error)
            return
        for name, unit, value in (*_figures(record), *speeds):
            self.values.setdefault((name, unit), {}).setdefault(node, []).append(value)


def in_words(trial: Trial) -> str:
    """Describe a trial by all options that change its rate: a baseline with others would put every node out, or none."""
    settings = shown_settings(trial.settings, model=trial.model, mode=trial.mode)
    facts = (
        title(trial),
        f"{trial.image_size}×{trial.image_size}" if trial.image_size else None,
        *(f"{name} {value}" for name, value in settings.items()),
        f"batch {trial.batch_per_device}",
        trial.precision,
        trial.way if trial.world_size > 1 else None,
        f"data {trial.dataset.digest[:12]}" if trial.dataset else None,
    )
    return ", ".join(fact for fact in facts if fact)


def _of_nodes(resources: Resources, which: slice) -> Resources:
    """Restrict resources to a slice of their nodes."""
    cluster = resources.cluster
    some = replace(cluster, members=cluster.members[which], surveyed=cluster.surveyed[which])
    return replace(resources, cluster=some)


def _device_model(node: Node, *, gpu: bool) -> str:
    """Return the names of a node's GPUs, or its CPU model."""
    if gpu:
        return " and ".join(sorted({one.name for one in node.gpus}))
    return node.cpu_model or "unknown processor"


def _figures(record: RunRecord) -> Iterator[tuple[str, str, float]]:
    """Yield a training's figures about its node: its throughput, the GEMM rate of its CPUs, the bus bandwidth of the probe's largest exchange."""
    measured = record.measurement
    if measured.throughput:
        yield "training", measured.throughput.unit, measured.throughput.value
    if record.trial.device == "cpu" and measured.flop and measured.flop.peak_tflops:
        yield "GEMM", "TFLOP/s", measured.flop.peak_tflops
    if measured.probe:
        largest = max(measured.probe, key=lambda exchange: exchange.size_bytes)
        yield largest.operation.replace("_", "-"), "GB/s", largest.busbw_gb_s


def _memory_and_disk_speeds(surveyed: Surveyed | None, out: Path) -> Iterator[tuple[str, str, float]]:
    """Yield a node's memory and disk speeds. The disk is the engine's on a host reached by Docker, otherwise the one that holds the results."""
    source = Path(speed_probe.__file__).read_text(encoding="utf-8")
    if surveyed is None:
        try:
            output = run_here((sys.executable, "-c", source, str(out)))
        except CommandError as error:
            raise RunFailedError(f"memory and disk of this machine could not be measured: {error}") from error
    elif isinstance(surveyed.connection, CommandReach):
        output = surveyed.connection.ask(source, str(out))
    else:
        with engine_errors(surveyed.docker):
            client, argv = surveyed.docker.client, ("python3", "-c", source, _SCRATCH)
            output = run_confined(client, base_image().reference, argv, network="none", scratch=_SCRATCH)
    try:
        speeds = json.loads(output)
        for key, name in _SPEED_NAMES.items():
            yield name, "GB/s", float(speeds[key]) / _GIGA
    except (ValueError, KeyError, TypeError) as error:
        where = surveyed.host.name if surveyed else "this machine"
        raise RunFailedError(f"{where}: memory and disk could not be measured ({output.strip()[-200:]})") from error
