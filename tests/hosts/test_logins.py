"""Hosts without an engine or a daemon of the suite, reached only by ssh: jobs in Apptainer and without a container.

Prevents: ranks that meet on the runner's machine, a job that outlives its runner or its login, a host recorded under another's name.
"""

import signal
import subprocess
import time

import pytest
import yaml
from commands import QUICK, replaced
from on_slurm import DLSCALE, GONE_S, check_crossed, ended, left, records, started
from testbed.layout import RigNode, known_hosts, sshd_config
from testbed.nodes import is_root_locked
from waiting import wait_until

JOB = ("bench", "--framework=mxnet", "--workers=2", "--nodes=2", *QUICK)
LONG = replaced(JOB, "--iterations=200000", "--scaling=weak")


def key(path):
    subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path), check=True)
    return path.with_name(f"{path.name}.pub").read_text()


@pytest.fixture(scope="module")
def hosts(cluster, tmp_path_factory):
    """A hosts.yaml of two nodes, each with an ssh server; Slurm only starts these servers."""
    folder = tmp_path_factory.mktemp("ssh")
    (folder / "authorized_keys").write_text(key(folder / "key"))
    trusted = {}
    for number in (1, 2):
        address = f"10.88.0.1{number}"
        node = RigNode(f"n{number}", "", {"eth0": address}, (0,), folder / f"n{number}", folder)
        node.run.mkdir()
        trusted[address] = key(node.run / "host_key")
        text = sshd_config(node, authorized=folder / "authorized_keys", pam=is_root_locked())
        (node.run / "sshd_config").write_text(f"{text}StrictModes no\n")
    (folder / "known_hosts").write_text(known_hosts(trusted))
    (folder / "ssh_config").write_text(f"IdentityFile {folder}/key\nUserKnownHostsFile {folder}/known_hosts\n")
    cluster.ask("mkdir", "-p", "/run/sshd")
    server = f"exec /usr/sbin/sshd -D -e -f {folder}/$SLURMD_NODENAME/sshd_config"
    servers = started(
        cluster, "srun", "--exclusive", "--nodes=2", "--nodelist=n[1-2]", "--cpu-bind=none", "sh", "-c", server
    )
    login = ("ssh", "-F", str(folder / "ssh_config"), "-o", "BatchMode=yes")
    for address in trusted:
        assert wait_until(
            lambda at=address: not subprocess.run(cluster.inside(*login, f"root@{at}", "true"), check=False).returncode,
            20,
        )
    listed = [{"name": f"n{number}", "engine": f"ssh://root@10.88.0.1{number}"} for number in (1, 2)]
    path = folder / "hosts.yaml"
    path.write_text(yaml.safe_dump({"ssh_config": "ssh_config", "hosts": listed}))
    yield path
    servers.terminate()
    servers.wait()


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize("engine", ["apptainer", "venv"])
def test_a_job_runs_on_hosts_by_ssh_logins_only(cluster, hosts, sif, tmp_path, engine):
    words = (f"--hosts={hosts}", f"--engine={engine}", f"--out={tmp_path}")
    environment = sif if engine == "apptainer" else None
    code, _, errors = ended(started(cluster, DLSCALE, *JOB, *words, environment=environment))
    assert code in (0, 4), errors
    record = records(tmp_path)[-1]
    check_crossed(record, "n1", "n2")
    assert (record.engine, record.engine_details.confined) == (engine, engine == "apptainer")
    assert left(cluster) == []


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize("end", ["the runner", "a login"])
def test_a_killed_runner_or_login_leaves_nothing_on_any_host(cluster, hosts, tmp_path, end):
    process = started(cluster, DLSCALE, *LONG, f"--hosts={hosts}", "--engine=venv", f"--out={tmp_path}")
    assert wait_until(lambda: left(cluster) and list(tmp_path.glob("*/plan.json")), 120)
    time.sleep(3)
    which = f"{DLSCALE} bench" if end == "the runner" else "^ssh .*10.88.0.11"
    pids = cluster.ask("pgrep", "--full", which).split()
    cluster.ask("kill", f"-{signal.SIGKILL.value}", *pids)
    if end == "a login":  # ends only one scale: the runner continues with the next
        assert wait_until(lambda: list(tmp_path.glob("*/record.json")), 60)
        cluster.ask("pkill", "--full", f"{DLSCALE} bench")
    ended(process, seconds=60)
    assert wait_until(lambda: not left(cluster), GONE_S), left(cluster)
    if end == "a login":
        assert records(tmp_path)[0].outcome.status == "failed"
        assert "worker0: " in records(tmp_path)[0].outcome.reason
