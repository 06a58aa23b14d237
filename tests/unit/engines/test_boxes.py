"""A box that gives a job more than Docker would, or less than it needs: the exact command lines, held against golden files.

Each file has one container of a job in the words of Docker and of every box. After a wanted change, `DLSCALE_GOLDEN=write make test` writes
the files again; read the difference before committing it.
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
    """The words of a box that are neither the job's own command nor its variables."""
    words = [word for word in argv[: 2 - len(spec.argv)] if word not in own]
    return " \\\n  ".join(line for line in _words(words) if line != "--env")


@pytest.mark.parametrize("name", JOBS)
def test_each_box_gives_what_docker_gives_in_words_of_its_own(name):
    spec = last(JOBS[name])
    argvs = {"docker": docker_options.docker_run(spec, "cdi")} | {box: made.argv(spec) for box, made in BOXES.items()}
    own = {f"{key}={value}" for key, value in spec.env.items()}
    lines = "".join(f"# {box}\n{_around(argv, spec, own)}\n\n" for box, argv in argvs.items())
    assert lines == expected(GOLDEN / f"{name}.txt", lines)
    for argv in argvs.values():
        assert argv[-len(spec.argv) + 1 :] == spec.argv[1:]
        assert own <= set(argv)


@pytest.mark.parametrize("name", CASES)
def test_under_podman_the_lease_of_what_others_join_waits_for_a_byte_of_the_runner(name):
    """A server of TensorFlow's, whose workers are in its network, that Podman starts again for them after `kill -9`."""
    specs = launch(CASES[name][0])
    joined = {spec.network for spec in specs if spec.network.startswith("container:")}
    podman = BOXES["podman"]
    for spec in specs:
        waits = f"container:{spec.name}" in joined
        assert ("DLSCALE_LEASE_BEGIN=5" in podman.argv(spec)) == waits == bool(podman.start_signal(spec))
        # Podman fails to remove it while they are there, and is 20 s in finding out.
        assert ("--rm" in podman.argv(spec)) != waits
        assert not BOXES["apptainer"].start_signal(spec)


# Notes what it is asked; a job ends with $CODE. What others are in can't be removed at first; by force that is told as done, and it stays.
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
    """The variables to run such a Podman with, and what removals it was asked for so far."""
    (tmp_path / "podman").write_text(PODMAN)
    (tmp_path / "podman").chmod(0o755)
    log = tmp_path / "log"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(log)}
    return environment, lambda: [line for line in log.read_text().splitlines() if line.startswith("rm")]


JOINED = launch(CASES["tensorflow-ps-2-cpu-workers"][0])[0].model_copy(update={"cpus": ()})


@pytest.mark.parametrize(
    ("code", "words"), [(0, "--ignore"), (143, "--force --depend --ignore"), (1, "--force --depend --ignore")]
)
def test_what_others_join_is_removed_after_them_or_with_them_where_it_ended_badly(forgetful, code, words):
    """Its exit code is the job's: a run whose scheduler failed must not be told as its workers'."""
    environment, removals = forgetful
    argv = BOXES["podman of root, in a step"].argv(JOINED)
    assert subprocess.run(argv, env={**environment, "CODE": str(code)}).returncode == code
    assert wait_until(lambda: removals() == [f"rm {words} {JOINED.name}"] * 2, 10), removals()


def test_what_podman_tells_as_removed_and_leaves_is_removed_again(forgetful):
    """As it does where what it was to remove first was removed by itself meanwhile."""
    environment, removals = forgetful
    subprocess.run(BOXES["podman of root, in a step"].removal(JOINED), env=environment, check=True)
    assert removals() == [f"rm --force --depend --ignore {JOINED.name}"] * 2


def test_a_step_takes_all_that_the_job_has_on_one_node_and_runs_beside_the_others():
    spec = last(ON_NODES[RDMA])
    argv = Step("5").reach(spec.node, BOXES["venv"].argv(spec))
    assert shlex.join(argv).startswith(
        "srun --jobid=5 --overlap --mem=0 --nodes=1 --ntasks=1 --nodelist=n2 --cpu-bind=none --unbuffered --input=all --quiet "
        "--export=PATH,LANG,TZ,HOME,USER,CONTAINERS_CONF,CONTAINERS_STORAGE_CONF,APPTAINER_TMPDIR env "
    )


def test_a_login_gets_the_words_as_they_are_and_the_runners_variables_but_for_its_users():
    """A word with a blank that two words become there; HOME of somebody else, where Podman keeps nothing."""
    way = Ssh({"n2": ("-p", "2222", "--", "bench@n2")}, {"PATH": "/opt/a b:/bin", "HOME": "/root"})
    *ssh, there = way.reach("n2", ("podman", "run", "a b"))
    assert tuple(ssh) == ("ssh", "-Tax", *SSH, "-p", "2222", "--", "bench@n2")
    assert shlex.split(there) == ["exec", "env", "PATH=/opt/a b:/bin", "podman", "run", "a b"]


def test_a_step_is_told_by_the_jobs_control_group_and_a_process_of_this_machine_by_its_session():
    """A process of job 51 must not pass for one of job 5."""
    assert Step("5").identifier(77) in "/slurm_n1/uid_0/job_5/step_3/task_0"
    assert Step("5").identifier(77) not in "/slurm_n1/uid_0/job_51/step_3/task_0"
    assert Here().identifier(77) == f"{SESSION}77"
