"""Prevents pods that a cluster refuses, that are ranks of another job than planned, or that have more rights than the suite's containers.

Manifests are checked against the types published by Kubernetes, JobSet and Kubeflow Trainer (package kubeflow-trainer-api): unknown fields
do not survive the conversion. After a wanted change, `DLSCALE_GOLDEN=write make test` writes the golden files again.
"""

import json
import subprocess
from types import SimpleNamespace

import examples
import pytest
import yaml
from goldens import expected
from kubeflow_trainer_api import models

from runner.cluster.cluster import Cluster
from runner.core.errors import RequestError
from runner.core.node import Member
from runner.core.request import Request
from runner.core.trial import Placed
from runner.core.wire import NodeWires, Wire
from runner.plan import kubernetes
from runner.run import pods
from runner.run.container_group import ContainerGroup

GOLDEN = examples.ROOT / "tests" / "golden" / "kubernetes"
PROGRAMS = kubernetes.Programs({"lease.py": "a = 1\n\nb = 2\n", "imagenet_cnn/train.py": "print('$(HOME)')\n"})
TYPES = {
    "Service": models.IoK8sApiCoreV1Service,
    "Job": models.IoK8sApiBatchV1Job,
    "JobSet": models.JobsetV1alpha2JobSet,
    "TrainJob": models.TrainerV1alpha1TrainJob,
}
TORCH = {"framework": "pytorch", "version": "2.13.0-cpu", "program": "imagenet_cnn/train_pytorch.py", "strategy": "ddp"}
HOROVOD = {**TORCH, "version": "2.13.0-cpu-horovod", "strategy": "horovod", "horovod": examples.horovod()}
STORE = {"strategy": "kvstore", "kvstore": "dist_sync"}
TENSORFLOW = {
    "framework": "tensorflow",
    "version": "2.21.0",
    "program": "imagenet_cnn/train_tensorflow.py",
    "strategy": "multiworker",
}


def planned(pods, *, devices=1, kind="job", node=None, registry=None, **changes):
    """Lay out a trial on `pods` pods; returns its containers, and its manifest as text and objects."""
    nodes = [(node or examples.node)(name=f"pod{number}") for number in range(pods)]
    wires = [Wire(kind="ethernet", iface="eth0", address=one.name) if pods > 1 else None for one in nodes]
    placement = tuple(Placed(node=one.name, devices=devices, wire=wire) for one, wire in zip(nodes, wires, strict=True))
    world = pods * devices
    processes = pods if changes.get("kvstore") and pods > 1 else world
    trial = examples.trial(
        world_size=world, processes=processes, nodes=pods, global_batch=32 * world, placement=placement, **changes
    )
    cluster = Cluster("hosts", "pod0", tuple(Member(one, NodeWires()) for one in nodes))
    image = SimpleNamespace(reference=f"dlscale/{trial.framework}:{trial.version}", entrypoint=())
    resources = SimpleNamespace(cluster=cluster, image=image)
    layout = kubernetes.lay_out(trial, resources, run_id="run-1", kind=kind, registry=registry)
    text = kubernetes.manifest("run-1", layout, kind=kind, programs=PROGRAMS, deadline_s=3600)
    return SimpleNamespace(containers=layout.containers, text=text, objects=list(yaml.safe_load_all(text)))


CASES = {
    "pytorch-2-pods": lambda: planned(2, **TORCH),
    "pytorch-16-gpus-2-pods-trainjob": lambda: planned(
        2,
        devices=8,
        kind="trainjob",
        registry="registry.example/suite/",
        node=lambda **more: examples.gpu_node(8, **more),
        device="gpu",
        cpus_per_worker=None,
        **TORCH,
    ),
    "pytorch-horovod-3-pods-mpijob": lambda: planned(3, kind="mpijob", **HOROVOD),
    "mxnet-kvstore-2-pods": lambda: planned(2, **STORE),
    "mxnet-kvstore-2-workers-1-pod": lambda: planned(1, devices=2, **STORE),
    "tensorflow-ps-2-pods": lambda: planned(2, **{**TENSORFLOW, "strategy": "ps"}),
    "tensorflow-4-workers-2-pods": lambda: planned(2, devices=2, **TENSORFLOW),
}


