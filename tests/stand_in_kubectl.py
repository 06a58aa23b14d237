"""Stands in for `kubectl` and a cluster, as far as a plan's `run.sh` needs them: each container of a pod runs on this machine's engine.

It follows the documented behaviour of a kubelet: standard input is empty, `$(NAME)` in commands and variables is expanded, a ConfigMap is
mounted as links into one folder, a pod's containers share its network, and if a pod of a Job fails, the others are ended.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import yaml

STATE = Path(os.environ["STAND_IN_STATE"])
PODS = STATE / "pods.json"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
LABEL = "dlscale.run-id"
OWN = f"{LABEL}=stand-in"


def say(*words):
    sys.stdout.write(" ".join(words) + "\n")


def docker(*words):
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def pods():
    return json.loads(PODS.read_text()) if PODS.exists() else []


def create(document):
    name, spec = document["metadata"]["name"], document.get("spec", {})
    match document["kind"]:
        case "ConfigMap":
            folder = STATE / name / "data"
            folder.mkdir(parents=True)
            for key, text in document["data"].items():
                (folder / key).write_text(text)
        case "Service":
            assert spec["selector"] == {LABEL: name}
        case "Job":
            begin(name, name, spec, hosts=lambda index: f"{name}-{index}")
        case "MPIJob":
            assert spec["runLauncherAsWorker"]
            place = STATE / name / "operator"
            place.mkdir(parents=True)
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-N", "", "-f", place / "id_rsa"], check=True
            )
            shutil.copy(place / "id_rsa.pub", place / "authorized_keys")
            (place / "id_rsa").chmod(0o644)  # root's, in a volume visible only to the pod
            launcher, worker = (spec["mpiReplicaSpecs"][kind] for kind in ("Launcher", "Worker"))
            more = ["--volume", f"{place}:{spec['sshAuthMountPath']}:ro"]
            begin(name, f"{name}-worker", worker, hosts=lambda i: f"{name}-worker-{i - 1}", first=1, more=more)
            begin(name, f"{name}-launcher", launcher, hosts=lambda _: f"{name}-launcher", more=more)
        case "JobSet":
            for job in spec["replicatedJobs"]:
                role = job["name"]
                begin(
                    name, f"{name}-{role}-0", job["template"]["spec"], hosts=lambda i, role=role: f"{name}-{role}-0-{i}"
                )


def begin(name, job, spec, *, hosts, first=0, more=()):
    """Start the pods of a Job, or the replicas of a role, numbered from `first`."""
    if not docker("network", "ls", "-q", "--filter", f"name={name}"):
        docker("network", "create", "--internal", f"--label={OWN}", name)
    found = pods()
    for index in range(first, first + spec.get("completions", spec.get("replicas"))):
        template = spec["template"]["spec"]
        pod = {"name": f"{job}-{index}-abcde", "index": index, "label": name, "containers": {}}
        own = [*more, "--network", name, "--network-alias", f"{hosts(index)}.{name}", "--hostname", hosts(index)]
        for container in template["containers"]:
            argv = words(container, template["volumes"], index)
            pod["containers"][container["name"]] = docker("run", "--detach", *own, *argv)
            own = ["--network", f"container:{next(iter(pod['containers'].values()))}"]
        found.append(pod)
    PODS.write_text(json.dumps(found))


def words(container, volumes, index):
    """Translate a manifest's container into arguments of `docker run`."""
    known = {"JOB_COMPLETION_INDEX": str(index)}

    def expanded(text):
        """Expand by the kubelet's rule: unknown names stay, `$$(` becomes `$(`."""
        return re.sub(r"\$\$\(|\$\((\w+)\)", lambda m: known.get(m[1], m[0]) if m[1] else "$(", text)

    for variable in container["env"][1:]:
        known[variable["name"]] = expanded(variable["value"])
    confined = container["securityContext"]
    assert confined["capabilities"] == {"drop": ["ALL"]}
    assert confined["readOnlyRootFilesystem"]
    assert not confined["allowPrivilegeEscalation"]
    limits = container["resources"]["limits"]
    found = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", f"--label={OWN}"]
    found += [
        f"--user={confined['runAsUser']}:{confined['runAsGroup']}",
        f"--memory={limits['memory'].removesuffix('i')}",
    ]
    places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    for volume in volumes:
        if volume["name"] not in places:
            continue
        target = places[volume["name"]]
        if "emptyDir" in volume:
            size = volume["emptyDir"]["sizeLimit"].removesuffix("i")
            found.append(f"--tmpfs={target}:rw,exec,mode=1777,size={size}")
        else:
            found.append(f"--volume={shown(volume['configMap'])}:{target}:ro")
    found += [f"--env={name}={value}" for name, value in known.items()]
    first, *rest = map(expanded, container["command"])
    return [*found, f"--entrypoint={first}", container["image"], *rest]


