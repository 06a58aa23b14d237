"""A trial as pods of Kubernetes: its containers, laid out as for hosts, and their manifests. Pure.

A pod is a node of the trial, and its number is the Job's completion index. Pods of one role share a template, and differ only by that number
in it. A strategy with one role is an Indexed Job behind a headless Service, or a TrainJob; with several (scheduler, servers, workers) a JobSet;
Horovod, whose launcher reaches the other nodes by SSH, an MPIJob. On a single node all containers share a pod and its network, as in Docker.

Sources: kubernetes.io/docs/concepts/workloads/controllers/job (completion index, pod failure policy), /docs/tasks/inject-data-application
("dependent environment variables": `$(NAME)` in a command is replaced, `$$(` is not), jobset.sigs.k8s.io/docs (v1alpha2; host names of pods are
JOBSET-ROLE-JOB-POD), trainer.kubeflow.org (v1alpha1; the runtime's replicated job and its container are both called `node`),
github.com/kubeflow/mpi-operator, pkg/controller/mpi_job_controller.go (v2beta1; with runLauncherAsWorker the launcher is replica 0 and worker 0 replica 1).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import yaml

from runner.core.container_spec import IMAGE_USER, LABEL_ROLE, LABEL_RUN, ContainerSpec
from runner.core.errors import RequestError
from runner.core.node import Member, Nic, Node
from runner.core.request import Request
from runner.core.strategies import STRATEGIES
from runner.core.trial import Placed, Trial
from runner.core.wire import IFACE, NodeWires
from runner.engines.base import WORKLOADS, Site
from runner.plan.discovery import Resources
from runner.plan.launch import horovod, launch
from runner.plan.launch.job import Job, assign_seats

Kind = Literal["job", "trainjob", "mpijob"]
Resource = Literal["job", "jobset", "trainjob", "mpijob"]

Containers = dict[str, list[ContainerSpec]]  # the containers of a role's pods, by name, each with its spec in every pod

# The limit of a ConfigMap; all of the suite's programs are about three quarters of it.
MOST_BYTES: Final = 2**20
# The name of the trainer's container and of its replicated job in every runtime of Kubeflow Trainer.
TRAINER: Final = "node"
_INDEX: Final = "$(JOB_COMPLETION_INDEX)"
_INDEX_FIELD: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_REPLICA_FIELD: Final = "metadata.labels['training.kubeflow.org/replica-index']"
_PORTS: Final = tuple(range(40000, 40064))
# Roles of containers with ranks.
_RANK_ROLES: Final = frozenset({"worker", "daemon"})
# What a scheduler or a server requests: as on hosts, it uses what its node's worker leaves.
_HELPER_REQUESTS: Final = {"cpu": "100m", "memory": "256Mi"}
_NOT_IN_PODS: Final[Mapping[str, str]] = {
    "data": "pods cannot see folders of this machine",
    "mounts": "pods cannot see folders of this machine",
    "command": "pods run the programs of the suite",
    "image": "pods run the images of the suite; REGISTRY=HOST/PATH says where the cluster finds them",
    "engine": "the cluster runs the pods",
    "nodes": "HOSTS sets the number of pods",
    "links": "links are emulated only on this machine",
    "compare": "a pod has one interface",
    "iface": "a pod has one interface",
    "hca": "adapter names differ between clusters",
    "concurrent": "each run is a job of its own",
    "profile": "profiling passes need a machine that the runner can reach",
    "telemetry_hz": "no sampler runs next to pods",
    "idle_s": "no sampler runs next to pods",
    "inactivity_timeout_s": "the runner does not follow pods while they run; TIMEOUT ends them",
}


def refuse(request: Request) -> None:
    """Raise RequestError, with the variable and the reason, for options that pods do not support."""
    for field, why in _NOT_IN_PODS.items():
        if field in request.model_fields_set and getattr(request, field):
            name = field.removesuffix("_s").upper()
            raise RequestError(f"{name} can't be had with FORMAT=k8s: {why}; leave it out")
    if rdma := {"infiniband", "roce"} & set(request.interconnect):
        raise RequestError(
            f"INTERCONNECT={min(rdma)} can't be had with FORMAT=k8s: {_NOT_IN_PODS['hca']}; ask for ethernet, or leave it out"
        )


def as_pods(resources: Resources) -> Resources:
    """Replace each machine by a pod of its size, with one interface and its own name as its address."""
    members = tuple(
        Member(_pod(member.node, f"pod{number}"), NodeWires(roles={"ethernet": IFACE}), member.slots)
        for number, member in enumerate(resources.cluster.members)
    )
    return replace(resources, cluster=replace(resources.cluster, kind="hosts", members=members, link=None))


def _pod(node: Node, name: str) -> Node:
    nic = Nic(name=IFACE, state="up", speed_mbit=None, mtu=0, kind="virtual", address=name)
    return node.model_copy(update={"name": name, "nics": (nic,), "hcas": (), "ports": _PORTS})


@dataclass(frozen=True)
class PodLayout:
    """A trial with its pods' host names, their containers, and the first pod's ssh_config; None without SSH."""

    trial: Trial
    containers: tuple[ContainerSpec, ...]
    ssh_config: str | None = None


def lay_out(trial: Trial, resources: Resources, *, run_id: str, kind: Kind, registry: str | None) -> PodLayout:
    """Lay a trial out in pods. Raises RequestError for a strategy that needs another kind of object, or that pods cannot run."""
    if kind == "trainjob" and trial.framework != "pytorch":
        raise RequestError(
            f"KIND=trainjob runs in Trainer's PyTorch runtime, {trial.framework} asked; add FRAMEWORK=pytorch, or ask for KIND=job"
        )
    by_ssh = trial.horovod is not None and trial.nodes > 1
    if by_ssh and kind != "mpijob":
        raise RequestError("STRATEGY=horovod reaches other pods by SSH, with keys from MPI Operator; add KIND=mpijob")
    if by_ssh and trial.horovod and trial.horovod.controller == "mpi":
        raise RequestError("CONTROLLER=mpi uses other pod names than MPI Operator's host list; ask for CONTROLLER=gloo")
    if kind == "mpijob" and trial.world_size > 1 and not trial.horovod:
        raise RequestError(f"KIND=mpijob runs STRATEGY=horovod, {trial.strategy} asked; ask for KIND=job")
    if STRATEGIES[trial.strategy].parameter_servers and 1 < trial.nodes < trial.processes:
        raise RequestError(
            f"STRATEGY={trial.strategy} runs one worker per pod, {trial.processes} workers on {trial.nodes} pods asked; ask for STRATEGY=multiworker, "
            "or list a host with one device for each worker"
        )
    placement = tuple(_in_pod(placed, trial, job_name(run_id), n, kind) for n, placed in enumerate(trial.placement))
    trial = trial.model_copy(update={"placement": placement})
    nodes = {member.node.name: member.node for member in resources.cluster.members}
    reference = resources.image.reference
    job = Job(
        run_id=run_id,
        trial=trial,
        seats=tuple(replace(seat, network="pod") for seat in assign_seats(trial, nodes, network="pod")),
        site=Site(python="python3", workloads=WORKLOADS),
        image=f"{registry.rstrip('/')}/{reference}" if registry else reference,
        user=IMAGE_USER,
        mounts=(),
        entrypoint=resources.image.entrypoint,
    )
    ssh_config = horovod.client_config(horovod.logins(job), operator=True) if by_ssh else None
    return PodLayout(trial, launch(job), ssh_config)


def job_name(run_id: str) -> str:
    """The run's name in the cluster, which limits the length of names; also a label of its pods."""
    return f"dlscale-{hashlib.sha256(run_id.encode()).hexdigest()[:10]}"


