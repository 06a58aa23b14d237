"""Runs on Kubernetes: writes a plan for kubectl to execute, and makes records from the pods' logs. The runner takes no part in the runs.

A plan's folder holds `programs.yaml`, `run.sh` and a run directory for each trial. `run.sh` saves in each run directory the cluster's status
of the pods (`pods.json`, `job.json`) and their logs (`pods/POD.CONTAINER.log`, with the kubelet's times), and next to these `nodes.json`.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from runner.cluster.hosts.supply import programs
from runner.cluster.hosts.survey import parse_time
from runner.cluster.machine import provenance
from runner.core.console import notify, open_console
from runner.core.container_spec import ContainerSpec
from runner.core.errors import RequestError
from runner.core.events import Env, Event
from runner.core.frozen import FileName, Frozen, reading
from runner.core.provenance import SUITE_ROOT, Host, NodeUsed, Provenance
from runner.core.record import EVENTS, EngineDetails, ImageUsed, Outcome, RunPlan, RunRecord, Status
from runner.core.request import Request
from runner.core.trial import Trial
from runner.core.workload import load_workloads
from runner.engines.base import Line
from runner.images.spec import ImageSpec
from runner.plan import kubernetes
from runner.plan.choice import choose
from runner.plan.discovery import WORKLOADS, discover_own
from runner.results.disk import check_writable, writing
from runner.results.find import Run
from runner.results.store import PLAN, RECORD, RunWriter, baseline_for, read_plan, read_record, write_report
from runner.run.bench import exit_code, stamp
from runner.run.container_group import TAIL_LINES, ContainerGroup, Stop
from runner.run.execute import Output
from runner.run.grading import RunFiles, record_of
from runner.run.trial_runner import readers, run_name, with_length

PLANNED: Final = "planned.json"
MANIFEST: Final = "kubernetes.yaml"
_UNKNOWN: Final = "unknown"
_Value = TypeVar("_Value", bound=BaseModel)


class Planned(Frozen):
    """Parts of a record that are known when its run is planned and are in neither the trial nor the pods."""

    matrix_id: FileName
    kind: kubernetes.Kind
    image: ImageUsed
    provenance: Provenance


def write_plan(request: Request, *, kind: kubernetes.Kind, registry: str | None, command: tuple[str, ...]) -> int:
    """Write a folder that runs a request on Kubernetes, and print its path; starts nothing. Raises RequestError if pods cannot run that."""
    kubernetes.refuse(request)
    resources = kubernetes.as_pods(discover_own(request, contact=False))
    resources, trials = choose(request, resources, say=lambda text: notify([text]))
    name = stamp()
    out = request.out or SUITE_ROOT / "results" / "kubernetes" / name
    found = kubernetes.Programs(
        {
            path: file.content.decode()
            for path, file in programs(WORKLOADS).items()
            if "/" not in path or path.startswith((f"{resources.workload.name}/", f"with_{resources.image.framework}/"))
        }
    )
    image = resources.image
    planned = Planned(
        matrix_id=name,
        kind=kind,
        image=ImageUsed(
            reference=image.reference,
            id=None,
            digest=None,
            lock_sha256=image.lock_sha256 if isinstance(image, ImageSpec) else None,
        ),
        provenance=provenance.collect(
            node=resources.node.model_copy(update={"gpus": (), "driver": None}),
            command=command,
            host=_host(None, {}, threads=len(resources.node.cores)),
        ),
    )
    runs: list[tuple[RunPlan, str]] = []
    for one in trials:
        run_id = run_name(name, one)
        layout = kubernetes.lay_out(one, resources, run_id=run_id, kind=kind, registry=registry)
        manifest = kubernetes.manifest(run_id, layout, kind=kind, programs=found, deadline_s=request.timeout_s)
        commands = (f"kubectl create -f {MANIFEST}",)
        runs.append(
            (RunPlan(run_id=run_id, trial=layout.trial, containers=layout.containers, command_lines=commands), manifest)
        )
    check_writable(out)
    for plan, manifest in runs:
        with writing(out):
            (out / plan.run_id).mkdir(parents=True)
        for file, text in (
            (PLAN, plan.model_dump_json(indent=1) + "\n"),
            (PLANNED, planned.model_dump_json(indent=1) + "\n"),
            (MANIFEST, manifest),
        ):
            write_report(out / plan.run_id, file, text)
    write_report(out, "programs.yaml", found.manifest())
    write_report(out, "run.sh", kubernetes.script([(plan.run_id, plan.containers) for plan, _ in runs], kind))
    (out / "run.sh").chmod(0o755)
    open_console(soft_wrap=True).print(
        f"{len(runs)} runs are planned in {out}; run `sh {out}/run.sh` where kubectl reaches the cluster, then `dlscale collect {out}`"
    )
    return 0


class _KubernetesObject(BaseModel):
    """A Kubernetes object; only the fields declared in subclasses are read."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel)


class _Terminated(_KubernetesObject):
    exit_code: int
    reason: str | None = None
    started_at: str
    finished_at: str


class _State(_KubernetesObject):
    terminated: _Terminated | None = None


class _ContainerStatus(_KubernetesObject):
    name: str
    image_id: str = Field("", alias="imageID")
    state: _State


class _PodStatus(_KubernetesObject):
    container_statuses: tuple[_ContainerStatus, ...] = ()


class _Meta(_KubernetesObject):
    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}

    @property
    def index(self) -> int:
        """The completion index of a pod, which older clusters keep only as an annotation, or its replica index in an MPIJob."""
        labels = {**self.annotations, **self.labels}
        names = ("batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index")
        return int(next((labels[name] for name in names if name in labels), 0))


class _PodSpec(_KubernetesObject):
    node_name: str | None = None


class _Pod(_KubernetesObject):
    metadata: _Meta
    spec: _PodSpec
    status: _PodStatus


class _Condition(_KubernetesObject):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None


class _JobStatus(_KubernetesObject):
    conditions: tuple[_Condition, ...] = ()


class _Job(_KubernetesObject):
    status: _JobStatus


class _NodeInfo(_KubernetesObject):
    kernel_version: str
    architecture: str
    os_image: str
    boot_id: str | None = Field(None, alias="bootID")
    container_runtime_version: str


class _NodeStatus(_KubernetesObject):
    node_info: _NodeInfo
    capacity: Mapping[str, str] = {}


class _Node(_KubernetesObject):
    metadata: _Meta
    status: _NodeStatus


class _Pods(_KubernetesObject):
    items: tuple[_Pod, ...]


class _Nodes(_KubernetesObject):
    items: tuple[_Node, ...]


@dataclass(frozen=True)
class _Container:
    """A container of a plan, the pod that ran it and the container's status in the cluster; both are None if the cluster lacks them."""

    spec: ContainerSpec
    pod: _Pod | None
    status: _ContainerStatus | None
    log: Path | None

    @property
    def ended(self) -> _Terminated | None:
        """How the container exited; None if it has not, or that is unknown."""
        return self.status.state.terminated if self.status else None


def collect(directory: Path) -> int:
    """Make the records of a plan's runs from their pods' logs, print their figures, and return the exit code: `bench`'s, or 2 if a run was skipped.

    A run that has a record keeps it; one that has not run or has unreadable files is reported and skipped. Raises RequestError without plans.
    """
    found = sorted(path.parent for path in (*directory.glob(PLANNED), *directory.glob(f"*/{PLANNED}")))
    if not found:
        raise RequestError(
            f"{directory} holds no {PLANNED}, so nothing was planned there; name the folder that `dlscale plan --format=k8s` wrote"
        )
    plans = sorted(((run, read_plan(run)) for run in found), key=lambda one: (one[1].trial.world_size, one[1].run_id))
    made: list[Run] = []
    kept: list[Run] = []
    refused: list[str] = []
    for run, plan in plans:
        if (run / RECORD).is_file():
            notify([f"{run} already has a record; `dlscale regrade {run}` recomputes it"])
            kept.append((run, read_record(run)))
        elif not (run / "pods.json").is_file():
            refused.append(f"{run} has no pods.json, so it has not run; {run.parent / 'run.sh'} runs it")
        else:
            try:
                made.append((run, _record(run, plan, [*kept, *made])))
            except RequestError as error:
                refused.append(str(error))
    notify(refused)
    if made:
        from runner.report.publish import publish  # noqa: PLC0415 - matplotlib takes a second to load

        publish(made, out=made[0][0].parent, name=made[0][1].matrix_id, console=open_console(soft_wrap=True))
    return RequestError.exit_code if refused else exit_code([record for _, record in made])


def _read(path: Path, kind: type[_Value]) -> _Value:
    """Read a file of the plan or of kubectl. Raises RequestError if it is missing or is something else."""
    with reading(path, "is not what `plan` or `kubectl get -o json` wrote", step="save it again"):
        if not path.exists():
            raise RequestError(f"{path} is missing; the plan's `run.sh` saves it with `kubectl get -o json`")
        return kind.model_validate_json(path.read_text(encoding="utf-8"))


def _record(run: Path, plan: RunPlan, before: Sequence[Run]) -> RunRecord:
    """Make the record of one run and write it next to its raw files."""
    planned = _read(run / PLANNED, Planned)
    containers = _containers(run, plan, planned.kind)
    machines = run.parent / "nodes.json"
    nodes = {node.metadata.name: node for node in _read(machines, _Nodes).items} if machines.is_file() else {}
    for old in (EVENTS, "kernels.jsonl"):  # of an interrupted collection
        (run / old).unlink(missing_ok=True)
    shutil.rmtree(run / "logs", ignore_errors=True)
    (run / "logs").mkdir()
    writer = RunWriter(run)
    with closing(writer):
        events, outcome = _replay(run, containers, writer)
    trial = plan.trial
    if not isinstance(trial, Trial):
        raise RequestError(f"{run / PLAN} is for a program that pods do not run; plan it again")
    plan = plan.model_copy(update={"trial": with_length(trial, events)})
    env = next((event for event in events if isinstance(event, Env) and event.rank == 0), None)
    of_node = {one.spec.node: one for one in containers if one.spec.role in ("worker", "daemon")}
    used = tuple(_node_used(of_node[placed.node], nodes) for placed in trial.placement)
    facts = planned.provenance.model_copy(update={"host": used[0].host, "nodes": used if trial.nodes > 1 else ()})
    image_id = used[0].image_id
    baseline = baseline_for(trial, before)
    files = RunFiles(
        plan=plan,
        outcome=outcome,
        events=events,
        provenance=facts.with_environment(env) if env else facts,
        workload=next(one for one in load_workloads(SUITE_ROOT) if one.name == trial.workload),
        samples=None,
        kernels=None,
    )
    record = record_of(
        files,
        matrix_id=planned.matrix_id,
        engine="kubernetes",
        engine_details=EngineDetails(version=used[0].engine_version, reason=None),
        image=planned.image.model_copy(
            update={"id": image_id, "digest": image_id.rpartition("@")[2] if image_id and "@" in image_id else None}
        ),
        baseline=baseline[1] if baseline else None,
    )
    writer.finish(record)
    return record


def _containers(run: Path, plan: RunPlan, kind: kubernetes.Kind) -> tuple[_Container, ...]:
    """The containers of a plan, each with its pod, found by the container's name there and the pod's completion index."""
    pods = _read(run / "pods.json", _Pods).items
    several = len({spec.node for spec in plan.containers}) > 1
    known = {
        (status.name, pod.metadata.index): (pod, status) for pod in pods for status in pod.status.container_statuses
    }
    found = []
    for spec in plan.containers:
        name, index = kubernetes.position(spec, several=several)
        name = kubernetes.TRAINER if kind == "trainjob" else name
        pod, status = known.get((name, index), (None, None))
        log = next(iter(sorted((run / "pods").glob(f"*-{index}-?????.{name}.log"))), None)
        if pod and spec.role != "daemon":
            log = run / "pods" / f"{pod.metadata.name}.{name}.log"
            if not log.is_file():
                raise RequestError(
                    f"{log} is missing; save it with `kubectl logs --timestamps {pod.metadata.name} -c {name}`"
                )
        found.append(_Container(spec, pod, status, log))
    return tuple(found)