def shown(config):
    """A ConfigMap in the form of a volume: files in a folder with the time in its name, and links to its top-level entries."""
    folder = STATE / config["name"] / "volume"
    if not folder.exists():
        own = folder / "..2026_11_25"
        for item in config["items"]:
            path = own / item["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(STATE / config["name"] / "data" / item["key"], path)
            path.chmod(config["defaultMode"])
        (folder / "..data").symlink_to("..2026_11_25")
        for path in own.iterdir():
            (folder / path.name).symlink_to(f"..data/{path.name}")
    return folder


def told(pod):
    """A pod in the form of `kubectl get -o json`."""
    found = []
    for name, identifier in pod["containers"].items():
        state = json.loads(docker("inspect", identifier))[0]
        ended = {
            "exitCode": state["State"]["ExitCode"],
            "reason": "Error" if state["State"]["ExitCode"] else "Completed",
            "startedAt": state["State"]["StartedAt"],
            "finishedAt": state["State"]["FinishedAt"],
        }
        now = {"running": {}} if state["State"]["Running"] else {"terminated": ended}
        found.append({"name": name, "imageID": f"docker://{state['Image']}", "state": now})
    labels = {LABEL: pod["label"], "batch.kubernetes.io/job-completion-index": str(pod["index"])}
    return {
        "metadata": {"name": pod["name"], "labels": labels},
        "spec": {"nodeName": f"machine-{pod['index']}"},
        "status": {"containerStatuses": found},
    }


def job(name):
    """A Job's current status; if it failed, its pods are ended."""
    own = [pod for pod in pods() if pod["label"] == name]
    every = [container for pod in own for container in told(pod)["status"]["containerStatuses"]]
    states = [container["state"] for container in every if container["name"] != "daemon"]
    codes = [state["terminated"]["exitCode"] for state in states if "terminated" in state]
    kind = "Failed" if any(codes) else "Complete" if len(codes) == len(states) else None
    if kind == "Failed":
        docker("stop", "--time=5", *(identifier for pod in own for identifier in pod["containers"].values()))
    message = {"reason": "PodFailurePolicy", "message": "a container ended badly"}
    return {"status": {"conditions": [{"type": kind, "status": "True", **message}] if kind else []}}


def delete(document):
    name = document["metadata"]["name"]
    if document["kind"] in ("Job", "JobSet", "MPIJob"):
        own = [pod for pod in pods() if pod["label"] == name]
        docker("rm", "--force", "--volumes", *(each for pod in own for each in pod["containers"].values()))
        docker("network", "rm", name)
        PODS.write_text(json.dumps([pod for pod in pods() if pod["label"] != name]))


def node():
    info = {"kernelVersion": os.uname().release, "architecture": "amd64", "osImage": "Debian", "bootID": BOOT_ID}
    return {
        "nodeInfo": {**info, "containerRuntimeVersion": "docker://20.10"},
        "capacity": {"cpu": "2", "memory": "1024Ki"},
    }


def main(argv):
    option = dict(pairwise(argv))
    match argv:
        case ["create", "-f", file]:
            for document in yaml.safe_load_all(Path(file).read_text()):
                create(document)
        case ["delete", *_]:
            for document in yaml.safe_load_all(Path(option["-f"]).read_text()):
                delete(document)
        case ["get", "nodes", *_]:
            nodes = [{"metadata": {"name": f"machine-{number}"}, "status": node()} for number in range(2)]
            say(json.dumps({"items": nodes}))
        case ["get", "pods", *_]:
            own = [pod for pod in pods() if option["-l"] == f"{LABEL}={pod['label']}"]
            say(
                json.dumps({"items": [told(pod) for pod in own]})
                if option["-o"] == "json"
                else "\n".join(f"pod/{pod['name']}" for pod in own)
            )
        case ["get", name, "-o", "jsonpath={.spec.containers[*].name}"]:
            say(*next(pod for pod in pods() if f"pod/{pod['name']}" == name)["containers"])
        case ["get", _, name, "-o", form]:
            found = job(name)
            say(json.dumps(found) if form == "json" else " ".join(one["type"] for one in found["status"]["conditions"]))
        case ["logs", *_, name, "-c", container]:
            identifier = next(pod for pod in pods() if f"pod/{pod['name']}" == name)["containers"][container]
            os.dup2(1, 2)
            os.execvp("docker", ["docker", "logs", "--follow", "--timestamps", identifier])
        case _:
            raise SystemExit(f"stand-in kubectl: {argv}")


if __name__ == "__main__":
    main(sys.argv[1:])