def _in_pod(placed: Placed, trial: Trial, name: str, number: int, kind: Kind) -> Placed:
    """Give a node the host name of its pod, or of its ranks' rendezvous: MXNet's scheduler, TensorFlow's servers."""
    if placed.wire is None:
        return placed
    if trial.kvstore:
        pod = f"{name}-worker-0-{number}" if number else f"{name}-scheduler-0-0"
    elif STRATEGIES[trial.strategy].parameter_servers:
        pod = f"{name}-server-0-{number}"
    else:
        launched = f"{name}-worker-{number - 1}" if number else f"{name}-launcher"
        pod = {"trainjob": f"{name}-{TRAINER}-0-{number}", "mpijob": launched}.get(kind, f"{name}-{number}")
    wire = placed.wire.model_copy(update={"address": f"{pod}.{name}"})
    return placed.model_copy(update={"wire": wire})


def position(spec: ContainerSpec, *, several: bool) -> tuple[str, int]:
    """A container's name in its pod, and the index of that pod; daemons begin on the second node of the job."""
    if not several:
        return f"{spec.role}{spec.number}", 0
    return spec.role, spec.number + (spec.role == "daemon")


def resource_kind(containers: Sequence[ContainerSpec], kind: Kind) -> Resource:
    """The kind of object that runs these containers."""
    several = len({spec.node for spec in containers}) > 1
    if kind == "mpijob":
        return "mpijob" if several else "job"
    return "jobset" if several and len({spec.role for spec in containers}) > 1 else kind


