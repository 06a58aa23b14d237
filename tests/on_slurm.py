"""The suite's jobs on the tests' Slurm: how they start on its head node, and checks after they have ended."""

import subprocess

from checkout import ROOT

from runner.results.store import read_record

DLSCALE = str(ROOT / ".venv" / "bin" / "dlscale")
# The lease ends its job within six seconds, Slurm its steps KillWait later.
GONE_S = 15.0


def started(cluster, *words, environment=None):
    """Start a command on the head node, with separate standard output and error."""
    return subprocess.Popen(
        cluster.inside(*words), env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process, seconds=300):
    said, errors = process.communicate(timeout=seconds)
    return process.returncode, said, errors


def records(out):
    return [read_record(path.parent) for path in sorted(out.glob("*/record.json"))]


def left(cluster):
    """Processes of any job that still run."""
    return [
        line for line in cluster.ask("ps", "-eo", "stat,args").splitlines() if "lease.py" in line and line[0] != "Z"
    ]


def check_crossed(record, *nodes):
    """The gradients crossed the nodes' own network, as counted at all ends, and a sampler observed each node."""
    assert record.outcome.status == "ok", record.outcome.reason
    transport = record.transport
    assert (transport.used, set(transport.interfaces)) == ("ethernet", set(nodes))
    assert transport.contradiction is None
    assert set(transport.sent_bytes_per_step) == set(nodes)
    assert sum(transport.sent_bytes_per_step.values()) > 0.9 * transport.gradient_bytes
    found = {(node.name, node.host.hostname, len(node.host.boot_id or "") > 0) for node in record.provenance.nodes}
    assert found == {(node, node, True) for node in nodes}
    assert record.trial.cpus_per_worker == 2, "a job has all cores of a node"
    assert {host.node for host in record.telemetry.hosts} == set(nodes)
