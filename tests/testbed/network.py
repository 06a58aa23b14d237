"""A rig's network: a namespace per node, veth pairs from each to the switch's namespace, and their rate limits.

The bridges are in a separate namespace, because Docker's firewall drops packets forwarded by a bridge in the machine's own. The machine has a
link to the first bridge, so that it reaches the nodes like real ones; that link is never shaped.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping
from typing import Any

from runner.core.errors import RequestError
from runner.core.wire import Link, show_delay
from runner.engines.process import CommandError, run
from runner.engines.shaper import qdiscs
from testbed.layout import Layout, RigNode, uplink
from testbed.tools import tool

_UPLINK_PORT = "machine"  # the switch's end of the uplink


def build(layout: Layout) -> None:
    """Create the switch, the nodes' namespaces and the links between them, and bring them up."""
    routes: list[dict[str, Any]] = json.loads(_ip("-json", "-4", "route", "show", "table", "all"))
    if taken := overlapping(routes, layout.networks):
        raise RequestError(
            f"rig {layout.number} would take the network {taken}, which this machine has a route to already"
        )
    switch = layout.switch
    _ip("netns", "add", switch)
    for bridge in sorted(set(layout.bridges.values())):
        _ip("-n", switch, "link", "add", bridge, "type", "bridge")
        _ip("-n", switch, "link", "set", bridge, "up")
    _ip("link", "add", uplink(layout.number), "type", "veth", "peer", "name", _UPLINK_PORT, "netns", switch)
    _plug(switch, _UPLINK_PORT, layout.bridges["eth0"])
    _ip("address", "add", f"{layout.machine_address}/24", "dev", uplink(layout.number))
    _ip("link", "set", uplink(layout.number), "up")
    for node in layout.nodes:
        _ip("netns", "add", node.namespace)
        _ip("-n", node.namespace, "link", "set", "lo", "up")
        for interface, address in node.addresses.items():
            port = node.port_of(interface)
            _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", interface, "netns", node.namespace)
            _plug(switch, port, layout.bridges[interface])
            _ip("-n", node.namespace, "address", "add", f"{address}/24", "dev", interface)
            _ip("-n", node.namespace, "link", "set", interface, "up")


def shape(layout: Layout, link: Link | None) -> None:
    """Limit the links of all nodes to a rate and delay, in both directions; None removes the limits.

    A packet is delayed once, when it leaves its node, so a round trip takes twice the delay.
    """
    for node in layout.nodes:
        for interface in node.addresses:
            _shape(node.namespace, interface, qdiscs(link, delayed=True), link)
            _shape(layout.switch, node.port_of(interface), qdiscs(link, delayed=False), link)


def set_link(node: RigNode, interface: str, *, up: bool) -> None:
    """Bring an interface up, or take it down."""
    _ip("-n", node.namespace, "link", "set", interface, "up" if up else "down")


def overlapping(routes: Iterable[Mapping[str, Any]], networks: Iterable[str]) -> str | None:
    """The first of the networks that a route already covers; wider routes, such as the default route, do not count."""
    wanted = [ipaddress.IPv4Network(network) for network in networks]
    for route in routes:
        try:
            there = ipaddress.IPv4Network(str(route.get("dst", "")))
        except ValueError:  # "default"
            continue
        for network in wanted:
            if there.subnet_of(network):
                return str(network)
    return None


def _shape(namespace: str, device: str, steps: Iterable[tuple[str, ...]], link: Link | None) -> None:
    """Replace a device's qdiscs. The kernel does not replace a qdisc of another kind, so the old one is deleted first."""
    held = json.loads(run((tool("tc"), "-n", namespace, "-json", "qdisc", "show", "dev", device)) or "[]")
    if any(qdisc.get("root") and qdisc["kind"] in ("tbf", "netem") for qdisc in held):
        run((tool("tc"), "-n", namespace, "qdisc", "delete", "dev", device, "root"))
    for step in steps:
        try:
            run((tool("tc"), "-n", namespace, "qdisc", "add", "dev", device, *step))
        except CommandError as error:
            if "netem" in step and link:
                raise RequestError(
                    f"DELAY={show_delay(link.delay_ms)} can't be had, since this machine's kernel has no netem "
                    f"({error.last_line}); leave DELAY out, or load its module sch_netem"
                ) from error
            raise


def _plug(switch: str, port: str, bridge: str) -> None:
    _ip("-n", switch, "link", "set", port, "master", bridge)
    _ip("-n", switch, "link", "set", port, "up")


def _ip(*words: str) -> str:
    return run((tool("ip"), *words))