def manifest(run_id: str, layout: PodLayout, *, kind: Kind, programs: Programs, deadline_s: int) -> str:
    """The object that runs a trial, after the Service or ConfigMap that it needs, as YAML. Raises RequestError if pods of one role differ in size."""
    name, containers = job_name(run_id), layout.containers
    several = len({spec.node for spec in containers}) > 1
    # By role, the containers of its pods.
    pods: dict[str, Containers] = {}
    for spec in containers:
        own_name, _ = position(spec, several=several)
        pods.setdefault(spec.role if several else "worker", {}).setdefault(own_name, []).append(spec)
    meta = {"name": name, "labels": {LABEL_RUN: name}, "annotations": {LABEL_RUN: run_id}}
    object_kind = resource_kind(containers, kind)
    objects: list[dict[str, Any]] = []
    if object_kind == "trainjob":
        (own,) = pods.values()
        objects.append(_train_job(meta, own, programs, deadline_s))
    elif object_kind == "mpijob":
        objects += _mpi_job(meta, pods, layout.ssh_config or "", programs, deadline_s)
    elif object_kind == "jobset":
        jobs = [
            {"name": role, "replicas": 1, "template": {"spec": _job_spec(name, own, programs, deadline_s)}}
            for role, own in pods.items()
        ]
        set_of_jobs = {
            "replicatedJobs": jobs,
            "failurePolicy": {"maxRestarts": 0},
            "network": {"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True},
        }
        objects.append(
            {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": set_of_jobs}
        )
    else:
        (own,) = pods.values()
        job = _job_spec(name, own, programs, deadline_s)
        if several:
            job["template"]["spec"]["subdomain"] = name
            # It only names the pods, even before they are ready; it serves no port.
            service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {LABEL_RUN: name}}
            objects.append({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service})
        objects.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job})
    return _yaml(objects)