@pytest.mark.parametrize("name", CASES)
def test_manifests_equal_the_golden_files_and_fit_the_published_types(name):
    made = CASES[name]()
    assert made.text == expected(GOLDEN / f"{name}.yaml", made.text)
    for document in made.objects:
        if document["kind"] == "MPIJob":  # no package has its type, so its templates are checked
            pods = [one["template"] for one in document["spec"]["mpiReplicaSpecs"].values()]
            assert [models.IoK8sApiCoreV1PodTemplateSpec.from_dict(pod).to_dict() for pod in pods] == pods
        elif document["kind"] != "ConfigMap":
            assert TYPES[document["kind"]].from_dict(document).to_dict() == document


def templates_of(made):
    """For each kind of pod, the containers of its template and the numbers of its pods."""
    found = []
    for document in made.objects:
        spec = document.get("spec", {})
        match document["kind"]:
            case "Job":
                found.append((spec["template"], range(spec["completions"])))
            case "JobSet":
                jobs = [one["template"]["spec"] for one in spec["replicatedJobs"]]
                found += [(job["template"], range(job["completions"])) for job in jobs]
            case "MPIJob":
                launcher, worker = (spec["mpiReplicaSpecs"][name] for name in ("Launcher", "Worker"))
                found += [(launcher["template"], range(1)), (worker["template"], range(1, 1 + worker["replicas"]))]
    return [(template["spec"]["containers"], numbers) for template, numbers in found]


@pytest.mark.parametrize("name", [name for name in CASES if "trainjob" not in name])
def test_each_pod_runs_the_planned_argv_with_its_number(name):
    made = CASES[name]()
    told = []
    for containers, numbers in templates_of(made):
        for container in (container for _ in numbers for container in containers):
            number = str(numbers[sum(one[2] == container["name"] for one in told)])
            words = [word.replace("$(JOB_COMPLETION_INDEX)", number) for word in container["command"]]
            env = {one["name"]: one["value"].replace("$(JOB_COMPLETION_INDEX)", number) for one in container["env"][1:]}
            told.append((tuple(words), env, container["name"]))
    key = lambda one: (one[0], sorted(one[1].items()))  # noqa: E731
    planned_ones = sorted(((spec.argv, spec.env) for spec in made.containers), key=key)
    assert sorted(((words, env) for words, env, _ in told), key=key) == planned_ones


@pytest.mark.parametrize("name", CASES)
def test_pods_have_no_more_rights_than_the_suites_containers(name):
    def confined(value):
        """Yield every security context of a manifest."""
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from [inner] if key == "securityContext" else confined(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from confined(inner)

    made = CASES[name]()
    found = list(confined(made.objects))
    assert len(found) == made.text.count("volumeMounts:") > 0
    for context in found:
        assert context["runAsNonRoot"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
    assert "hostPath" not in made.text
    assert "hostNetwork" not in made.text


def test_more_than_ten_pods_differ_only_by_their_number():
    made = planned(12, **TORCH)
    ((containers, _),) = templates_of(made)
    assert "--node-rank=$(JOB_COMPLETION_INDEX)" in containers[0]["command"]


def test_programs_may_contain_kubernetes_variables():
    assert kubernetes.Programs({"a/b.py": "x"}).manifest().count("a...b.py: x") == 1
    assert "print('$(HOME)')" in PROGRAMS.manifest()


def test_programs_larger_than_a_configmap_are_refused():
    with pytest.raises(RequestError, match="a ConfigMap holds 1048576"):
        kubernetes.Programs({"a.py": "x" * 2**20})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"data": "/data/set"}, "DATA can't be had with FORMAT=k8s: pods cannot see folders of this machine"),
        ({"telemetry_hz": 5}, "TELEMETRY_HZ can't be had"),
        ({"profile": ("kernels",)}, "PROFILE can't be had"),
        ({"interconnect": ("ethernet", "roce")}, "INTERCONNECT=roce can't be had"),
    ],
)
def test_options_that_pods_do_not_support_are_refused_by_name(fields, words):
    with pytest.raises(RequestError, match=words.replace("(", r"\(")):
        kubernetes.refuse(Request.model_validate(fields))


