"""The requested network, the one used, and the cost of a slow one.

Prevents: InfiniBand that was silently TCP, an interface replaced by another through the kernel's routes, a figure beyond a slow link's
capacity, bytes counted on the wrong side.
"""

import pytest
from commands import call, replaced

from runner.core.wire import Link
from runner.engines.process import run

LENET = ("--device=cpu", "--model=lenet", "--image-size=32", "--batch=8", "--iterations=24", "--warmup=2", "--repeat=1")
# The fastest first: the image crosses the same network.
RATES = (None, 100)
WAYS = {
    "mxnet-kvstore": ("--framework=mxnet", "--strategy=kvstore"),
    "pytorch-ddp": ("--framework=pytorch", "--strategy=ddp"),
    "pytorch-horovod": ("--framework=pytorch", "--strategy=horovod"),
}


def on_two(rig, *words, out):
    words = (f"--hosts={rig.hosts(2)}", "--nodes=2", "--workers=2", *words, *LENET)
    return call("bench", *words, out=out, only="scaled")


@pytest.mark.parametrize("way", WAYS)
def test_no_figure_exceeds_the_link_and_the_bytes_are_those_of_the_gradients(rig, tmp_path, way):
    for rate in RATES:
        rig.shape(Link(rate_mbit=rate, emulated=True) if rate else None)
        out = tmp_path / str(rate)
        done = on_two(rig, *WAYS[way], out=out)
        assert done.code == 0, done.stderr
        record = done.record(2)
        transport = record.transport
        assert transport.emulated == (rig.link.label if rate else "emulated: nodes of one machine")
        sent = sum(transport.sent_bytes_per_step.values())
        assert sent == pytest.approx(2 * transport.gradient_bytes, rel=0.15)
        report = max(done.out.glob("*.md"))
        assert transport.emulated in report.read_text()
        # The probe can't measure more than the link's rate, except for a message that fits in its token bucket.
        assert rate is None or record.measurement.probe[-1].busbw_gb_s * 8e3 <= rate * 1.2
        # Nor can the steps of a second send more, however busy this machine is.
        steps = record.measurement.throughput.value / record.trial.global_batch
        assert rate is None or steps * max(transport.sent_bytes_per_step.values()) * 8e-6 <= rate * 1.2


def test_another_interface_than_requested_makes_the_run_invalid(rig, tmp_path):
    """Routes send eth1's traffic out of eth0, as the kernel does by default if both are in one network."""
    first, second = rig.nodes[:2]
    for node, other in ((first, second), (second, first)):
        to = (f"{other.addresses['eth1']}/32", "via", other.addresses["eth0"], "dev", "eth0")
        run(["ip", "-n", node.namespace, "route", "add", *to])
    try:
        done = on_two(rig, "--framework=pytorch", "--iface=eth1", out=tmp_path)
    finally:
        for node, other in ((first, second), (second, first)):
            run(["ip", "-n", node.namespace, "route", "del", f"{other.addresses['eth1']}/32"])
    assert done.code == 4, done.stderr
    record = done.record(2)
    assert record.validity.status == "invalid"
    (reason,) = record.validity.reasons
    assert "IFACE=eth1" in reason
    assert "eth0" in reason
    assert record.scaling.speedup is None


def test_the_requested_interface_carries_the_run(rig, tmp_path):
    done = on_two(rig, "--framework=pytorch", "--iface=eth1", out=tmp_path)
    assert done.code == 0, done.stderr
    assert set(done.record(2).transport.interfaces.values()) == {"eth1"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--interconnect=infiniband",), "INTERCONNECT=infiniband asked, n1 has no active adapter for it"),
        (("--interconnect=ethernet,infiniband",), "INTERCONNECT=infiniband asked, n1 has no active adapter for it"),
        (("--interconnect=nvlink",), "no nvlink leads from one node to another"),
        (("--iface=eth7",), "IFACE=eth7 asked, n1 has no such interface"),
        (("--workers=64",), "WORKERS=64"),
    ],
)
def test_a_missing_interconnect_is_refused_before_anything_starts(rig, tmp_path, words, says):
    asked = replaced(("--nodes=2", "--workers=2", "--framework=mxnet"), *words)
    done = call("bench", f"--hosts={rig.hosts(2)}", *asked, out=tmp_path)
    assert done.code == 2
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []
