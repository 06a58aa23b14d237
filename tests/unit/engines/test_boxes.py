"""Prevents: a box that gives a job more than Docker would, or less than it needs. Compares exact command lines with golden files.

Each file has one container of a job as a command line of Docker and of every box. After an intended change, `DLSCALE_GOLDEN=write make test`
writes the files again; read the difference before committing it.
"""

import shlex
import subprocess
from pathlib import Path

import examples
import pytest
from goldens import expected
from unit.plan.test_launch import CASES, ON_NODES, _words
from unit.plan.test_launch_horovod import CASES as HOROVOD_ON_NODES
from waiting import wait_until

from runner.core.record import SESSION
from runner.engines import docker_options
from runner.engines.boxes import Apptainer, Bare, Podman, Pyxis
from runner.engines.ways import SSH, Here, Ssh, Step
from runner.plan.launch import launch

GOLDEN = examples.ROOT / "tests" / "golden" / "boxes"
RDMA = "pytorch-ddp-8-gpus-2-nodes-infiniband"
ROOT, USER = {"root": True}, {"root": False}
BOXES = {
    "venv": Bare(Path("/venv/bin/python"), Path("/suite/workloads")),
    "apptainer": Apptainer(Path("/suite/workloads"), **USER),
    "apptainer of root": Apptainer(Path("/suite/workloads"), **ROOT),
    "podman": Podman(Path("/suite/workloads"), **USER, limits=True),
    "podman of root, in a step": Podman(Path("/suite/workloads"), **ROOT, limits=False),
    "pyxis": Pyxis(Path("/suite/workloads")),
}
JOBS = {
    "joins-a-network": CASES["mxnet-kvstore-2-cpu-workers"][0],
    "writes-and-has-a-gpu": CASES["pytorch-single-gpu-tuned"][0],
    "rdma-on-4-gpus": ON_NODES[RDMA],
    "keys": HOROVOD_ON_NODES["pytorch-horovod-mpi-2-nodes"],
}


def last(job):
    return launch(job)[-1]


def _around(argv, spec, own):
    """A box's arguments except the job's own command and variables."""
    words = [word for word in argv[: 2 - len(spec.argv)] if word not in own]
    return " \\\n  ".join(line for line in _words(words) if line != "--env")


@pytest.mark.parametrize("name", JOBS)
def test_each_box_gives_a_job_what_docker_gives_it(name):
    spec = last(JOBS[name])
    argvs = {"docker": docker_options.docker_run(spec, "cdi")} | {box: made.argv(spec) for box, made in BOXES.items()}
    own = {f"{key}={value}" for key, value in spec.env.items()}
    lines = "".join(f"# {box}\n{_around(argv, spec, own)}\n\n" for box, argv in argvs.items())
    assert lines == expected(GOLDEN / f"{name}.txt", lines)
    for argv in argvs.values():
        assert argv[-len(spec.argv) + 1 :] == spec.argv[1:]
        assert own <= set(argv)


@pytest.mark.parametrize("name", CASES)
def test_under_podman_the_lease_of_a_joined_container_waits_for_the_runners_byte(name):
    """Podman restarted a killed TensorFlow server (`kill -9`) for the workers in its network."""
    specs = launch(CASES[name][0])
    joined = {spec.network for spec in specs if spec.network.startswith("container:")}
    podman = BOXES["podman"]
    for spec in specs:
        waits = f"container:{spec.name}" in joined
        assert ("DLSCALE_LEASE_BEGIN=5" in podman.argv(spec)) == waits == bool(podman.start_signal(spec))
        # With `--rm`, Podman fails to remove it while the workers exist, and only after 20 s.
        assert ("--rm" in podman.argv(spec)) != waits
        assert not BOXES["apptainer"].start_signal(spec)


# Logs its arguments; a job exits with $CODE. The first removal of a container that others join fails; a forced one exits 0 but leaves it.
PODMAN = """\
#!/bin/sh
echo "$@" >> "$LOG"
case $1$2 in
  run*) exit $CODE ;;
  rm--ignore) [ $(grep -c "^rm" "$LOG") -gt 1 ] ;;
  containerexists) [ $(grep -c "^rm" "$LOG") -le 1 ] ;;
esac
"""


@pytest.fixture
def forgetful(tmp_path):
    """The environment for such a Podman, and a function that returns the removals requested so far."""
    (tmp_path / "podman").write_text(PODMAN)
    (tmp_path / "podman").chmod(0o755)
    log = tmp_path / "log"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(log)}
    return environment, lambda: [line for line in log.read_text().splitlines() if line.startswith("rm")]


JOINED = launch(CASES["tensorflow-ps-2-cpu-workers"][0])[0].model_copy(update={"cpus": ()})


@pytest.mark.parametrize(
    ("code", "words"), [(0, "--ignore"), (143, "--force --depend --ignore"), (1, "--force --depend --ignore")]
)
def test_a_joined_container_is_removed_after_the_others_or_with_them_if_it_failed(forgetful, code, words):
    """The script keeps the job's exit code: a failed scheduler must not be reported as a failure of its workers."""
    environment, removals = forgetful
    argv = BOXES["podman of root, in a step"].argv(JOINED)
    assert subprocess.run(argv, env={**environment, "CODE": str(code)}).returncode == code
    assert wait_until(lambda: removals() == [f"rm {words} {JOINED.name}"] * 2, 10), removals()


def test_removal_is_repeated_until_podman_no_longer_lists_the_container(forgetful):
    """Podman does so if a container that it should remove first disappears meanwhile."""
    environment, removals = forgetful
    subprocess.run(BOXES["podman of root, in a step"].removal(JOINED), env=environment, check=True)
    assert removals() == [f"rm --force --depend --ignore {JOINED.name}"] * 2


def test_a_step_gets_all_resources_of_its_node_and_runs_concurrently_with_others():
    spec = last(ON_NODES[RDMA])
    argv = Step("5").reach(spec.node, BOXES["venv"].argv(spec))
    assert shlex.join(argv).startswith(
        "srun --jobid=5 --overlap --mem=0 --nodes=1 --ntasks=1 --nodelist=n2 --cpu-bind=none --unbuffered --input=all --quiet "
        "--export=PATH,LANG,TZ,HOME,USER,CONTAINERS_CONF,CONTAINERS_STORAGE_CONF,APPTAINER_TMPDIR env "
    )


def test_a_login_gets_unmodified_arguments_and_the_runners_variables_except_the_users():
    """Prevents: an argument with a blank that is split there; another user's HOME, in which Podman keeps nothing."""
    way = Ssh({"n2": ("-p", "2222", "--", "bench@n2")}, {"PATH": "/opt/a b:/bin", "HOME": "/root"})
    *ssh, there = way.reach("n2", ("podman", "run", "a b"))
    assert tuple(ssh) == ("ssh", "-Tax", *SSH, "-p", "2222", "--", "bench@n2")
    assert shlex.split(there) == ["exec", "env", "PATH=/opt/a b:/bin", "podman", "run", "a b"]


def test_a_step_is_identified_by_its_jobs_cgroup_and_a_local_process_by_its_session():
    """A process of job 51 must not be taken for one of job 5."""
    assert Step("5").identifier(77) in "/slurm_n1/uid_0/job_5/step_3/task_0"
    assert Step("5").identifier(77) not in "/slurm_n1/uid_0/job_51/step_3/task_0"
    assert Here().identifier(77) == f"{SESSION}77"