def test_unsuitable_strategies_and_unequal_sizes_are_refused():
    with pytest.raises(RequestError, match="STRATEGY=horovod reaches other pods by SSH"):
        planned(2, **HOROVOD)
    with pytest.raises(RequestError, match="CONTROLLER=mpi uses other pod names"):
        planned(2, kind="mpijob", **{**HOROVOD, "horovod": examples.horovod(controller="mpi", operations="mpi")})
    with pytest.raises(RequestError, match="KIND=mpijob runs STRATEGY=horovod, ddp asked"):
        planned(2, kind="mpijob", **TORCH)
    with pytest.raises(RequestError, match="KIND=trainjob runs in Trainer's PyTorch runtime, mxnet asked"):
        planned(1, devices=2, kind="trainjob", **STORE)
    with pytest.raises(RequestError, match="STRATEGY=ps runs one worker per pod, 4 workers on 2 pods asked"):
        planned(2, devices=2, **{**TENSORFLOW, "strategy": "ps"})
    sizes = iter((4096, 8192))
    with pytest.raises(RequestError, match="pods of one job must have the same size"):
        planned(2, node=lambda **more: examples.node(memory_mib=next(sizes), **more), **TORCH)


def test_the_script_runs_all_runs_and_passes_shellcheck(tmp_path):
    script = tmp_path / "run.sh"
    made = [(run, planned(pods, **STORE).containers) for run, pods in (("run-1", 1), ("run-2", 2))]
    script.write_text(kubernetes.script(made, "job"))
    assert [line.split()[2:] for line in script.read_text().splitlines() if line.startswith("run run-")] == [
        ["job", kubernetes.job_name("run-1"), "1"],
        ["jobset", kubernetes.job_name("run-2"), "5"],
    ]
    done = subprocess.run([examples.ROOT / ".venv/bin/shellcheck", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def log_of(tmp_path, text):
    log = tmp_path / "pod.worker.log"
    log.write_text(text, newline="")
    (spec,) = planned(1, **TORCH).containers
    return [line[0::2] for line in pods._lines(pods._Container(spec, None, None, log))]


def test_lines_have_the_kubelets_time_and_progress_bars_are_split(tmp_path):
    text = "2026-11-25T04:00:00.250000001Z one\u2028line\n2026-11-25T04:00:01Z \r 10 %\r 20 %\r\n"
    at = 1795579200.0
    assert log_of(tmp_path, text) == [(at + 0.25, "one\u2028line"), (at + 1, ""), (at + 1, " 10 %"), (at + 1, " 20 %")]
    with pytest.raises(RequestError, match="pod.worker.log:1 does not begin with a time"):
        log_of(tmp_path, "no time\n")


@pytest.mark.parametrize(
    ("condition", "known", "status", "words"),
    [
        ({"type": "Complete"}, ("a", "b"), "ok", None),
        (
            {"type": "Failed", "reason": "DeadlineExceeded", "message": "it was active too long"},
            (),
            "timeout",
            "it was active too long",
        ),
        (
            {"type": "Failed", "reason": "PodFailurePolicy", "message": "node shut down"},
            ("a",),
            "failed",
            "PodFailurePolicy: node shut down",
        ),
        ({"type": "Complete"}, ("a",), "failed", "the cluster does not say how b ended"),
    ],
)
def test_a_runs_status_comes_from_its_containers_or_the_jobs_conditions(tmp_path, condition, known, status, words):
    """A run with a container whose exit code is unknown must not count as successful."""
    (tmp_path / "job.json").write_text(json.dumps({"status": {"conditions": [{"status": "True", **condition}]}}))
    ended = pods._Terminated(exitCode=0, startedAt="2026-11-25T04:00:00Z", finishedAt="2026-11-25T04:01:00Z")
    found = pods._status_of(tmp_path, ContainerGroup({}), dict.fromkeys(known, ended), {"a", "b"})
    assert found[0] == status
    assert found[1] is None if words is None else found[1].startswith(words)