def _replay(run: Path, containers: Sequence[_Container], writer: RunWriter) -> tuple[tuple[Event, ...], Outcome]:
    """Process the containers' logs in the order of the kubelets' times, as during a run; return the events and the run's outcome."""
    events: list[Event] = []
    names = [one.spec.name for one in containers]
    group = ContainerGroup(
        {one.spec.name: one.spec.node for one in containers},
        tails={name: deque(maxlen=TAIL_LINES) for name in names},
        last_events={name: {} for name in names},
    )
    output = Output(group, writer, events.append, readers(read_plan(run).trial, [one.spec for one in containers]))
    lines = sorted((line for one in containers for line in _lines(one)), key=lambda line: line[0])
    ends = {one.spec.name: one.ended for one in containers}
    known = {name: end for name, end in ends.items() if end}
    awaited = {one.spec.name for one in containers if one.spec.role != "daemon"}  # daemons are ended with the others
    group.exit_codes = {name: end.exit_code for name, end in known.items()}
    try:
        for received, name, text in lines:
            output.line(name, Line("stdout", text), received=received)
        for name in names:
            output.flush(name)
        status, reason = _status_of(run, group, known, awaited)
        if status == "ok":
            for name, end in known.items():
                output.close_reader(name, received=parse_time(end.finished_at))
    except Stop as stop:
        status, reason = stop.status, stop.reason
    started = min((parse_time(end.started_at) for end in known.values()), default=lines[0][0] if lines else 0.0)
    finished = max((parse_time(end.finished_at) for end in known.values()), default=lines[-1][0] if lines else started)
    return tuple(events), Outcome(
        status=status,
        reason=reason,
        exit_codes=group.exit_codes,
        started=started,
        phases_s={"total": finished - started},
        cut=tuple(sorted(output.cut)),
    )


def _lines(container: _Container) -> Iterator[tuple[float, str, str]]:
    """Yield a container's lines: the kubelet's time in seconds since 1970, the container, the text. Raises RequestError if a time is missing."""
    if container.log is None:
        return
    for number, line in enumerate(container.log.read_bytes().decode(errors="replace").split("\n"), 1):
        time, _, text = line.partition(" ")
        if not time:
            continue
        try:
            received = parse_time(time)
        except ValueError as error:
            raise RequestError(
                f"{container.log}:{number} does not begin with a time; save it again with `kubectl logs --timestamps`"
            ) from error
        for piece in text.rstrip("\r").split("\r"):  # a progress bar ends its lines so
            yield received, container.spec.name, piece


def _status_of(
    run: Path, group: ContainerGroup, known: Mapping[str, _Terminated], awaited: AbstractSet[str]
) -> tuple[Status, str | None]:
    """Return a run's status and reason: the job's deadline, else the first failed container, else the job's failure, else a missing exit code."""
    failed = sorted(
        (parse_time(end.finished_at), name) for name, end in known.items() if end.exit_code and name in awaited
    )
    job = _read(run / "job.json", _Job)
    failure = next((one for one in job.status.conditions if one.type == "Failed" and one.status == "True"), None)
    if failure and failure.reason == "DeadlineExceeded":
        return "timeout", f"{failure.message}; give a longer --timeout if the job needs it"
    if failed:
        _, name = failed[0]
        reason = known[name].reason
        return "failed", group.explain(name) + (f" ({reason})" if reason not in (None, "Error") else "")
    if failure:
        return "failed", f"{failure.reason}: {failure.message}"
    if unknown := sorted(awaited - known.keys()):
        return "failed", f"the cluster does not say how {', '.join(unknown)} ended"
    return "ok", None


def _host(name: str | None, nodes: Mapping[str, _Node], *, threads: int) -> Host:
    """Describe a machine from the cluster's node objects; a user without permission to read these has only its name."""
    node = nodes.get(name or "")
    info = node.status.node_info if node else None
    capacity = node.status.capacity if node else {}
    memory = capacity.get("memory", "").removesuffix("Ki")
    unknown: dict[str, None] = dict.fromkeys(Host.model_fields.keys() - {"processor"})
    return Host.model_validate(
        {
            **unknown,
            "hostname": name or _UNKNOWN,
            "kernel": info.kernel_version if info else _UNKNOWN,
            "architecture": info.architecture if info else _UNKNOWN,
            "os": info.os_image if info else None,
            "threads": int(capacity["cpu"]) if capacity.get("cpu", "").isdigit() else None,
            "usable_threads": threads,
            "memory_mib": int(memory) // 1024 if memory.isdigit() else None,
            "boot_id": info.boot_id if info else None,
        }
    )


def _node_used(container: _Container, nodes: Mapping[str, _Node]) -> NodeUsed:
    """The machine of a pod, under the pod's name in the plan; its counters and clock were not read."""
    name = container.pod.spec.node_name if container.pod else None
    info = nodes[name].status.node_info if name and name in nodes else None
    return NodeUsed(
        name=container.spec.node,
        host=_host(name, nodes, threads=len(container.spec.cpus)),
        gpus=(),
        nics=(),
        hcas=(),
        driver=None,
        cuda_driver=None,
        engine_version=info.container_runtime_version if info else None,
        image_id=container.status.image_id or None if container.status else None,
        clock_offset_s=None,
        clock_error_s=None,
    )