class Programs:
    """The training programs as a ConfigMap: images do not contain them, and clusters do not see this machine's folders.

    `files` are texts by their path below `workloads/`. Raises RequestError if they exceed a ConfigMap.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
        self.name = f"dlscale-programs-{digest[:10]}"
        self._paths = {path.replace("/", "..."): path for path in sorted(files)}
        self._files = files
        size = sum(len(key) + len(files[path].encode()) for key, path in self._paths.items())
        if size > MOST_BYTES:
            raise RequestError(
                f"the programs are {size} bytes, and a ConfigMap holds {MOST_BYTES}; remove what you added to workloads/"
            )

    def manifest(self) -> str:
        """The ConfigMap, as YAML."""
        meta = {"name": self.name, "labels": {"app.kubernetes.io/part-of": "dlscale"}}
        data = {key: self._files[path] for key, path in self._paths.items()}
        return _yaml([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, "data": data}])

    def volume(self) -> dict[str, Any]:
        """The volume with the programs, each at its path."""
        items = [{"key": key, "path": path} for key, path in self._paths.items()]
        return {"name": "programs", "configMap": {"name": self.name, "defaultMode": 0o555, "items": items}}


def _job_spec(name: str, containers: Containers, programs: Programs, deadline_s: int) -> dict[str, Any]:
    """An Indexed Job with one pod per spec of each container. The first pod to fail ends it, as with other engines; nothing is retried."""
    first = next(iter(containers.values()))
    rules = [
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}},
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    return {
        "completions": len(first),
        "parallelism": len(first),
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "activeDeadlineSeconds": deadline_s,
        "podFailurePolicy": {"rules": rules},
        "template": _pod_template(name, containers, programs, spread=len(first) > 1),
    }


def _pod_template(
    name: str, containers: Containers, programs: Programs, *, spread: bool, index: str = _INDEX_FIELD
) -> dict[str, Any]:
    """The template of a role's pods; `spread` places each pod with ranks on its own machine, `index` is the field with the pod's number."""
    workers = max(1, sum(specs[0].role == "worker" for specs in containers.values()))
    return {
        "metadata": _labels(name, containers),
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **(_scheduling(name, containers) if spread else {}),
            "containers": [_container(own, specs, workers, index) for own, specs in containers.items()],
            "volumes": list(_volumes(containers, programs)),
        },
    }


def _labels(name: str, containers: Containers) -> dict[str, Any]:
    """The labels by which pods are found: their run, and whether they contain ranks."""
    roles = {specs[0].role for specs in containers.values()}
    role = "rank" if roles & _RANK_ROLES else next(iter(roles))
    return {"labels": {LABEL_RUN: name, LABEL_ROLE: role}}


def _mpi_job(
    meta: dict[str, Any], pods: dict[str, Containers], ssh_config: str, programs: Programs, deadline_s: int
) -> list[dict[str, Any]]:
    """An MPIJob whose launcher trains too, on the first node, and starts the ranks of the others; before it, a ConfigMap with its ssh_config."""
    name = f"{meta['name']}-ssh"
    templates = {
        role: _pod_template(meta["name"], own, programs, spread=True, index=_REPLICA_FIELD)
        for role, own in pods.items()
    }
    launcher = templates["worker"]["spec"]
    items = [{"key": "ssh_config", "path": "ssh_config"}]
    launcher["volumes"].append({"name": "ssh", "configMap": {"name": name, "defaultMode": 0o444, "items": items}})
    launcher["containers"][0]["volumeMounts"].append({"name": "ssh", "mountPath": horovod.KEYS, "readOnly": True})
    replicas = {
        which: {"replicas": len(pods[role][role]), "restartPolicy": "Never", "template": templates[role]}
        for which, role in (("Launcher", "worker"), ("Worker", "daemon"))
    }
    spec = {
        "slotsPerWorker": pods["worker"]["worker"][0].processes // (1 + len(pods["daemon"]["daemon"])),
        "runLauncherAsWorker": True,
        "sshAuthMountPath": horovod.OPERATOR_KEYS,
        "mpiImplementation": "OpenMPI",
        "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 0, "activeDeadlineSeconds": deadline_s},
        "mpiReplicaSpecs": replicas,
    }
    own = {**meta, "name": name}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": own, "data": {"ssh_config": ssh_config}},
        {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": meta, "spec": spec},
    ]


def _train_job(meta: dict[str, Any], containers: Containers, programs: Programs, deadline_s: int) -> dict[str, Any]:
    """A TrainJob in Trainer's own runtime for PyTorch; torchrun's command line takes precedence over the runtime's variables."""
    ((name, specs),) = containers.items()
    own = _container(name, specs, 1, _INDEX_FIELD)
    patch = {
        "metadata": _labels(meta["name"], containers),
        "spec": {
            **(_scheduling(meta["name"], containers) if len(specs) > 1 else {}),
            "volumes": list(_volumes(containers, programs)),
            "containers": [
                {"name": TRAINER, "volumeMounts": own["volumeMounts"], "securityContext": own["securityContext"]}
            ],
        },
    }
    patched = {"replicatedJobs": [{"name": TRAINER, "template": {"spec": {"template": patch}}}]}
    spec = {
        "activeDeadlineSeconds": deadline_s,
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": "ClusterTrainingRuntime",
            "name": "torch-distributed",
        },
        "trainer": {
            "image": own["image"],
            "command": own["command"],
            "env": own["env"],
            "numNodes": len(specs),
            "numProcPerNode": specs[0].processes,
            "resourcesPerNode": own["resources"],
        },
        "runtimePatches": [{"manager": "dlscale", "trainingRuntimeSpec": {"template": {"spec": patched}}}],
    }
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta, "spec": spec}


def _scheduling(name: str, containers: Containers) -> dict[str, Any]:
    """Place each pod with ranks on its own machine: between two pods on one machine there is no wire."""
    labels = _labels(name, containers)["labels"]
    if labels[LABEL_ROLE] != "rank":
        return {}
    same_role = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [same_role]}}}


def _container(name: str, specs: Sequence[ContainerSpec], workers: int, index: str) -> dict[str, Any]:
    """A container of a role's pods, confined as by the other engines; `workers` share the pod's memory."""
    first = specs[0]
    sizes = {(len(spec.cpus), len(spec.gpus), spec.memory_mib, spec.shm_mib, spec.tmp_mib) for spec in specs}
    if len(sizes) > 1:
        raise RequestError(
            "pods of one job must have the same size, but HOSTS lists several; list hosts with the same cpus, memory_mib and gpus"
        )
    user, _, group = first.user.partition(":")
    number = int(first.role == "daemon")  # index of the first of these pods
    env: list[dict[str, Any]] = [{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": index}}}]
    env += [{"name": key, "value": _template([spec.env[key] for spec in specs], number)} for key in first.env]
    return {
        "name": name,
        "image": first.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [_template(words, number) for words in zip(*(spec.argv for spec in specs), strict=True)],
        "env": env,
        "resources": _resources(first, workers),
        "securityContext": {
            "runAsUser": int(user),
            "runAsGroup": int(group),
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "programs", "mountPath": WORKLOADS, "readOnly": True},
            {"name": f"tmp-{name}", "mountPath": "/tmp"},  # noqa: S108 - inside the container
            {"name": f"shm-{name}", "mountPath": "/dev/shm"},  # noqa: S108
        ],
    }


def _resources(spec: ContainerSpec, workers: int) -> dict[str, Any]:
    """Resources; a worker's requests equal its limits, so that a node with static CPU management gives it exclusive cores."""
    limits: dict[str, Any] = {"cpu": str(len(spec.cpus))}
    if spec.memory_mib:
        limits["memory"] = f"{spec.memory_mib // workers}Mi"
    if spec.gpus:
        limits["nvidia.com/gpu"] = str(len(spec.gpus))
    return {"limits": limits, "requests": limits if spec.role in _RANK_ROLES else _HELPER_REQUESTS}


def _volumes(containers: Containers, programs: Programs) -> Iterator[dict[str, Any]]:
    """The volume with the programs, and each container's writable directories, in memory only."""
    yield programs.volume()
    for name, specs in containers.items():
        for volume, size in (("tmp", specs[0].tmp_mib), ("shm", specs[0].shm_mib)):
            yield {"name": f"{volume}-{name}", "emptyDir": {"medium": "Memory", "sizeLimit": f"{size}Mi"}}


def _template(words: Sequence[str], first: int) -> str:
    """Merge the pods' versions of a word: the pod's index replaces the number by which they differ, from `first` on."""
    escaped = [word.replace("$(", "$$(") for word in words]
    if len(set(escaped)) == 1:
        return escaped[0]
    pairs = zip(escaped[0], escaped[1], strict=True)
    found = "".join(_INDEX if pair == (str(first), str(first + 1)) else pair[0] for pair in pairs)
    if [found.replace(_INDEX, str(number)) for number in range(first, first + len(words))] != escaped:
        raise TypeError(f"{words} differ in more than their number")
    return found


def script(runs: Sequence[tuple[str, Sequence[ContainerSpec]]], kind: Kind) -> str:
    """A shell script that runs trials in sequence and keeps their pods' logs; `runs` has their run ids and containers.

    It follows logs from the start: a failed Job's other pods are removed, and kubelets rotate long logs. Daemons never exit, so theirs are
    skipped.
    """
    lines = "\n".join(
        f"run {run_id} {resource_kind(own, kind)} {job_name(run_id)} {len(own) if len({spec.node for spec in own}) > 1 else 1}"
        for run_id, own in runs
    )
    return f"""#!/bin/sh
# Runs all trials of this plan, one after the other, on kubectl's current cluster, and saves their pods' logs for `dlscale collect`.
set -eu
cd "$(dirname "$0")"

own=programs.yaml
clear() {{
  for file in $own; do kubectl delete --ignore-not-found -f "$file"; done
}}
trap clear EXIT
trap 'exit 130' INT TERM

run() {{
  own="$1/kubernetes.yaml programs.yaml"
  kubectl create -f "$1/kubernetes.yaml"
  mkdir -p "$1/pods"
  until [ "$(kubectl get pods -l "{LABEL_RUN}=$3" -o name | wc -l)" -ge "$4" ] || ended "$2" "$3"; do sleep 1; done
  for pod in $(kubectl get pods -l "{LABEL_RUN}=$3" -o name); do
    for container in $(kubectl get "$pod" -o 'jsonpath={{.spec.containers[*].name}}'); do
      [ "$container" = daemon ] || kubectl logs --follow --timestamps --pod-running-timeout=1h "$pod" -c "$container" > "$1/pods/${{pod#pod/}}.$container.log" &
    done
  done
  until ended "$2" "$3"; do sleep 2; done
  wait
  kubectl get "$2" "$3" -o json > "$1/job.json"
  kubectl get pods -l "{LABEL_RUN}=$3" -o json > "$1/pods.json"
  kubectl delete -f "$1/kubernetes.yaml"
  own=programs.yaml
}}

ended() {{
  kubectl get "$1" "$2" -o 'jsonpath={{.status.conditions[?(@.status=="True")].type}}' | grep -Eq 'Complete|Succeeded|Failed'
}}

kubectl create -f programs.yaml
# Only some users may read nodes; without these, records have only their names.
kubectl get nodes -o json > nodes.json || rm -f nodes.json
{lines}
"""


class _Dumper(yaml.SafeDumper):
    """Writes every object in full, and multi-line texts as literal blocks."""

    def ignore_aliases(self, data: object) -> bool:
        """Write no references, so that a reader sees each container in full."""
        del data
        return True


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def _yaml(objects: Iterable[dict[str, Any]]) -> str:
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=4096)
